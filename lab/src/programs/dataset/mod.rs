//! Databases that are filled once, on the host, and kept in the cache as images of disks.
//!
//! An image has the programs from Debian's packages, with their dependencies that the host lacks,
//! and below `data` the files that they have written. Nothing is installed.

mod host;
mod mariadb;
mod postgresql;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::machine::apt::{Apt, Mirrors, text_of};
use crate::{Cache, Error, Result};
use host::Host;

/// Raised when images of an earlier version become unusable.
const LAYOUT: u32 = 1;
/// Free space in the file system for the guest's writes. It takes no space on the host until then.
const SPARE_BYTES: u64 = 2 << 30;

/// A database.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Database {
    /// PostgreSQL with the tables of pgbench.
    PostgreSql,
    /// MariaDB with the table of sysbench's OLTP.
    MariaDb,
}

impl Database {
    /// The package that names the version, and further required ones.
    fn packages(self) -> &'static [&'static str] {
        match self {
            Database::PostgreSql => &["postgresql-15", "postgresql-client-15", "libpq5"],
            Database::MariaDb => &["mariadb-server-core", "mariadb-client-core", "sysbench"],
        }
    }

    /// Folders of programs in an image.
    pub fn programs(self) -> &'static [&'static str] {
        match self {
            Database::PostgreSql => &["usr/lib/postgresql/15/bin"],
            Database::MariaDb => &["usr/sbin", "usr/bin"],
        }
    }

    /// The environment of a program whose image is at `root`: the search paths of programs,
    /// libraries and scripts.
    pub fn environment(self, root: &Path) -> [(&'static str, String); 4] {
        let path = std::env::var("PATH").unwrap_or_else(|_| "/usr/sbin:/usr/bin:/sbin:/bin".to_owned());
        let own = self.programs().iter().map(|folder| root.join(folder).display().to_string());
        let folders: Vec<String> = own.chain([path]).collect();
        let libraries = ["usr/lib/x86_64-linux-gnu", "lib/x86_64-linux-gnu"];
        let libraries = libraries.map(|folder| root.join(folder).display().to_string()).join(":");
        let scripts = root.join("usr/share/sysbench/?.lua").display().to_string();
        [
            ("PATH", folders.join(":")),
            ("LD_LIBRARY_PATH", libraries),
            ("LUA_PATH", scripts),
            ("LC_ALL", "C".to_owned()),
        ]
    }
}

/// A database of a size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DataSet {
    /// The kind.
    pub database: Database,
    /// How large: about 15 MiB each.
    pub scale: u32,
}

impl DataSet {
    /// Rows of the main table.
    pub fn rows(self) -> u64 {
        u64::from(self.scale)
            * match self.database {
                Database::PostgreSql => postgresql::ROWS_PER_SCALE,
                Database::MariaDb => mariadb::ROWS_PER_SCALE,
            }
    }

    /// The image, from the cache or prepared, which needs Debian's archive and some seconds.
    ///
    /// # Errors
    /// [`Error::DataSet`] if the archive cannot be used, or a program fails.
    pub fn image(self, cache: &Cache) -> Result<PathBuf> {
        let _lock = cache.fetch_lock()?;
        let folder = cache.folder("sets")?;
        if let Some(image) = self.cached(&folder) {
            return Ok(image);
        }
        eprintln!("lab: preparing {} in {}", self.name(), folder.display());
        self.prepare(cache, &folder)
            .map_err(|source| Error::DataSet { name: self.name(), source: Box::new(source) })
    }

    fn name(self) -> String {
        format!("{} of scale {}", self.database.packages()[0], self.scale)
    }

    /// The name of an image without the version, which is between the two.
    fn ends(self) -> (String, String) {
        (format!("{}_", self.database.packages()[0]), format!("_{}.{LAYOUT}.ext4", self.scale))
    }

    fn cached(self, folder: &Path) -> Option<PathBuf> {
        let (start, end) = self.ends();
        let paths = fs::read_dir(folder).ok()?.flatten().map(|entry| entry.path());
        let ours = |path: &PathBuf| {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            name.starts_with(&start) && name.ends_with(&end)
        };
        paths.filter(ours).max()
    }

    fn prepare(self, cache: &Cache, folder: &Path) -> Result<PathBuf> {
        let Mirrors { archive, security } = Mirrors::of_machine(Path::new("/etc/apt"))?;
        let security = security.as_deref().map(|uri| (uri, "bookworm-security"));
        let suites: Vec<_> = [(archive.as_str(), "bookworm")].into_iter().chain(security).collect();
        let apt = Apt::prepare(&cache.folder("apt/programs")?, &suites)?;
        apt.beside_machine()?;
        apt.update()?;
        let packages = self.database.packages();
        let version = apt.field(packages[0], "Version")?.unwrap_or_default();

        // An unprivileged user must be able to enter it, but may not enter the cache.
        let scratch = tempfile::Builder::new()
            .prefix("lab-set-")
            .tempdir_in("/var/tmp")
            .map_err(Error::file("create a folder in", "/var/tmp"))?;
        let (downloads, root) = (scratch.path().join("packages"), scratch.path().join("root"));
        for folder in [&downloads, &root] {
            fs::create_dir(folder).map_err(Error::file("create", folder))?;
        }
        for folder in [scratch.path(), &root] {
            let all = fs::Permissions::from_mode(0o755);
            fs::set_permissions(folder, all).map_err(Error::file("open to all", folder))?;
        }
        apt.download(&apt.lacking(packages)?, &downloads)?;
        for entry in fs::read_dir(&downloads).map_err(Error::file("read", &downloads))?.flatten() {
            text_of(Command::new("dpkg").arg("-x").arg(entry.path()).arg(&root), "dpkg", "dpkg")?;
        }

        let host = Host::new(self.database, &root, scratch.path())?;
        match self.database {
            Database::PostgreSql => postgresql::fill(&host, self)?,
            Database::MariaDb => mariadb::fill(&host, self)?,
        }
        let (start, end) = self.ends();
        let image = folder.join(format!("{start}{}{end}", version.replace([':', '/'], "-")));
        make_image(&root, &image)?;
        Ok(image)
    }
}

/// An ext4 file system with the contents of `root`, which appears whole or not at all.
fn make_image(root: &Path, image: &Path) -> Result<()> {
    let part = image.with_extension("part");
    let sized =
        text_of(Command::new("du").args(["-s", "-B1", "--apparent-size"]).arg(root), "du", "coreutils")?;
    let bytes: u64 = sized.split_whitespace().next().and_then(|word| word.parse().ok()).unwrap_or(0);
    // Inodes, block maps and partly filled blocks take some of it.
    let kib = (bytes + bytes / 8 + SPARE_BYTES) >> 10;
    let mut make = Command::new("mke2fs");
    // It is discarded with the guest: nothing has to survive a crash.
    make.args(["-q", "-F", "-t", "ext4", "-O", "^has_journal", "-m", "0", "-d"]).arg(root).arg(&part);
    // Debian has it in /usr/sbin, which is not in every user's path.
    make.env("PATH", "/usr/sbin:/sbin:/usr/bin:/bin");
    text_of(make.arg(format!("{kib}k")), "mke2fs", "e2fsprogs")?;
    fs::rename(&part, image).map_err(Error::file("move the image to", image))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_image_is_found_by_program_size_and_layout_whatever_its_version() {
        let folder = tempfile::tempdir().unwrap();
        let set = |database, scale| DataSet { database, scale };
        let postgresql = set(Database::PostgreSql, 26);
        assert_eq!(postgresql.cached(folder.path()), None);
        let names = [
            format!("postgresql-15_15.18-0+deb12u1_26.{LAYOUT}.ext4"),
            format!("postgresql-15_15.20-0+deb12u1_26.{LAYOUT}.ext4"),
            format!("postgresql-15_15.20-0+deb12u1_26.{LAYOUT}.part"),
            format!("postgresql-15_15.20-0+deb12u1_3.{LAYOUT}.ext4"),
            "postgresql-15_15.20-0+deb12u1_26.0.ext4".to_owned(),
        ];
        for name in &names {
            fs::write(folder.path().join(name), "").unwrap();
        }
        assert_eq!(postgresql.cached(folder.path()), Some(folder.path().join(&names[1])));
        assert_eq!(set(Database::PostgreSql, 3).cached(folder.path()), Some(folder.path().join(&names[3])));
        assert_eq!(set(Database::PostgreSql, 6).cached(folder.path()), None);
        assert_eq!(set(Database::MariaDb, 26).cached(folder.path()), None);
    }

    #[test]
    fn programs_of_the_image_come_before_the_hosts() {
        let [path, libraries, ..] = Database::MariaDb.environment(Path::new("/set"));
        assert!(path.1.starts_with("/set/usr/sbin:/set/usr/bin:"), "{path:?}");
        assert_eq!(libraries.1, "/set/usr/lib/x86_64-linux-gnu:/set/lib/x86_64-linux-gnu");
    }
}
