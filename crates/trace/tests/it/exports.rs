//! Traces for Perfetto: decoded by prost, they hold what the recording holds.

use std::collections::BTreeMap;

use prost::Message;
use thermocline_core::access::{Access, Detail, Holding, Membership};
use thermocline_core::candidate::Reason;
use thermocline_core::config::{Config, RuleChoice, RuleName, Scope};
use thermocline_core::journal::{Decision, What};
use thermocline_core::label::Label;
use thermocline_core::moves::{Batch, BatchId, BatchOutcome, Direction, Move, Outcome};
use thermocline_core::refusal::RefusalReason;
use thermocline_core::topology::{Node, NodeState, Topology, Watermarks};
use thermocline_core::units::{Nanos, NodeId, Pid, ScopeId, TierId, VirtPage};
use thermocline_core::weigh::Sources;
use thermocline_trace::export::{DebugAnnotation, Trace, TracePacket, TrackDescriptor, perfetto};
use thermocline_trace::piece::Piece;
use thermocline_trace::reader::Recording;
use thermocline_trace::recorder::Recorder;
use thermocline_trace::writer::About;

use crate::machines::{patient, record, setup};

const MONOTONIC: u32 = 3;
const INSTANT: i32 = 3;
const COUNTER: i32 = 4;

fn topology() -> Topology {
    let node = |id: u16| Node {
        id: NodeId(id),
        tier: TierId(id as u8),
        cpus: vec![id.into()],
        capacity_pages: 1 << 20,
        read_latency_ns: None,
        read_bandwidth_mbps: None,
        distances: vec![10, 20],
    };
    Topology::new(vec![node(0), node(1)]).expect("two nodes")
}

fn decision(time: u64, vpn: u64, what: What) -> Decision {
    Decision {
        time: Nanos(time),
        what,
        page: VirtPage { pid: Pid(7), vpn },
        pfn: None,
        pages: 1,
        direction: Direction::Promote,
        from: NodeId(1),
        to: Some(NodeId(0)),
        score: 9,
        why: Reason::ShortLatency,
        sources: Sources::default(),
    }
}

/// A step of a machine: what it reports, what is decided, and how that ends.
fn pieces() -> Vec<(u64, Piece)> {
    let access = Access {
        time: Nanos(90),
        pfn: None,
        page: Some(VirtPage { pid: Pid(7), vpn: 5 }),
        order: 0,
        node: NodeId(1),
        accessor: None,
        detail: Detail::HintFault { latency: None },
    };
    let watermarks = Watermarks { min_pages: 1, low_pages: 2, high_pages: 3, promo_pages: 4 };
    let state =
        |node, free_pages| NodeState { node: NodeId(node), free_pages, managed_pages: 1000, watermarks };
    let page = |vpn| VirtPage { pid: Pid(7), vpn };
    let one = |vpn, order| Move { page: page(vpn), pfn: None, order, from: NodeId(1) };
    let batch = Batch {
        id: BatchId(3),
        pid: Pid(7),
        target: NodeId(0),
        direction: Direction::Promote,
        moves: vec![one(5, 0), one(512, 9)],
    };
    let outcomes = vec![Outcome::Moved, Outcome::Busy];
    let refused = What::Refused { reason: RefusalReason::ALL[0] };
    let holding = Holding { scope: ScopeId(1), time: Nanos(105), pages: 3 };
    vec![
        (100, Piece::Process(Pid(7), Membership::Managed(ScopeId(1)))),
        (100, Piece::Accesses(vec![access; 5], Vec::new())),
        (110, Piece::Holding(holding)),
        (110, Piece::Nodes(vec![state(0, 10), state(1, 20)])),
        (120, Piece::Batch(batch)),
        (120, Piece::Decisions(vec![decision(118, 5, refused), decision(119, 6, What::Proposed)])),
        (130, Piece::Outcome(BatchOutcome { id: BatchId(3), time: Nanos(128), outcomes })),
    ]
}

/// The trace of a recording of these pieces.
fn trace(settings: &[(&str, &str)], topology: Topology, pieces: Vec<(u64, Piece)>) -> Trace {
    let folder = tempfile::tempdir().expect("a folder");
    let settings = settings.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
    let mut recorder =
        Recorder::start(folder.path(), About { settings, topology }, patient(), false).expect("it is empty");
    for (time, piece) in pieces {
        assert!(recorder.put(Nanos(time), piece));
    }
    recorder.finish();
    decoded(&Recording::open(folder.path()).expect("it is a recording"))
}

fn decoded(recording: &Recording) -> Trace {
    let mut bytes = Vec::new();
    perfetto(recording, &mut recording.read(), &mut bytes).expect("it can be written");
    Trace::decode(bytes.as_slice()).expect("it is a trace")
}

/// The full names of tracks, by number.
fn tracks(trace: &Trace) -> BTreeMap<u64, String> {
    let described: Vec<&TrackDescriptor> =
        trace.packet.iter().filter_map(|packet| packet.track_descriptor.as_ref()).collect();
    let mut names: BTreeMap<u64, String> = BTreeMap::new();
    for track in described {
        let own = track.name.clone().expect("it has a name");
        let above = track.parent_uuid.map(|parent| names[&parent].clone() + " / ");
        let before = names.insert(track.uuid.expect("a number"), above.unwrap_or_default() + &own);
        assert_eq!(before, None, "a track is described once");
    }
    names
}

/// Time, track and name of instants, or value of counters.
fn events(trace: &Trace, of: i32) -> Vec<(u64, String, String)> {
    let names = tracks(trace);
    let events = trace.packet.iter().filter_map(|packet| {
        let event = packet.track_event.as_ref().filter(|event| event.r#type == Some(of))?;
        let track = names[&event.track_uuid?].rsplit_once("times: ")?.1.split_once(" / ");
        let what = event.name.clone().or(event.counter_value.map(|value| value.to_string()))?;
        Some((packet.timestamp?, track.map_or(String::new(), |(_, rest)| rest.to_owned()), what))
    });
    events.collect()
}

fn config() -> String {
    let scope = Scope { name: "web".to_owned(), pids: vec![7], ..Scope::default() };
    let config = Config { scope: vec![scope], ..Config::default() };
    serde_json::to_string(&config).expect("it can be written")
}

#[test]
fn a_trace_has_nodes_scopes_and_sources() {
    let config = config();
    let clock = r#"{"monotonic_ns":1,"utc":"2026-11-28T00:00:00Z"}"#;
    let settings = [("program", "thermocline 9"), ("clock", clock), ("config", config.as_str())];
    let trace = trace(&settings, topology(), pieces());
    let refused = format!("refused: {}", RefusalReason::ALL[0].name());
    let event = |time, track: &str, what: &str| (time, track.to_owned(), what.to_owned());
    assert_eq!(
        events(&trace, INSTANT),
        [
            event(120, "node 0", "promote 513 pages"),
            event(118, "scope web", &refused),
            event(119, "scope web", "proposed"),
            event(128, "node 0", "ended: 1 of 2 moves"),
        ]
    );
    assert_eq!(
        events(&trace, COUNTER),
        [
            // The step ends with the next one, and a silent source counts none in that.
            event(100, "source hintfault / pieces of evidence a step", "5"),
            event(105, "scope web / in the top tier", "12288"),
            event(110, "source hintfault / pieces of evidence a step", "0"),
            event(110, "node 0 / free memory", "40960"),
            event(110, "node 1 / free memory", "81920"),
        ]
    );
    let annotations: Vec<&DebugAnnotation> = trace
        .packet
        .iter()
        .filter_map(|packet| packet.track_event.as_ref())
        .find(|event| event.name.as_deref() == Some(refused.as_str()))
        .expect("the refusal is there")
        .debug_annotations
        .iter()
        .collect();
    let of = |name: &str| annotations.iter().find(|a| a.name.as_deref() == Some(name)).expect(name);
    assert_eq!(of("address").pointer_value, Some(0x5000));
    assert_eq!((of("pid").uint_value, of("from").uint_value), (Some(7), Some(1)));
    assert_eq!(of("why").string_value.as_deref(), Some(Reason::ShortLatency.name()));
}

/// The clock is CLOCK_MONOTONIC where a machine was recorded. Where it was simulated, or where
/// another tool has recorded by another clock, none is named.
#[test]
fn the_clock_is_named_only_where_it_is_that_of_a_machine() {
    let clock = r#"{"monotonic_ns":1,"utc":"2026-11-28T00:00:00Z"}"#;
    let of = |packet: &TracePacket| packet.timestamp_clock_id;
    let live = trace(&[("clock", clock)], topology(), pieces());
    assert!(live.packet.iter().filter(|p| p.timestamp.is_some()).all(|p| of(p) == Some(MONOTONIC)));
    let snapshot = live.packet[0].clock_snapshot.as_ref().expect("it comes first");
    assert_eq!(snapshot.primary_trace_clock, Some(MONOTONIC));
    assert_eq!(snapshot.clocks.len(), 1);
    assert_eq!((snapshot.clocks[0].clock_id, snapshot.clocks[0].timestamp), (Some(MONOTONIC), Some(100)));
    for settings in [[("clock", "simulated"), ("x", "")], [("clock", clock), ("imported", "perf")]] {
        let trace = trace(&settings, topology(), pieces());
        assert!(trace.packet.iter().all(|p| of(p).is_none() && p.clock_snapshot.is_none()));
    }
}

/// Every decision of a simulated run is in its trace, and every state of a node.
#[test]
fn a_trace_of_a_run_has_all_its_decisions() {
    let folder = tempfile::tempdir().expect("a folder");
    let adaptive = RuleChoice::Rule(RuleName::Adaptive);
    let run = record(&setup(&[]), adaptive, 7, &[], (folder.path(), patient(), false));
    let recording = Recording::open(folder.path()).expect("it is a recording");
    let trace = decoded(&recording);
    let decided = events(&trace, INSTANT).into_iter().filter(|(_, track, _)| track.starts_with("scope"));
    let decided: Vec<u64> = decided.map(|(time, ..)| time).collect();
    assert_eq!(decided, run.decisions.iter().map(|decision| decision.time.0).collect::<Vec<_>>());
    assert!(decided.len() > 1000, "{}", decided.len());
    let mut states = 0;
    let mut reader = recording.read();
    while let Some((_, _, piece)) = reader.next_event() {
        if let Piece::Nodes(nodes) = piece {
            states += nodes.len();
        }
    }
    let values = events(&trace, COUNTER);
    assert!(states > 0);
    assert_eq!(values.iter().filter(|(_, track, _)| track.ends_with("free memory")).count(), states);
    let of_source = |name: &str| {
        let track = format!("source {name} / pieces of evidence a step");
        values
            .iter()
            .filter(|(_, of, _)| *of == track)
            .map(|(_, _, n)| n.parse::<u64>().expect("n"))
            .sum::<u64>()
    };
    let pieces = ["hintfault", "hwsample", "damon", "chmu"].map(of_source);
    assert!(pieces.iter().all(|pieces| *pieces > 0), "{pieces:?}");
}
