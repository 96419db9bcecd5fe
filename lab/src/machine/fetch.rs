//! Gets a kernel out of Debian's signed archive into the cache, without installing anything.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::machine::apt::{Apt, Mirrors, text_of};
use crate::machine::kernel::{Archive, RECORD, Record};
use crate::machine::release;
use crate::{Cache, Error, Kernel, Line, Result};

/// The result of a fetch.
#[derive(Debug)]
pub enum Fetched {
    /// The kernel was downloaded.
    New(Kernel),
    /// The newest kernel of the line was already in the cache.
    Current(Kernel),
    /// The archive could not be queried; this kernel was in the cache.
    Kept(Kernel, Error),
}

impl Fetched {
    /// The kernel, wherever it came from.
    pub fn kernel(self) -> Kernel {
        match self {
            Fetched::New(kernel) | Fetched::Current(kernel) | Fetched::Kept(kernel, _) => kernel,
        }
    }
}

/// Finds the newest kernel of a line in the signed package index, and downloads it if the cache
/// lacks it. One fetch runs at a time. Others wait and then find its kernel.
///
/// # Errors
/// [`Error::NoKernel`] if the archive cannot be used and the cache holds no kernel of the line.
pub fn fetch(cache: &Cache, line: Line) -> Result<Fetched> {
    fetch_by(cache, line, Path::new("/etc/apt"))
}

/// [`fetch`] from the archive that the apt configuration in `etc` names.
fn fetch_by(cache: &Cache, line: Line, etc: &Path) -> Result<Fetched> {
    let _lock = cache.fetch_lock()?;
    match from_archive(cache, line, etc) {
        Ok(fetched) => Ok(fetched),
        Err(error) => match Kernel::cached(cache, line)? {
            Some(kernel) => Ok(Fetched::Kept(kernel, error)),
            None => Err(Error::NoKernel {
                line: line.to_string(),
                cache: cache.root().into(),
                source: Box::new(error),
            }),
        },
    }
}

/// The kernel to boot: the newest cached one of the line. If there is none, it is fetched.
pub(crate) fn cached_or_fetched(cache: &Cache, line: Line) -> Result<Kernel> {
    if let Some(kernel) = Kernel::cached(cache, line)? {
        return Ok(kernel);
    }
    eprintln!("lab: fetching a kernel of line {line} into {}", cache.root().display());
    fetch(cache, line).map(Fetched::kernel)
}

fn from_archive(cache: &Cache, line: Line, etc: &Path) -> Result<Fetched> {
    let mirrors = Mirrors::of_machine(etc)?;
    let mirror = |archive| match archive {
        Archive::Main => Some(mirrors.archive.as_str()),
        Archive::Security => mirrors.security.as_deref(),
    };
    let suites: Vec<(&str, &str)> =
        line.suites().iter().filter_map(|&(archive, suite)| Some((mirror(archive)?, suite))).collect();
    let apt = Apt::prepare(&cache.folder(&format!("apt/{line}"))?, &suites)?;
    apt.update()?;
    let names = apt.names("linux-image-")?;
    let newest = names
        .iter()
        .filter_map(|name| release::of_package(name))
        .filter(|release| line.has(release))
        .max_by(|a, b| release::compare(a, b))
        .ok_or_else(|| Error::NoKernelInIndex { line: line.to_string() })?;
    let folder = cache.folder("kernels")?.join(newest);
    if let Some(kernel) = Kernel::at(&folder)? {
        return Ok(Fetched::Current(kernel));
    }
    download(cache, &apt, line, newest, &folder)?;
    match Kernel::at(&folder)? {
        Some(kernel) => Ok(Fetched::New(kernel)),
        None => Err(layout(newest, RECORD)),
    }
}

fn download(cache: &Cache, apt: &Apt, line: Line, release: &str, folder: &Path) -> Result<()> {
    let image = format!("linux-image-{release}");
    let depends = apt.field(&image, "Depends")?.unwrap_or_default();
    let version = apt.field(&image, "Version")?.ok_or_else(|| layout(release, "a package version"))?;
    let mut record =
        Record { line, release: release.to_owned(), packages: vec![format!("{image}={version}")] };
    let mut packages = vec![image];
    for part in parts_of(&depends, release) {
        // A suite may have the image without the package that contains its configuration. If
        // something needed is missing, this shows when the packages are unpacked.
        if let Ok(Some(version)) = apt.field(&part, "Version") {
            record.packages.push(format!("{part}={version}"));
            packages.push(part);
        }
    }

    // Everything is prepared in a temporary folder, so that the final folder appears complete or
    // not at all.
    let scratch = tempfile::Builder::new()
        .prefix("fetch-")
        .tempdir_in(cache.root())
        .map_err(Error::file("create a folder in", cache.root()))?;
    let (downloads, tree) = (scratch.path().join("packages"), scratch.path().join("tree"));
    fs::create_dir(&downloads).map_err(Error::file("create", &downloads))?;
    apt.download(&packages, &downloads)?;
    for entry in fs::read_dir(&downloads).map_err(Error::file("read", &downloads))?.flatten() {
        text_of(Command::new("dpkg").arg("-x").arg(entry.path()).arg(&tree), "dpkg", "dpkg")?;
    }

    let done = scratch.path().join("kernel");
    let modules = done.join("lib/modules");
    fs::create_dir_all(&modules).map_err(Error::file("create", &modules))?;
    let find = |what: &str, places: &[String]| {
        let found = places.iter().map(|place| tree.join(place)).find(|path| path.exists());
        found.ok_or_else(|| layout(release, what))
    };
    let vmlinuz = [format!("boot/vmlinuz-{release}"), format!("usr/lib/modules/{release}/vmlinuz")];
    rename(&find("its image", &vmlinuz)?, &done.join("vmlinuz"))?;
    let config = [format!("boot/config-{release}"), format!("usr/lib/modules/{release}/config")];
    if let Ok(config) = find("its configuration", &config) {
        rename(&config, &done.join("config"))?;
    }
    let folders = [format!("lib/modules/{release}"), format!("usr/lib/modules/{release}")];
    rename(&find("its modules", &folders)?, &modules.join(release))?;
    text_of(Command::new("depmod").arg("-b").arg(&done).arg(release), "depmod", "kmod")?;
    let text = serde_json::to_string_pretty(&record)
        .map_err(|source| Error::Record { path: done.clone(), source })?;
    fs::write(done.join(RECORD), text).map_err(Error::file("write", done.join(RECORD)))?;
    rename(&done, folder)
}

/// The packages in `depends` that contain this very release: newer kernels are split into several.
fn parts_of(depends: &str, release: &str) -> Vec<String> {
    let alternatives = depends.split([',', '|']);
    let names = alternatives.filter_map(|entry| entry.split_whitespace().next());
    names.filter(|name| name.ends_with(release)).map(str::to_owned).collect()
}

fn layout(release: &str, what: &str) -> Error {
    Error::Layout { release: release.to_owned(), what: what.to_owned() }
}

fn rename(from: &Path, to: &Path) -> Result<()> {
    fs::rename(from, to).map_err(Error::file("move a folder to", to))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_an_archive_a_cached_kernel_is_kept_and_none_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        let cache = Cache::at(folder.path().join("cache"));
        fs::write(folder.path().join("sources.list"), "deb file:/nonexistent/debian bookworm main\n")
            .unwrap();
        let error = fetch_by(&cache, Line::Newest, folder.path()).unwrap_err();
        assert!(matches!(error, Error::NoKernel { .. }), "{error}");
        assert!(
            error.is_unavailable() && error.to_string().contains("run `lab fetch` with a network"),
            "{error}"
        );

        let kernel = cache.folder("kernels/7.2.13+deb14-amd64").unwrap();
        let record = r#"{"line":"newest","release":"7.2.13+deb14-amd64","packages":["a=1"]}"#;
        fs::write(kernel.join(RECORD), record).unwrap();
        match fetch_by(&cache, Line::Newest, folder.path()).unwrap() {
            Fetched::Kept(kernel, _) => assert_eq!(kernel.release(), "7.2.13+deb14-amd64"),
            other => panic!("{other:?}"),
        }
        let left: Vec<_> =
            fs::read_dir(cache.root()).unwrap().flatten().map(|entry| entry.file_name()).collect();
        assert!(left.iter().all(|name| !name.to_string_lossy().starts_with("fetch-")), "{left:?}");
    }

    #[test]
    fn the_parts_of_a_split_kernel_are_its_same_release_dependencies() {
        let depends = "dracut | initramfs-tools (>= 0.120), linux-base-7.2.13+deb14-amd64 (= 7.2.13-1), \
                       linux-modules-7.2.13+deb14-amd64 (= 7.2.13-1)";
        assert_eq!(
            parts_of(depends, "7.2.13+deb14-amd64"),
            ["linux-base-7.2.13+deb14-amd64", "linux-modules-7.2.13+deb14-amd64"]
        );
        assert!(parts_of("kmod, linux-base (>= 4.3~)", "6.12.117+deb12-amd64").is_empty());
    }
}
