//! The package and its service, on a guest with systemd: installed, started, killed, upgraded,
//! purged.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use thermocline_lab::{Cache, Line, ThpMode};

use super::{Run, number, where_time_is_no_matter, with_settings};

/// The package, or the archive, as `make tarball` left both.
fn built(folder: &str, ending: &str) -> PathBuf {
    let folder = super::thermocline().parent().unwrap().with_file_name(folder);
    let files = fs::read_dir(&folder).into_iter().flatten().flatten().map(|entry| entry.path());
    let newest = files
        .filter(|path| path.extension().is_some_and(|end| end == ending))
        .max_by_key(|path| path.metadata().unwrap().modified().unwrap());
    newest.unwrap_or_else(|| panic!("nothing in {}: build it with make tarball", folder.display()))
}

fn script(text: &str) -> String {
    with_settings(&format!("cd \"$LAB_SHARE\"\n{}{text}", include_str!("installed.sh")))
}

fn the_service_works_as_installed(line: Line) {
    let mut run =
        Run::new(line, [640, 128, 512], ThpMode::Never, 400).env("DEB", built("debian", "deb").display());
    run.guest = run.guest.systemd();
    let Some(outcome) = run.run(&script(include_str!("service.sh"))) else { return };
    assert_eq!(run.text("left-behind"), "", "files that were not there before");
    assert!(number(&outcome, "promoted") > 1000, "it hardly worked");
    assert!(number(&outcome, "restarts_after_kill") == 1, "{}", outcome.stdout);
    assert!(number(&outcome, "restarts_after_hang") >= 1, "{}", outcome.stdout);
    assert_eq!(number(&outcome, "status_of_bad_configuration"), 2);
    assert_eq!(number(&outcome, "restarts_with_bad_configuration"), 0);
    assert!(number(&outcome, "exposure_tenths") <= 30, "{}", outcome.stdout);
    // An address of loopback takes the host's network, which counts 0.8.
    assert!(number(&outcome, "exposure_with_metrics_tenths") <= 38, "{}", outcome.stdout);
}

/// What a new operator does, on this machine's release of Debian or on the one in `root`.
fn a_new_operator_sees_the_same_counts_everywhere(line: Line, root: Option<&Path>) {
    let mut run = Run::new(line, [640, 128, 512], ThpMode::Never, 600);
    run.guest = run.guest.systemd();
    // Of another system the guest sees none of this one's files, and the shared folder is emptied
    // of all but what is hidden.
    let programs = run.folder.path().join(".programs");
    fs::create_dir(&programs).unwrap();
    for (name, from) in [
        ("DEB", built("debian", "deb")),
        ("ARCHIVE", built("tarball", "gz")),
        ("REDIS_LOAD", PathBuf::from(env!("CARGO_BIN_EXE_redis_load"))),
    ] {
        let to = programs.join(from.file_name().unwrap());
        fs::copy(&from, &to).unwrap();
        run = run.env(name, to.display());
    }
    if let Some(root) = root {
        run.guest = run.guest.root(root);
    }
    let Some(outcome) = run.run(&script(include_str!("operator.sh"))) else { return };
    assert!(number(&outcome, "counts_compared") >= 13, "{}", outcome.stdout);
    assert!(number(&outcome, "seconds_to_the_counts") <= 300, "{}", outcome.stdout);
    assert!(number(&outcome, "promoted_on_the_page") > 2000, "{}", outcome.stdout);
    assert!(number(&outcome, "exposure_tenths") <= 30, "{}", outcome.stdout);
}

/// A small Debian 13 with systemd and Redis, which is built once and kept.
fn debian_13() -> Option<PathBuf> {
    let root = Cache::of_user().root().join("debian13");
    if root.exists() {
        return Some(root);
    }
    let fresh = root.with_extension("new");
    let _ = fs::remove_dir_all(&fresh);
    let made = Command::new("debootstrap")
        .arg("--variant=minbase")
        .arg("--include=systemd,redis-server,procps,kmod,numactl,libelf1t64,zlib1g")
        .args(["trixie".as_ref(), fresh.as_os_str()])
        .output();
    match made {
        Ok(made) if made.status.success() => {
            fs::rename(&fresh, &root).unwrap();
            Some(root)
        }
        Ok(made) => panic!("debootstrap: {}", String::from_utf8_lossy(&made.stdout)),
        Err(error) => {
            println!("skipped: debootstrap cannot be run ({error}); apt-get install debootstrap");
            None
        }
    }
}

#[test]
fn a_new_operator_sees_the_same_counts_everywhere_on_debian_12() {
    where_time_is_no_matter(|| a_new_operator_sees_the_same_counts_everywhere(Line::Stable, None));
}

#[test]
fn a_new_operator_sees_the_same_counts_everywhere_on_debian_13() {
    where_time_is_no_matter(|| {
        if let Some(root) = debian_13() {
            a_new_operator_sees_the_same_counts_everywhere(Line::Stable, Some(&root));
        }
    });
}

/// A finding that begins and ends while the service runs, as the journal has it.
fn the_journal_has_findings_with_their_fields(line: Line) {
    let mut run =
        Run::new(line, [640, 128, 512], ThpMode::Never, 400).env("DEB", built("debian", "deb").display());
    run.guest = run.guest.systemd();
    let Some(outcome) = run.run(&script(include_str!("findings.sh"))) else { return };
    assert_eq!(number(&outcome, "begun"), 1, "{}", outcome.stdout);
    assert_eq!(number(&outcome, "ended"), 1, "{}", outcome.stdout);
}

#[test]
fn the_journal_has_findings_with_their_fields_on_6_12() {
    where_time_is_no_matter(|| the_journal_has_findings_with_their_fields(Line::Stable));
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
