//! Folders and files as another user of the machine would have them.

use std::fs::{self, Permissions};
use std::io::{Read, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};

use rustix::fs::{CWD, FileType, Mode};

use super::*;

fn chmod(path: &Path, mode: u32) {
    fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
}

fn mode(path: &Path) -> u32 {
    fs::symlink_metadata(path).unwrap().mode() & 0o7777
}

fn chown(path: &Path, user: u32) -> bool {
    std::os::unix::fs::lchown(path, Some(user), None).is_ok()
}

fn why<T: std::fmt::Debug>(refused: Result<T, NotOurs>) -> String {
    match refused.unwrap_err() {
        error @ NotOurs::Shared { .. } => error.to_string(),
        error => panic!("{error}"),
    }
}

#[test]
fn a_folder_is_made_for_us_alone_and_one_that_is_there_keeps_its_mode() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a/b");
    assert!(Folder::open(&path).unwrap().is_none());
    Folder::make(&path).unwrap();
    assert_eq!(mode(&path), 0o700);
    let group = rustix::process::getegid().as_raw();
    chmod(&path, 0o755);
    Folder::make(&path).unwrap().let_pass(group).unwrap();
    assert_eq!(mode(&path), 0o755, "others pass through a folder that was there, as through /run");
    Folder::make(&path).unwrap().close().unwrap();
    assert_eq!(mode(&path), 0o700 | (0o755 & 0o010));
    let made = dir.path().join("c");
    // The lock creates it before the socket.
    Folder::make(&made).unwrap();
    Folder::make(&made).unwrap().let_pass(group).unwrap();
    Folder::make(&made).unwrap().close().unwrap();
    assert_eq!(mode(&made), 0o710, "a group that was let pass still is");
}

#[test]
fn a_folder_that_others_have_a_hand_in_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("state");
    for open in [0o777, 0o770, 0o1777, 0o702] {
        Folder::make(&path).unwrap();
        chmod(&path, open);
        let text = why(Folder::make(&path));
        assert!(text.contains(&format!("mode {open:04o}")) && text.contains("chmod 700"), "{text}");
        assert_eq!(mode(&path), open);
        chmod(&path, 0o700);
    }
    let link = dir.path().join("link");
    symlink(&path, &link).unwrap();
    assert!(why(Folder::make(&link)).contains("symbolic link"));
    assert!(why(Folder::make(&link.join("below"))).contains("symbolic link"));
    assert!(why(Folder::make(&path.join("../other"))).contains(".."));
    if chown(&path, 65534) {
        assert!(why(Folder::make(&path)).contains("belongs to user 65534"));
        assert!(why(Folder::make(&path.join("below"))).contains("could replace"));
    }
}

#[test]
fn a_folder_that_others_could_replace_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let above = dir.path().join("above");
    fs::create_dir(&above).unwrap();
    chmod(&above, 0o777);
    assert!(why(Folder::make(&above.join("state"))).contains("mode 0777"));
    // Like /tmp: our files there stay ours.
    chmod(&above, 0o1777);
    Folder::make(&above.join("state")).unwrap();
}

#[test]
fn a_file_that_is_not_ours_alone_is_neither_read_nor_written() {
    let dir = tempfile::tempdir().unwrap();
    let folder = Folder::make(&dir.path().join("state")).unwrap();
    let (victim, path) = (dir.path().join("victim"), folder.path().join("f"));
    fs::write(&victim, "precious").unwrap();
    let anew = || drop(fs::remove_file(&path));
    let refused = |what: &str| {
        for text in [why(folder.read("f")), why(folder.append("f"))] {
            assert!(text.contains(what) && text.contains("`rm "), "{text}");
        }
        assert_eq!(fs::read_to_string(&victim).unwrap(), "precious");
        assert!(folder.create("f").is_err());
    };
    fs::hard_link(&victim, &path).unwrap();
    refused("hard link");
    anew();
    symlink(&victim, &path).unwrap();
    refused("symbolic link");
    anew();
    rustix::fs::mknodat(CWD, &path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
    refused("FIFO");
    anew();
    let listener = std::os::unix::net::UnixListener::bind(&path).unwrap();
    refused("socket");
    drop(listener);
    anew();
    drop(folder.create("f").unwrap());
    chmod(&path, 0o622);
    refused("written by others");
    chmod(&path, 0o644);
    folder.append("f").unwrap().write_all(b"one").unwrap();
    assert_eq!(mode(&path), 0o600, "a readable one of ours is closed");
    folder.append("f").unwrap().write_all(b" two").unwrap();
    let mut text = String::new();
    folder.read("f").unwrap().unwrap().read_to_string(&mut text).unwrap();
    assert_eq!(text, "one two");
    if chown(&path, 65534) {
        refused("belongs to user 65534");
    }
    assert!(folder.read("absent").unwrap().is_none());
}

#[test]
fn only_a_socket_of_ours_is_removed_as_one() {
    let dir = tempfile::tempdir().unwrap();
    let folder = Folder::make(&dir.path().join("run")).unwrap();
    assert!(!folder.remove_socket("s").unwrap());
    drop(std::os::unix::net::UnixListener::bind(folder.path().join("s")).unwrap());
    assert!(folder.remove_socket("s").unwrap());
    let precious = folder.path().join("precious.txt");
    fs::write(&precious, "precious").unwrap();
    symlink(&precious, folder.path().join("link")).unwrap();
    for name in ["precious.txt", "link"] {
        assert!(why(folder.remove_socket(name)).contains("no socket of ours"));
    }
    assert_eq!(fs::read_to_string(&precious).unwrap(), "precious");
}
