//! Whose memory moves: none of excluded processes, whatever property a scope selects by; that of a
//! program started by exec in a scope; and none that has a memory policy.

use thermocline_lab::{Line, ThpMode};

use super::{MIB, Run, number, where_time_is_no_matter};

/// The programs are small: what matters is whose pages move, not how fast.
const FOOTPRINT_MIB: u64 = 24;
/// How many fewer base pages than before a program may have on its node, because of what the kernel
/// and the program itself do.
const LOST_MAX: u64 = 16;

fn only_pages_of_scopes_move(line: Line) {
    let run = Run::new(line, [640, 128, 512], ThpMode::Madvise, 420).env("MIB", FOOTPRINT_MIB);
    let Some(outcome) = run.run(include_str!("whose.sh")) else { return };
    let number = |name| number(&outcome, name);
    println!("refused {}", run.json("last-excluding")["counters"]["refused"]);
    println!("refused {}", run.json("last-including")["counters"]["refused"]);
    assert!(number("nobodys_after") * 2 <= number("nobodys_before"), "the daemon moves pages");
    for lost in ["command_lost", "number_lost", "late_lost", "again_lost", "spread_lost"] {
        assert!(number(lost) <= LOST_MAX, "{lost}: {} pages that were to stay", number(lost));
    }
    // Half of it on 6.12; newer kernels weigh the nodes by their bandwidth.
    let (spread, all) = (number("spread_before"), FOOTPRINT_MIB * MIB / 4096);
    assert!((all / 20..all * 19 / 20).contains(&spread), "{spread} of {all} pages are on the lower tier");
    assert!(
        number("boxed_after") * 2 <= number("boxed_before"),
        "a program in scope is promoted after an exec"
    );
}

#[test]
fn only_pages_of_scopes_move_6_12() {
    only_pages_of_scopes_move(Line::Stable);
}

#[test]
fn only_pages_of_scopes_move_7() {
    where_time_is_no_matter(|| only_pages_of_scopes_move(Line::Newest));
}
