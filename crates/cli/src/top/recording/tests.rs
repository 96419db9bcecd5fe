//! A recording of many scopes: to jump, and to draw, is fast.

use std::path::Path;
use std::time::Instant;

use thermocline_core::access::Holding;
use thermocline_core::config::{Config, Scope};
use thermocline_core::topology::{Node, Topology};
use thermocline_core::units::{NodeId, ScopeId, TierId};
use thermocline_trace::piece::Piece;
use thermocline_trace::recorder::Recorder;
use thermocline_trace::writer::{About, Limits};

use super::*;

const SCOPES: u16 = 1000;

/// Ten minutes in which every scope's holding is read once a second.
fn made(folder: &Path) {
    let node = |id: u16| Node {
        id: NodeId(id),
        tier: TierId(id as u8),
        cpus: vec![0],
        capacity_pages: 1 << 24,
        read_latency_ns: None,
        read_bandwidth_mbps: None,
        distances: vec![10, 20],
    };
    let scope = |n| Scope { cgroup: Some(format!("/guests/{n}")), top_tier_share_mib: 1, ..Scope::default() };
    let config = Config { scope: (0..SCOPES).map(scope).collect(), ..Config::default() };
    let settings = vec![("config".to_owned(), serde_json::to_string(&config).unwrap())];
    let about = About { settings, topology: Topology::new(vec![node(0), node(1)]).unwrap() };
    let mut recorder = Recorder::start(folder, about, Limits::default(), false).unwrap();
    for s in 0..=600u64 {
        for n in 0..SCOPES {
            let scope = ScopeId(n + 1);
            let holding = Holding { scope, time: Nanos::from_s(s), pages: u64::from(n) + s };
            assert!(recorder.put(Nanos::from_s(s), Piece::Holding(holding)));
        }
    }
    recorder.finish();
}

#[test]
fn to_jump_in_ten_minutes_of_a_thousand_scopes_and_to_draw_is_fast() {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().join("x");
    made(&folder);
    let begin = Instant::now();
    let mut shown = Shown::new(Film::all(Recording::open(&folder).unwrap()), Nanos::from_s(600));
    println!("read in {:.2} s, {} moments", begin.elapsed().as_secs_f64(), shown.film.last() + 1);
    let mut state = State::new(Pane::Scopes);
    shown.show(&mut state);
    let mut best = f64::MAX;
    for turn in [Turn::Begin, Turn::End, Turn::Step(-300), Turn::Step(-1), Turn::Begin] {
        let begin = Instant::now();
        shown.turn(turn, &mut state);
        let drawn = text(&state, (200, 60)).unwrap();
        best = best.min(begin.elapsed().as_secs_f64() * 1e3);
        assert!(drawn.contains("1000 of 1000"), "{drawn}");
    }
    println!("{best:.2} ms");
    assert!(best <= 50.0, "a jump and a redraw take {best:.1} ms");
}
