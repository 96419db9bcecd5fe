//! What a private recording tells, and what it does not.

use thermocline_core::config::{RuleChoice, RuleName, Scope};
use thermocline_trace::piece::Piece;
use thermocline_trace::reader::Recording;

use crate::machines::{patient, record, replayed, setup};

#[test]
fn a_private_recording_has_no_process_number_and_no_address_of_the_machine() {
    let mut setup = setup(&[]);
    let choice = RuleChoice::Rule(RuleName::Adaptive);
    setup.scenario.config.scope.push(Scope { name: "customer".into(), pids: vec![1], ..Scope::default() });
    let [open, private] = [false, true].map(|private| {
        let folder = tempfile::tempdir().expect("a folder");
        record(&setup, choice, 7, &[], (folder.path(), patient(), private));
        folder
    });
    let pages = |folder: &tempfile::TempDir| {
        let recording = Recording::open(folder.path()).expect("it is a recording");
        let mut reader = recording.read();
        let mut pages = Vec::new();
        while let Some((_, _, piece)) = reader.next_event() {
            if let Piece::Accesses(batch, _) = piece {
                pages.extend(batch.iter().filter_map(|access| access.page));
            }
        }
        pages
    };
    let (before, after) = (pages(&open), pages(&private));
    assert_eq!(before.len(), after.len());
    let moved = after[0].vpn.wrapping_sub(before[0].vpn);
    for (before, after) in before.iter().zip(&after) {
        assert_ne!(before.vpn, after.vpn);
        assert_eq!(after.vpn.wrapping_sub(before.vpn), moved, "neighbours stay neighbours");
    }
    let recording = Recording::open(private.path()).expect("it is a recording");
    let config = recording.setting("config").expect("it has one");
    assert!(!config.contains("customer"), "{config}");
    // It can be replayed with what is left of its configuration.
    let (done, theirs, ours) = replayed(private.path(), &recording.config().expect("it can be read"));
    assert!(done.pieces > 0 && !theirs.is_empty() && !ours.is_empty());
}
