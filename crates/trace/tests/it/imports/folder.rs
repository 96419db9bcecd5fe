//! Imports into a folder: what a recording of another tool's file says, and what is left of one
//! that was refused.

use std::fs;
use std::io::{self, Read};

use thermocline_trace::import::{DAMAGE, ImportError, IntoFolderError, LEFT_OUT, Options, into_folder};
use thermocline_trace::piece::Piece;
use thermocline_trace::reader::Recording;

use super::{One, fixture, got, until_damage};

/// The evidence and the settings of a recording.
fn recorded(recording: &Recording) -> (Vec<One>, Vec<(String, String)>) {
    let mut reader = recording.read();
    let (mut evidence, mut settings) = (Vec::new(), Vec::new());
    while let Some((_, _, piece)) = reader.next_event() {
        match piece {
            Piece::Accesses(batch, _) => evidence.extend(batch.into_iter().map(One::Access)),
            Piece::Regions(s) => evidence.extend(s.regions.into_iter().map(|r| One::Region(s.time, r))),
            Piece::RegionCounts(at, regions) => {
                evidence.extend(regions.into_iter().map(|region| One::Count(at, region)));
            }
            Piece::Setting(key, value) => settings.push((key, value)),
            other => assert!(matches!(other, Piece::Step(_)), "{other:?}"),
        }
    }
    assert_eq!(reader.damaged(), 0);
    (evidence, settings)
}

#[test]
fn a_recording_has_what_was_read_and_says_what_it_does_not_know() {
    for (name, times) in [
        ("lackey-3.19.0.txt", "instructions"),
        ("perf-6.1.187-faults.txt", "perf's clock"),
        ("damo-3.4.3.json", "does not name"),
        ("damo-3.4.3.perf_script", "tracer's clock"),
        ("memtierd-raw.txt", "since 1970"),
    ] {
        let folder = tempfile::tempdir().expect("a folder");
        let bytes = fixture(name);
        let given = [("program".to_owned(), "test".to_owned())];
        let mut read = 0;
        let done = into_folder(
            &mut bytes.as_slice(),
            None,
            &Options::default(),
            (folder.path(), &given),
            &mut |bytes| read = bytes,
        );
        let done = done.expect("it can be imported");
        assert_eq!(read, bytes.len() as u64, "{name}");
        let recording = Recording::open(folder.path()).expect("it is a recording");
        assert_eq!(recording.imported(), Some(done.format.name()));
        assert_eq!(recording.setting("program"), Some("test"));
        assert!(recording.setting("times").is_some_and(|t| t.contains(times)), "{name}");
        assert!(recording.topology().nodes.is_empty() && recording.config().is_err(), "{name}");
        let (evidence, settings) = recorded(&recording);
        assert_eq!(evidence, got(&bytes, &Options::default()).evidence, "{name}");
        assert_eq!(done.read.pieces, evidence.len() as u64, "{name}");
        let left_out = settings.iter().any(|(key, _)| key == LEFT_OUT);
        assert_eq!(left_out, !done.read.left_out.is_empty(), "{name}");
    }
}

#[test]
fn damage_is_in_the_recording_if_it_was_read_up_to_there() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut bytes = fixture("memtierd-raw.txt");
    bytes.truncate(520);
    let to = (folder.path(), &[][..]);
    let done = into_folder(&mut bytes.as_slice(), None, &until_damage(), to, &mut |_| ());
    let flaw = done.expect("it is read until there").read.damage.expect("it is damaged");
    let (evidence, settings) = recorded(&Recording::open(folder.path()).expect("it is a recording"));
    assert_eq!(evidence.len(), 4);
    assert_eq!(settings, [(DAMAGE.to_owned(), flaw.to_string())]);
}

#[test]
fn nothing_is_left_of_what_is_refused() {
    let above = tempfile::tempdir().expect("a folder");
    let folder = above.path().join("new");
    let mut bytes = fixture("lackey-3.19.0.txt");
    bytes.extend_from_slice(b"hello\n");
    let import = |bytes: &[u8]| {
        let mut bytes = bytes;
        into_folder(&mut bytes, None, &Options::default(), (&folder, &[]), &mut |_| ())
    };
    let refused = import(&bytes).expect_err("it is mixed");
    assert!(matches!(refused, IntoFolderError::Import(ImportError::Flaw(_))), "{refused}");
    assert!(!folder.exists());
    let unknown = import(b"hello\n").expect_err("it is of no format");
    assert!(matches!(unknown, IntoFolderError::Unknown(_)), "{unknown}");
    assert!(!folder.exists());
    // A folder that is not empty is not ours to clear.
    fs::create_dir(&folder).expect("it can be made");
    fs::write(folder.join("mine"), "text").expect("it can be written");
    let taken = import(&fixture("memtierd-raw.txt")).expect_err("it is not empty");
    assert!(matches!(&taken, IntoFolderError::Write(why) if why.contains("not empty")), "{taken}");
    assert!(folder.join("mine").exists());
}

/// A disk that fails.
struct Failing;

impl Read for Failing {
    fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
        Err(io::Error::other("the disk is gone"))
    }
}

/// An input that cannot be read is not damaged: nothing may be taken for its end.
#[test]
fn what_cannot_be_read_is_no_recording() {
    let json = fixture("damo-3.4.3.json");
    for begin in [b" L 00001000,8\n".repeat(20_000), json[..json.len() / 2].to_vec()] {
        let folder = tempfile::tempdir().expect("a folder");
        let to = (folder.path(), &[][..]);
        let mut input = begin.as_slice().chain(Failing);
        let failed = into_folder(&mut input, None, &until_damage(), to, &mut |_| ());
        let error = failed.expect_err("it cannot be read").to_string();
        assert!(error.contains("the disk is gone"), "{error}");
        assert_eq!(fs::read_dir(folder.path()).expect("it is there").count(), 0);
    }
}
