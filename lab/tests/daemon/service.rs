//! The package and its service, on a guest with systemd: installed, started, killed, upgraded,
//! purged.

use std::fs;
use std::path::PathBuf;

use thermocline_lab::{Line, ThpMode};

use super::{Run, number, where_time_is_no_matter, with_settings};

/// The package, as `make deb` left it.
fn package() -> PathBuf {
    let folder = super::thermocline().parent().unwrap().with_file_name("debian");
    let packages = fs::read_dir(&folder).into_iter().flatten().flatten().map(|entry| entry.path());
    let newest = packages
        .filter(|path| path.extension().is_some_and(|end| end == "deb"))
        .max_by_key(|path| path.metadata().unwrap().modified().unwrap());
    newest.unwrap_or_else(|| panic!("no package in {}: build it with make package", folder.display()))
}

fn the_service_works_as_installed(line: Line) {
    let mut run = Run::new(line, [640, 128, 512], ThpMode::Never, 400).env("DEB", package().display());
    run.guest = run.guest.systemd();
    let Some(outcome) = run.run(&with_settings(include_str!("service.sh"))) else { return };
    assert_eq!(run.text("left-behind"), "", "files that were not there before");
    assert!(number(&outcome, "promoted") > 1000, "it hardly worked");
    assert!(number(&outcome, "restarts_after_kill") == 1, "{}", outcome.stdout);
    assert!(number(&outcome, "restarts_after_hang") >= 1, "{}", outcome.stdout);
    assert_eq!(number(&outcome, "status_of_bad_configuration"), 2);
    assert_eq!(number(&outcome, "restarts_with_bad_configuration"), 0);
    assert!(number(&outcome, "exposure_tenths") <= 30, "{}", outcome.stdout);
}

#[test]
fn the_service_works_as_installed_on_6_1() {
    where_time_is_no_matter(|| the_service_works_as_installed(Line::Debian12));
}

#[test]
fn the_service_works_as_installed_on_6_12() {
    where_time_is_no_matter(|| the_service_works_as_installed(Line::Stable));
}

#[test]
fn the_service_works_as_installed_on_6_18() {
    where_time_is_no_matter(|| the_service_works_as_installed(Line::Longterm));
}

#[test]
fn the_service_works_as_installed_on_the_newest() {
    where_time_is_no_matter(|| the_service_works_as_installed(Line::Newest));
}
