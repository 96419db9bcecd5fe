//! Valgrind's lackey.

use proptest::prelude::*;
use thermocline_core::access::{Access, Detail};
use thermocline_core::units::{Nanos, NodeId, Pid, VirtPage};
use thermocline_trace::export::{ExportError, Lackey, lackey};
use thermocline_trace::import::{Format, Options, into_folder};
use thermocline_trace::reader::Recording;

use super::{fixture, got, got_as};

fn access(time: u64, pid: u32, vpn: u64, store: bool) -> Access {
    Access {
        time: Nanos(time),
        pfn: None,
        page: Some(VirtPage { pid: Pid(pid), vpn }),
        order: 0,
        node: NodeId::UNKNOWN,
        accessor: None,
        detail: Detail::Sample { latency_cycles: 0, store: Some(store), period: 1 },
    }
}

/// The program stores to the first page, loads from the second, modifies the third, and stores
/// across the first and the second: its instructions 1, 2, 3 and 4.
#[test]
fn every_access_is_a_sample_at_the_instruction_that_made_it() {
    let got = got(&fixture("lackey-3.19.0.txt"), &Options::default());
    let wanted = [
        access(1, 21779, 0x402, true),
        access(2, 21779, 0x403, false),
        access(3, 21779, 0x404, false),
        access(3, 21779, 0x404, true),
        access(4, 21779, 0x402, true),
        access(4, 21779, 0x403, true),
    ];
    assert_eq!(got.accesses(), wanted);
    let summary = got.result.expect("it is whole");
    assert_eq!(summary.left_out.into_iter().collect::<Vec<_>>(), [("instruction fetches", 7)]);
    assert_eq!((summary.pieces, summary.damage), (6, None));
}

#[test]
fn without_instructions_time_is_the_order_and_without_valgrinds_lines_the_process_is_unknown() {
    let got = got(b" L 00001000,8\n S 00002000,8\n", &Options::default());
    assert_eq!(got.accesses(), [access(0, 0, 1, false), access(1, 0, 2, true)]);
    assert_eq!(got.accesses()[0].page.map(|page| page.pid), Some(Pid::UNKNOWN));
    assert_eq!(got.settings[0].0, "times");
    assert!(got.settings[0].1.contains("accesses"), "{:?}", got.settings);
}

#[test]
fn what_other_programs_write_into_it_is_refused_with_its_line() {
    for (text, line, word) in [
        ("I  00001000,3\nhello, world\n", 2, "--log-file"),
        ("==7== Command: x\nI  00001000,3\n==8== Command: y\n", 3, "trace.%p"),
        (" L 00001000,8\n\n", 2, "no line of lackey's"),
        (" L 00001000,8\n S 0000", 2, "in the middle"),
    ] {
        let got = got_as(Format::Lackey, text.as_bytes(), &Options::default());
        let error = got.result.expect_err("it is refused").to_string();
        assert!(error.starts_with(&format!("line {line}: ")) && error.contains(word), "{error}");
    }
}

/// A trace of some accesses, as lackey prints it.
fn trace() -> impl Strategy<Value = (Vec<(bool, u64)>, bool)> {
    let vpn = prop_oneof![0u64..4, 0..1u64 << 36, (1u64 << 52) - 4..(1 << 52) - 1];
    (proptest::collection::vec((any::<bool>(), vpn), 1..300), any::<bool>())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    /// What is exported and imported again has the same loads and stores of the same pages.
    #[test]
    fn a_round_trip_keeps_loads_stores_and_pages((accesses, named) in trace()) {
        let mut text = String::new();
        if named {
            text += "==4711== Lackey, an example Valgrind tool\n";
        }
        for (store, vpn) in &accesses {
            let kind = if *store { 'S' } else { 'L' };
            text += &format!("I  00400000,4\n {kind} {:08x},8\n", (vpn << 12) + 8 * (vpn % 512));
        }
        let folder = tempfile::tempdir().expect("a folder");
        let imported = folder.path().join("imported");
        into_folder(&mut text.as_bytes(), None, &Options::default(), (&imported, &[]), &mut |_| ())
            .expect("it can be imported");
        let recording = Recording::open(&imported).expect("it is a recording");
        prop_assert_eq!(recording.imported(), Some("lackey"));
        let mut out = Vec::new();
        let done = lackey(&mut recording.read(), None, &mut out).expect("it is of one process");
        let wanted = Lackey { accesses: accesses.len() as u64, ..Lackey::default() };
        prop_assert_eq!(done, wanted);
        let again = got(&out, &Options::default()).accesses();
        let pid = if named { 4711 } else { 0 };
        let wanted = accesses.iter().enumerate();
        let wanted: Vec<Access> =
            wanted.map(|(i, (store, vpn))| access(i as u64, pid, *vpn, *store)).collect();
        prop_assert_eq!(again, wanted);
    }
}

#[test]
fn several_processes_do_not_fit_into_its_text() {
    let folder = tempfile::tempdir().expect("a folder");
    let imported = folder.path().join("imported");
    let text = "a 7/7 1.5: 1 page-faults: 1000\nb 8/8 1.6: 1 page-faults: 2000\n";
    into_folder(&mut text.as_bytes(), None, &Options::default(), (&imported, &[]), &mut |_| ())
        .expect("it can be imported");
    let recording = Recording::open(&imported).expect("it is a recording");
    let error = lackey(&mut recording.read(), None, &mut Vec::new()).expect_err("two processes");
    assert!(matches!(error, ExportError::Several(Pid(7), Pid(8))), "{error}");
    let mut out = Vec::new();
    let done = lackey(&mut recording.read(), Some(Pid(8)), &mut out).expect("one process");
    assert_eq!((done.accesses, done.unknown, done.of_others), (1, 1, 1));
    let text = String::from_utf8(out).expect("it is text");
    assert_eq!(text.lines().collect::<Vec<_>>()[1..], [" L 00002000,1"]);
    assert!(text.starts_with("==8== "), "{text}");
}
