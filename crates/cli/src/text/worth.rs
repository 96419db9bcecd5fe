//! The text of `thermocline explain` without an address.

use std::fmt::Write;

use thermocline_core::engine::Worth;
use thermocline_core::label::Label;
use thermocline_core::moves::Direction;
use thermocline_core::refusal::RefusalReason;

/// Names the pages of a process that are worth asking about, and says why.
pub fn worth(pid: u32, found: &Worth) -> String {
    if *found == Worth::default() {
        return format!(
            "pid {pid}: no page of it was proposed, as far as is remembered: it is out of scope, its hot pages are in \
             the top tier already, or no source has seen it; give an address to see what is known of a page\n"
        );
    }
    let mut out = format!(
        "pid {pid}: {} candidates wait, {} decisions on its pages are remembered\n",
        found.waiting, found.decisions
    );
    let because = |reason: RefusalReason| format!("{}: {}", reason.name(), reason.meaning());
    part(
        &mut out,
        "hottest left below",
        found.left_below.iter().map(|l| {
            let held = l.held.map_or("its turn has not come".to_owned(), because);
            let words = format!("on node {}, accessed once in {}; {held}", l.from.0, span(l.gap_us));
            (l.page.vpn, words)
        }),
    );
    part(
        &mut out,
        "moved last",
        found.moved.iter().map(|m| {
            let did = match m.direction {
                Direction::Promote => "promoted",
                Direction::Demote => "demoted",
                Direction::Balance => "moved within its tier",
            };
            let to = m.to.map(|node| format!(" to node {}", node.0)).unwrap_or_default();
            (m.page.vpn, format!("{did}{to} {} ago", span(m.ms_ago.saturating_mul(1000))))
        }),
    );
    part(
        &mut out,
        "refused most often",
        found.refused.iter().map(|r| {
            let why = r.reason.map_or("it did not move, or its evidence grew too old".to_owned(), because);
            let ago = span(r.ms_ago.saturating_mul(1000));
            (r.page.vpn, format!("{} times, last {ago} ago; {why}", r.times))
        }),
    );
    let page = found.left_below.first().map(|l| l.page).or(found.moved.first().map(|m| m.page));
    if let Some(page) = page.or(found.refused.first().map(|r| r.page)) {
        let _ =
            writeln!(out, "`thermocline explain {pid} {:#x}` says all that is known of one", page.address());
    }
    out
}

fn part(out: &mut String, heading: &str, pages: impl Iterator<Item = (u64, String)>) {
    for (i, (vpn, words)) in pages.enumerate() {
        if i == 0 {
            let _ = writeln!(out, "{heading}");
        }
        let _ = writeln!(out, "  {:#x}  {words}", vpn << 12);
    }
}

/// A time of so many microseconds.
fn span(us: u64) -> String {
    match us {
        0..1000 => format!("{us} us"),
        1000..1_000_000 => format!("{:.1} ms", us as f64 / 1e3),
        _ => format!("{:.1} s", us as f64 / 1e6),
    }
}

#[cfg(test)]
mod tests {
    use thermocline_core::engine::{LeftBelow, MovedPage, RefusedPage};
    use thermocline_core::units::{NodeId, Pid, VirtPage};

    use super::*;

    #[test]
    fn pages_are_named_with_what_they_are_chosen_for() {
        let page = |vpn| VirtPage { pid: Pid(7), vpn };
        let found = Worth {
            left_below: vec![LeftBelow {
                page: page(0x10),
                from: NodeId(2),
                score: 900,
                gap_us: 120,
                held: Some(RefusalReason::RateLimited),
            }],
            moved: vec![MovedPage {
                page: page(0x20),
                direction: Direction::Promote,
                to: Some(NodeId(0)),
                ms_ago: 3200,
            }],
            refused: vec![RefusedPage { page: page(0x30), times: 12, reason: None, ms_ago: 500 }],
            waiting: 3,
            decisions: 40,
        };
        let text = worth(7, &found);
        for line in [
            "pid 7: 3 candidates wait, 40 decisions on its pages are remembered",
            "  0x20000  promoted to node 0 3.2 s ago",
            "  0x30000  12 times, last 500.0 ms ago; it did not move, or its evidence grew too old",
            "`thermocline explain 7 0x10000` says all that is known of one",
        ] {
            assert!(text.lines().any(|found| found == line), "{line}: {text}");
        }
        assert!(text.contains("  0x10000  on node 2, accessed once in 120 us; rate_limited: "), "{text}");
        assert!(worth(7, &Worth::default()).contains("no page of it was proposed"));
    }
}
