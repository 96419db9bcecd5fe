//! What moving gained and cost, as far as the recording tells.

use thermocline_core::access::Source;
use thermocline_core::units::Nanos;

use super::Section;
use crate::recorded::bytes;
use crate::verb::report::facts::Facts;
use crate::verb::report::html::{Set, Table};
use crate::verb::report::number::{count, short, span};

/// What was gained, and what it cost.
pub fn cost(facts: &Facts) -> Section {
    let mut out = Section::new("cost", "What it gained and cost");
    let digest = &facts.digest;
    let mut table = Table::new(&[("", Set::Words), ("", Set::Number), ("", Set::Words)]);
    let mut add = |name: &str, value: Option<String>, note: &str| {
        table.row([name.to_owned(), value.unwrap_or("unknown".to_owned()), note.to_owned()]);
    };
    let size = |pages: u64| bytes(pages.saturating_mul(facts.page_bytes()));
    match facts.served() {
        Ok((share, _, _)) => {
            add("accesses that DRAM served", Some(format!("{:.1} %", share * 100.0)), "of samples")
        }
        Err(why) => add("accesses that DRAM served", None, &why),
    }
    add("time that programs gained", None, "a recording does not say how fast programs were");
    let counted = facts.counted.as_ref().ok().map(|counted| &counted.counters);
    if facts.says_moves() {
        add("moves that put their page on the target", Some(count(digest.decided.count("moved"))), "");
        let failed = digest.decided.count("failed");
        add("moves that did not", Some(count(failed)), "by outcome above, as `failed`");
        let again = counted.map(|counters| size(counters.promoted_again));
        add("promoted more than once", again, "demoted too early, or moved for nothing");
        let back = counted.map(|counters| size(counters.came_back));
        add("came back", back, "was not cold when it was demoted; estimated from one page in 16");
    }
    let pieces = |source| digest.given(source).map_or(0, |given| given.pieces.sum());
    let rate = |n: u64| match facts.seconds().filter(|seconds| *seconds > 0.0) {
        Some(seconds) => format!("{} a second", short(n as f64 / seconds)),
        None => String::new(),
    };
    let faults = pieces(Source::HintFault);
    add("hint faults that programs took", Some(count(faults)), &rate(faults));
    let samples = pieces(Source::HwSample);
    add("hardware samples", Some(count(samples)), &rate(samples));
    let cpu = digest.demand_cpu.map(|cpu| span(seconds(cpu)));
    let of_demands = match cpu {
        Some(_) => "of the machine's threads that demote",
        None => "no demand to demote has ended",
    };
    add("CPU time of demotion on demand", cpu, of_demands);
    add("CPU time of the daemon", None, "it is not recorded; `status` and the metrics have it");
    let programs = digest.programs.map(|[first, last]| span(seconds(last.since(first))));
    let of_programs = if programs.is_some() { "all programs of the machine" } else { "it is not recorded" };
    add("CPU time of programs", programs, of_programs);
    for (scope, waited) in &digest.pressure {
        let us = waited.some_us[1].saturating_sub(waited.some_us[0]);
        let over = waited.times[1].since(waited.times[0]);
        let share = match over.0 {
            0 => String::new(),
            ns => format!("{} % of the time", short(us as f64 * 1e5 / ns as f64)),
        };
        let name = format!("some task of scope {} waited for memory", facts.scope(*scope));
        add(&name, Some(span(us as f64 / 1e6)), &share);
    }
    out.table("cost-table", &table);
    out
}

fn seconds(span: Nanos) -> f64 {
    span.0 as f64 / 1e9
}
