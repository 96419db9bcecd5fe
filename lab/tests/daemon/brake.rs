//! The brake: a scope that waits for memory while we move its pages is moved slower, and not for
//! ever.

use thermocline_lab::{Line, ThpMode};

use super::{Run, number, where_time_is_no_matter, with_settings};

/// hotcold, of which three fifths are hot: at 1 MB/s two minutes of moves.
const FOOTPRINT_MIB: u64 = 200;
/// What may still come when the scope has been stopped, in pages: what was on its way, and what had
/// moved since the line that is compared with. In three seconds without a brake it would be 768.
const ON_THEIR_WAY: u64 = 512;

fn pressure_brakes_and_lets_go(line: Line) {
    let run = Run::new(line, [640, 128, 512], ThpMode::Never, 400).env("MIB", FOOTPRINT_MIB);
    let Some(outcome) = run.run(&with_settings(include_str!("brake.sh"))) else { return };
    let number = |name| number(&outcome, name);
    let last = run.json("last");
    println!("brakes {}\ncounters {}", last["brakes"], last["counters"]);
    assert_eq!(number("daemon_status"), 0);
    assert!(last["counters"]["held"]["braked"].as_u64().unwrap() > 0);
    assert!(number("moved_while_stopped") <= ON_THEIR_WAY);
    // It was free again although tasks still waited: without moves they had waited as much.
    assert!(number("some_bp") > 1000 && number("moved_after") > 256);

    let told = run.text("daemon-errors");
    for what in
        ["scope braked: braked to 1/", "scope braked: stopped by memory pressure", "scope braked: free again"]
    {
        assert!(told.contains(what), "{what:?} is not told: {told}");
    }
    assert_eq!(number("told"), 1, "{}{}", run.text("status-text"), run.text("explained"));
}

#[test]
fn pressure_brakes_and_lets_go_on_6_12() {
    where_time_is_no_matter(|| pressure_brakes_and_lets_go(Line::Stable));
}

#[test]
fn pressure_brakes_and_lets_go_on_the_newest() {
    where_time_is_no_matter(|| pressure_brakes_and_lets_go(Line::Newest));
}
