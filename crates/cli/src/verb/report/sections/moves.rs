//! What moved when.

use thermocline_trace::digest::BINS;

use super::Section;
use crate::recorded::bytes;
use crate::verb::report::facts::Facts;
use crate::verb::report::figures::axis::Time;
use crate::verb::report::figures::flows::{Flows, flows as drawn};
use crate::verb::report::html::{Set, Table};
use crate::verb::report::number::count;

/// Intervals that a row of the table has together.
const TOGETHER: usize = 8;

/// What was promoted, demoted and came back, by interval.
pub fn flows(facts: &Facts) -> Section {
    let mut out = Section::new("flows", "What moved when");
    if !facts.says_moves() {
        out.says("Unknown: the recording was imported, and says nothing of moves.");
        return out;
    }
    let flows = &facts.digest.flows;
    let demoted = facts.demoted();
    let counted = facts.counted.as_ref().ok();
    let came_back = counted.map(|counted| &counted.came_back);
    let time = Time::new(facts.digest.span, facts.untimed.is_none());
    let drawing = Flows {
        promoted: &flows.promoted,
        demoted: &demoted,
        came_back,
        page_bytes: facts.page_bytes(),
        bin_s: facts.seconds().map(|_| facts.digest.span.bin_s()),
    };
    let size = |pages: u64| bytes(pages.saturating_mul(facts.page_bytes()));
    let mut sums = Table::new(&[("", Set::Words), ("pages", Set::Number), ("memory", Set::Number)]);
    let mut add = |name: &str, pages: Option<u64>| match pages {
        Some(pages) => sums.row([name.to_owned(), count(pages), size(pages)]),
        None => sums.row([name.to_owned(), "unknown".to_owned(), "unknown".to_owned()]),
    };
    add("promoted", Some(flows.promoted.sum()));
    add("demoted, page by page", Some(flows.demoted.sum()));
    add("demoted by the kernel's reclaim, on demand", Some(flows.reclaimed.sum()));
    if flows.balanced.sum() > 0 {
        add("moved within the tier", Some(flows.balanced.sum()));
    }
    add("promoted again soon after", counted.map(|counted| counted.counters.promoted_again));
    add("came back: accessed below again soon after", counted.map(|counted| counted.counters.came_back));
    out.draws_beside(drawn(&drawing, time), "moved", &sums);
    if let Err(why) = &facts.counted {
        out.notes(&format!("What came back is unknown: {why}."));
    } else {
        out.notes("What came back is estimated from one page in 16. What the kernel moves by itself is not recorded.");
    }
    let mut table = Table::new(&[
        ("interval", Set::Words),
        ("promoted", Set::Number),
        ("demoted", Set::Number),
        ("came back", Set::Number),
    ]);
    for from in (0..BINS).step_by(TOGETHER) {
        let sum = |counts: &[u64]| size(counts[from..from + TOGETHER].iter().sum());
        table.row([
            time.words(from, from + TOGETHER),
            sum(flows.promoted.counts()),
            sum(demoted.counts()),
            came_back.map_or("unknown".to_owned(), |back| sum(back.counts())),
        ]);
    }
    out.folded("flows-table", "The same in numbers", &table);
    out
}
