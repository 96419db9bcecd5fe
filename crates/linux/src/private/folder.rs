//! A folder of ours, and what is opened in it.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};

use rustix::fs::{self, AtFlags, FileType, Gid, Mode, OFlags, Stat};
use rustix::io::Errno;
use rustix::process::geteuid;

use super::NotOurs;
use crate::regular::expect_regular;

/// Bits that let others write.
const OTHERS_WRITE: u32 = 0o022;
/// In such a folder users cannot replace files of others.
const STICKY: u32 = 0o1000;
const FOLDER_MODE: Mode = Mode::RWXU;
/// Mode with which a group may pass through it.
const FOLDER_MODE_PASSED: Mode = Mode::RWXU.union(Mode::XGRP);
const FILE_MODE: Mode = Mode::RUSR.union(Mode::WUSR);
/// Flags to open without waiting, following links or inheritance.
const SAFELY: OFlags = OFlags::NOFOLLOW.union(OFlags::NONBLOCK).union(OFlags::NOCTTY).union(OFlags::CLOEXEC);

/// A folder that nobody else can change or replace.
#[derive(Debug)]
pub struct Folder {
    path: PathBuf,
    fd: OwnedFd,
}

impl Folder {
    /// The folder at `path`, created with mode 0700 if absent, and missing parents with 0755. The
    /// mode of an existing one stays: it may be `/run` or a home directory, which others pass
    /// through.
    ///
    /// # Errors
    /// Others can access it, or it cannot be created.
    pub fn make(path: &Path) -> Result<Folder, NotOurs> {
        let folder = Folder::reach(path, true)?;
        folder.ok_or_else(|| NotOurs::io("make the folder", path, Errno::NOENT))
    }

    /// The folder at `path`; `None` if it is absent. Nothing is created or changed.
    ///
    /// # Errors
    /// Others can access it, or it cannot be opened.
    pub fn open(path: &Path) -> Result<Option<Folder>, NotOurs> {
        Folder::reach(path, false)
    }

    /// A folder that many use and only root or we may change, such as /run, reached by any path
    /// that the kernel shows. Files opened in it must still be ours alone.
    ///
    /// # Errors
    /// Others could replace what is in it, or it cannot be opened.
    pub(crate) fn shared(path: &Path) -> Result<Folder, NotOurs> {
        let how = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let fd = fs::open(path, how, Mode::empty()).map_err(|e| NotOurs::io("open the folder", path, e))?;
        expect_safe_above(path, &stat(&fd, path)?)?;
        Ok(Folder { path: path.to_owned(), fd })
    }

    fn reach(path: &Path, make: bool) -> Result<Option<Folder>, NotOurs> {
        let path = std::path::absolute(path).map_err(|e| NotOurs::io("find", path, e))?;
        let names: Vec<_> = path.components().skip(1).collect();
        let mut at = PathBuf::from("/");
        let open = |fd: std::os::fd::BorrowedFd<'_>, name: &Path, how| {
            fs::openat(fd, name, how | OFlags::DIRECTORY | SAFELY, Mode::empty())
        };
        let mut fd = open(fs::CWD, &at, OFlags::PATH).map_err(|e| NotOurs::io("open", &at, e))?;
        for (place, name) in names.iter().enumerate() {
            let Component::Normal(name) = name else {
                return Err(NotOurs::shared(&path, "leads upwards by ..", "name the folder without it"));
            };
            expect_safe_above(&at, &stat(&fd, &at)?)?;
            let (name, last) = (Path::new(name), place + 1 == names.len());
            at.push(name);
            let how = if last { OFlags::RDONLY } else { OFlags::PATH };
            fd = match open(fd.as_fd(), name, how) {
                Err(Errno::NOENT) if !make => return Ok(None),
                Err(Errno::NOENT) => {
                    let mode = if last { FOLDER_MODE } else { Mode::from_raw_mode(0o755) };
                    match fs::mkdirat(&fd, name, mode) {
                        Ok(()) | Err(Errno::EXIST) => {}
                        Err(e) => return Err(NotOurs::io("make the folder", &at, e)),
                    }
                    open(fd.as_fd(), name, how)
                }
                opened => opened,
            }
            .map_err(|e| match e {
                Errno::NOTDIR | Errno::LOOP => NotOurs::shared(
                    &at,
                    "is a symbolic link or no folder",
                    "name a folder, and its way without symbolic links",
                ),
                e => NotOurs::io("open the folder", &at, e),
            })?;
        }
        let folder = Folder { path, fd };
        folder.expect_ours()?;
        Ok(Some(folder))
    }

    fn expect_ours(&self) -> Result<(), NotOurs> {
        let found = stat(&self.fd, &self.path)?;
        let shown = self.path.display();
        if found.st_uid != geteuid().as_raw() {
            let why = format!("belongs to user {}, and what is in it is trusted", found.st_uid);
            return Err(NotOurs::shared(
                &self.path,
                why,
                "name a folder of our own, or one that is not there",
            ));
        }
        let mode = found.st_mode & 0o7777;
        if mode & OTHERS_WRITE != 0 {
            let why = format!("has mode {mode:04o}: others may have put files there");
            let remedy = format!("look at what is in it, then `rm -r {shown}`, or `chmod 700 {shown}`");
            return Err(NotOurs::shared(&self.path, why, remedy));
        }
        Ok(())
    }

    /// Lets a group pass through a folder that is closed to others, to reach files in it; it can
    /// neither list nor change the folder. A folder that others may read or pass through is
    /// unchanged.
    ///
    /// # Errors
    /// The folder cannot be given to the group.
    pub fn let_pass(&self, group: u32) -> Result<(), NotOurs> {
        if self.mode()? & !FOLDER_MODE_PASSED.as_raw_mode() != 0 {
            return Ok(());
        }
        fs::fchown(&self.fd, None, Some(Gid::from_raw(group)))
            .map_err(|e| NotOurs::io("give to the group", &self.path, e))?;
        self.set_mode(FOLDER_MODE_PASSED)
    }

    /// Closes a folder for our own files to others, except to a group that may pass.
    ///
    /// # Errors
    /// Its mode cannot be set.
    pub fn close(&self) -> Result<(), NotOurs> {
        let mode = Mode::from_raw_mode(self.mode()?);
        if FOLDER_MODE_PASSED.contains(mode) { Ok(()) } else { self.set_mode(mode & FOLDER_MODE_PASSED) }
    }

    fn mode(&self) -> Result<u32, NotOurs> {
        Ok(stat(&self.fd, &self.path)?.st_mode & 0o7777)
    }

    fn set_mode(&self, mode: Mode) -> Result<(), NotOurs> {
        fs::fchmod(&self.fd, mode).map_err(|e| NotOurs::io("set the mode of", &self.path, e))
    }

    /// Its path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Opens a file of ours for reading; `None` if it is absent.
    ///
    /// # Errors
    /// Others can access it, or it cannot be opened.
    pub fn read(&self, name: &str) -> Result<Option<File>, NotOurs> {
        match self.file(name, OFlags::RDONLY) {
            Err(NotOurs::Io { cause, .. }) if cause.kind() == io::ErrorKind::NotFound => Ok(None),
            opened => opened.map(Some),
        }
    }

    /// Opens a file of ours for appending, created with mode 0600 if absent. A file of ours that
    /// others may read is closed to them.
    ///
    /// # Errors
    /// As [`read`](Folder::read).
    pub fn append(&self, name: &str) -> Result<File, NotOurs> {
        let path = self.path.join(name);
        let file = self.file(name, OFlags::RDWR | OFlags::APPEND | OFlags::CREATE)?;
        fs::fchmod(&file, FILE_MODE).map_err(|e| NotOurs::io("set the mode of", &path, e))?;
        Ok(file)
    }

    /// Creates a new file for appending, with mode 0600.
    ///
    /// # Errors
    /// Something with that name exists, or it cannot be created.
    pub fn create(&self, name: &str) -> Result<File, NotOurs> {
        self.file(name, OFlags::RDWR | OFlags::APPEND | OFlags::CREATE | OFlags::EXCL)
    }

    fn file(&self, name: &str, how: OFlags) -> Result<File, NotOurs> {
        let path = self.path.join(name);
        let remedy = || format!("look at it, then `rm {}`", path.display());
        let opened = fs::openat(&self.fd, name, how | SAFELY, FILE_MODE);
        let file = File::from(opened.map_err(|e| match e {
            Errno::LOOP => NotOurs::shared(&path, "is a symbolic link", remedy()),
            Errno::NXIO => NotOurs::shared(&path, "is a FIFO or a socket, not a file", remedy()),
            e => NotOurs::io("open", &path, e),
        })?);
        let found = file.metadata().map_err(|e| NotOurs::io("look at", &path, e))?;
        let why = if let Err(error) = expect_regular(&found) {
            format!("cannot be used: {error}")
        } else if found.is_dir() {
            "is a folder, not a file".to_owned()
        } else if found.uid() != geteuid().as_raw() {
            format!("belongs to user {}, and what it says is trusted", found.uid())
        } else if found.mode() & OTHERS_WRITE != 0 {
            "may be written by others than its user".to_owned()
        } else if found.nlink() != 1 {
            "has another name elsewhere (a hard link)".to_owned()
        } else {
            return Ok(file);
        };
        Err(NotOurs::shared(&path, why, remedy()))
    }

    /// Removes a name; returns whether it existed. A folder is not removed.
    ///
    /// # Errors
    /// The file system's error.
    pub fn remove(&self, name: &str) -> Result<bool, NotOurs> {
        match fs::unlinkat(&self.fd, name, AtFlags::empty()) {
            Ok(()) => Ok(true),
            Err(Errno::NOENT) => Ok(false),
            Err(e) => Err(NotOurs::io("remove", &self.path.join(name), e)),
        }
    }

    /// Removes a leftover socket; returns whether there was one.
    ///
    /// # Errors
    /// The file with that name is not a socket, or not ours: it stays.
    pub fn remove_socket(&self, name: &str) -> Result<bool, NotOurs> {
        let path = self.path.join(name);
        let found = match fs::statat(&self.fd, name, AtFlags::SYMLINK_NOFOLLOW) {
            Err(Errno::NOENT) => return Ok(false),
            found => found.map_err(|e| NotOurs::io("look at", &path, e))?,
        };
        if FileType::from_raw_mode(found.st_mode) != FileType::Socket || found.st_uid != geteuid().as_raw() {
            let remedy = "it stays as it is: name a path at which nothing is";
            return Err(NotOurs::shared(&path, "is no socket of ours", remedy));
        }
        self.remove(name)
    }

    /// Replaces a file by another.
    ///
    /// # Errors
    /// The file system's error.
    pub fn rename(&self, from: &str, to: &str) -> Result<(), NotOurs> {
        fs::renameat(&self.fd, from, &self.fd, to).map_err(|e| NotOurs::io("replace", &self.path.join(to), e))
    }

    /// Waits until created, replaced and removed names are on disk.
    ///
    /// # Errors
    /// The file system's error.
    pub fn sync(&self) -> Result<(), NotOurs> {
        fs::fsync(&self.fd).map_err(|e| NotOurs::io("sync the folder", &self.path, e))
    }

    /// Whether `name` still refers to `file`.
    pub(crate) fn has(&self, name: &str, file: &File) -> bool {
        let named = fs::statat(&self.fd, name, AtFlags::SYMLINK_NOFOLLOW);
        let Ok((named, held)) = named.and_then(|named| Ok((named, fs::fstat(file)?))) else { return false };
        (named.st_dev, named.st_ino) == (held.st_dev, held.st_ino)
    }
}

fn stat(fd: &OwnedFd, path: &Path) -> Result<Stat, NotOurs> {
    fs::fstat(fd).map_err(|e| NotOurs::io("look at", path, e))
}

/// A user that may change a folder may replace its entries.
fn expect_safe_above(path: &Path, found: &Stat) -> Result<(), NotOurs> {
    let mode = found.st_mode & 0o7777;
    let owner = found.st_uid;
    let why = if owner != 0 && owner != geteuid().as_raw() {
        format!("belongs to user {owner}, who could replace what is in it")
    } else if mode & OTHERS_WRITE != 0 && mode & STICKY == 0 {
        format!("has mode {mode:04o}, so that others could replace what is in it")
    } else {
        return Ok(());
    };
    Err(NotOurs::shared(path, why, "name a folder elsewhere, as in /run"))
}
