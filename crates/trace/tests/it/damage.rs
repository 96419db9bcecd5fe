//! Torn, cut and changed files: what is whole is read, what is not is named, and nothing panics.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use thermocline_core::config::{RuleChoice, RuleName};
use thermocline_trace::part::{FileEntry, ReadPart, UNFINISHED, file_name, manifest_name};
use thermocline_trace::piece::Piece;
use thermocline_trace::reader::Recording;
use thermocline_trace::replay::replay;
use thermocline_trace::schema::TableId;
use thermocline_trace::writer::Limits;

use crate::faulty::mix;
use crate::machines::{config, patient, record, setup};

/// A recording of several parts.
fn recording() -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    let limits = Limits { flush: Duration::from_secs(2), ..patient() };
    record(&setup(&[]), choice(), 7, &[], (folder.path(), limits, false));
    folder
}

fn choice() -> RuleChoice {
    RuleChoice::Rule(RuleName::Adaptive)
}

fn copy(from: &Path) -> tempfile::TempDir {
    let to = tempfile::tempdir().expect("a folder");
    for entry in fs::read_dir(from).expect("it can be read") {
        let path = entry.expect("it can be read").path();
        fs::copy(&path, to.path().join(path.file_name().expect("a name"))).expect("it can be copied");
    }
    to
}

fn names(folder: &Path) -> Vec<String> {
    let mut names: Vec<String> = fs::read_dir(folder)
        .expect("it can be read")
        .map(|entry| entry.expect("it can be read").file_name().to_string_lossy().into_owned())
        .collect();
    names.sort();
    names
}

/// Events that can be read, and the files that are named as damaged.
fn read(folder: &Path) -> (BTreeSet<u64>, Vec<PathBuf>) {
    let Ok(recording) = Recording::open(folder) else { return Default::default() };
    let mut reader = recording.read();
    let mut events = BTreeSet::new();
    while let Some((event, ..)) = reader.next_event() {
        events.insert(event);
    }
    let (mut alone, mut rows) = (recording.read(), BTreeSet::new());
    while let Some(group) = alone.next_rows(TableId::Events) {
        rows.extend((0..group.len()).filter_map(|row| group.event(row)));
    }
    let [theirs, ours] = [&reader, &alone].map(|r| r.damages().iter().map(ToString::to_string));
    assert!(rows == events && theirs.eq(ours), "a table that is read alone has other rows");
    let named = recording.left_out().iter().chain(reader.damages());
    (events, named.map(|damage| damage.path.clone()).collect())
}

/// A hundred times something happens to a file. What belongs to other parts is read in full, the
/// file is named, and a replay goes on behind it.
#[test]
fn a_damaged_file_takes_nothing_but_its_part() {
    let whole = recording();
    let (all, none) = read(whole.path());
    assert!(none.is_empty() && all.len() > 200, "{} events, {none:?}", all.len());
    let parts = Recording::open(whole.path()).expect("it is whole").parts().to_vec();
    assert!(parts.len() >= 4, "{} parts", parts.len());
    let names = names(whole.path());
    let config = config(&setup(&[]), choice());
    for seed in 0..100u64 {
        let random = |n: u64| mix(seed << 8 | n);
        let copied = copy(whole.path());
        let name = &names[random(1) as usize % names.len()];
        let path = copied.path().join(name);
        let mut bytes = fs::read(&path).expect("it is there");
        let at = random(2) as usize % bytes.len();
        let what = random(3) % 4;
        match what {
            0 => bytes.truncate(at),
            1 => bytes[at] ^= 1 << (random(4) % 8),
            2 => {
                let end = (at + 1 + random(4) as usize % 512).min(bytes.len());
                bytes[at..end].fill(random(5) as u8);
            }
            _ => bytes.extend([0; 7]),
        }
        fs::write(&path, &bytes).expect("it can be written");
        let case = format!("seed {seed}: {name}, {what} at {at}");
        let number = name.trim_end_matches(".parquet").trim_end_matches(".json");
        let number: u32 = number.rsplit('-').next().and_then(|n| n.parse().ok()).expect("a part");
        let part = parts.iter().find(|part| part.part == number).expect("one of the parts");
        let (events, damaged) = read(copied.path());
        if events == all {
            // A byte was filled with what it was, or JSON has other blanks.
            assert!(what == 2 || name.ends_with(".json"), "{case}: the damage was not seen");
            continue;
        }
        assert_eq!(damaged, std::slice::from_ref(&path), "{case}");
        let lost: Vec<u64> = all.difference(&events).copied().collect();
        let of_part = |event: &u64| (part.first_event..part.end_event).contains(event);
        assert!(lost.iter().all(of_part), "{case}: events of other parts are lost");
        if seed % 10 == 0 {
            let recording = Recording::open(copied.path()).expect("the other parts are whole");
            let done = replay(&recording, &config, &|config| Ok(config), &mut |_, _| ());
            let done = done.expect("it can be replayed");
            let last = part.part == parts.len() as u32;
            assert!(last || done.missing == part.end_event - part.first_event, "{case}: {}", done.missing);
        }
    }
}

/// As a kill leaves it: some files have their names, some have not, and the manifest is missing.
#[test]
fn a_torn_part_is_named_and_left_out() {
    let whole = recording();
    let (all, _) = read(whole.path());
    let parts = Recording::open(whole.path()).expect("it is whole").parts().to_vec();
    let last = parts.last().expect("it has parts");
    for finished in 0..last.files.len() {
        let torn = copy(whole.path());
        let manifest = torn.path().join(manifest_name(last.part));
        fs::remove_file(&manifest).expect("it is there");
        let path = |file: &FileEntry| torn.path().join(file_name(&file.table, last.part));
        let mut unfinished: Vec<PathBuf> = last.files[..finished].iter().map(path).collect();
        for file in &last.files[finished..] {
            let path = torn.path().join(file_name(&file.table, last.part));
            let other = torn.path().join(file_name(&file.table, last.part) + UNFINISHED);
            fs::rename(path, &other).expect("it can be renamed");
            unfinished.push(other);
        }
        let (events, named) = read(torn.path());
        assert_eq!(events.last(), Some(&(last.first_event - 1)), "everything before it");
        assert_eq!(events.len() as u64, all.len() as u64 - (last.end_event - last.first_event));
        unfinished.sort();
        assert_eq!(named, unfinished);
    }
}

#[test]
fn what_is_no_recording_is_refused_with_a_reason() {
    let folder = tempfile::tempdir().expect("a folder");
    let error = Recording::open(folder.path()).expect_err("it is empty").to_string();
    assert!(error.contains("there is no recording in it"), "{error}");
    let missing = folder.path().join("missing");
    let error = Recording::open(&missing).expect_err("it is not there").to_string();
    assert!(error.contains("missing") && error.contains("cannot be read"), "{error}");

    let whole = recording();
    let part = Recording::open(whole.path()).expect("it is whole").parts()[0].clone();
    let newer = thermocline_trace::part::Manifest { schema: 99, ..part };
    let error = ReadPart::open(whole.path(), &newer).err().expect("it is refused").to_string();
    assert!(error.contains("version 99"), "{error}");
}

/// The manifests count what the events are.
#[test]
fn manifests_count_what_is_there() {
    let whole = recording();
    let recording = Recording::open(whole.path()).expect("it is whole");
    let mut reader = recording.read();
    let (mut steps, mut pieces) = (0, 0);
    while let Some((_, head, piece)) = reader.next_event() {
        steps += u64::from(matches!(piece, Piece::Step(_)));
        pieces += piece.pieces();
        assert!(head.time.0 > 0);
    }
    assert_eq!(pieces, recording.parts().iter().map(|part| part.pieces).sum::<u64>());
    assert!(steps > 50, "{steps}");
}
