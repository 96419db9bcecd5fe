//! What kept pages from moving, what moved and why, and the last decisions.

use thermocline_core::counters::Counters;
use thermocline_core::label::Label;
use thermocline_core::refusal::RefusalReason;
use thermocline_core::units::Nanos;
use thermocline_trace::digest::LAST_KEPT;
use thermocline_trace::rows::columns;

use super::Section;
use crate::recorded::bytes;
use crate::verb::report::facts::{Facts, Refusal};
use crate::verb::report::figures::reasons::{BARS_MAX, reasons as drawn};
use crate::verb::report::html::{Set, Table};
use crate::verb::report::number::count;

/// Refusals, holds, expiries and failures by reason.
pub fn refusals(facts: &Facts) -> Section {
    let mut out = Section::new("refusals", "What held pages back");
    if !facts.says_moves() {
        out.says("Unknown: the recording was imported, and says nothing of decisions.");
        return out;
    }
    let refusals = facts.refusals();
    if let Some((reason, most, all)) = facts.held_back() {
        out.says(&format!(
            "Most candidates that were let go had the reason `{}` ({} of {}): {}",
            reason.name(),
            count(most),
            count(all),
            reason.meaning()
        ));
    }
    match &facts.counted {
        Ok(counted) => out.notes(&format!(
            "As the engine counted them; {} candidates waited at the end. `held` counts looks: the same candidate \
             is held at every tick at which its turn comes.",
            count(counted.waiting)
        )),
        Err(why) => out.notes(&format!(
            "What the engine counted is unknown: {why}. Shown are recorded decisions. The engine decided at least \
             as often: a refusal or a hold that repeats itself is recorded once."
        )),
    }
    if refusals.is_empty() {
        out.says("Nothing was refused, held, expired or failed.");
        return out;
    }
    let let_go: Vec<(String, u64)> = refusals
        .iter()
        .filter(|refusal| refusal.what != "held")
        .take(BARS_MAX)
        .map(|refusal| (format!("{}: {}", refusal.what, refusal.reason), refusal.count))
        .collect();
    if !let_go.is_empty() {
        out.draws(vec![drawn(
            "Candidates and moves that came to nothing",
            "candidates; failed: moves",
            &let_go,
        )]);
    }
    let mut table = Table::new(&[
        ("what", Set::Words),
        ("reason", Set::Words),
        ("count", Set::Number),
        ("meaning", Set::Words),
    ]);
    for refusal in &refusals {
        table.row([
            refusal.what.to_owned(),
            refusal.reason.to_owned(),
            count(refusal.count),
            meaning(refusal),
        ]);
    }
    out.table("refusals-table", &table);
    out
}

fn meaning(refusal: &Refusal) -> String {
    let of_counter = || {
        let all = Counters::statistics();
        let found = all.into_iter().find(|statistic| statistic.name == refusal.what);
        found.map(|statistic| statistic.description).unwrap_or_default()
    };
    match refusal.what {
        "failed" => of_counter(),
        _ => RefusalReason::named(refusal.reason).map_or_else(of_counter, RefusalReason::meaning),
    }
}

/// Why pages moved, and the last decisions.
pub fn reasons(facts: &Facts) -> Section {
    let mut out = Section::new("reasons", "What moved, and why");
    let decided = &facts.digest.decided;
    if !facts.says_moves() || decided.all == 0 {
        out.says("Unknown: no decision is recorded.");
        return out;
    }
    let mut table = Table::new(&[
        ("direction", Set::Words),
        ("why", Set::Words),
        ("candidates", Set::Number),
        ("moves", Set::Number),
        ("memory moved", Set::Number),
    ]);
    let mut why: Vec<_> = decided.why.iter().collect();
    why.sort_by_key(|(_, why)| std::cmp::Reverse((why.pages, why.proposed)));
    for ((direction, reason), why) in why {
        table.row([
            direction.name().to_owned(),
            reason.name().to_owned(),
            count(why.proposed),
            count(why.moved),
            bytes(why.pages.saturating_mul(facts.page_bytes())),
        ]);
    }
    out.table("why", &table);
    if facts.digest.flows.reclaimed.sum() > 0 {
        out.notes(
            "Pages that the kernel's reclaim demotes on demand are not decided on one by one: they had not been \
             accessed for as long as the demand says.",
        );
    }
    out.says(&format!("The last decisions, at most {LAST_KEPT} of each kind, oldest first:"));
    let mut table = Table::new(&[
        ("time", Set::Number),
        ("what", Set::Words),
        ("reason", Set::Words),
        ("process", Set::Number),
        ("address", Set::Words),
        ("size", Set::Number),
        ("from", Set::Number),
        ("to", Set::Number),
        ("proposed because", Set::Words),
    ]);
    for decision in decided.last() {
        let (what, reason, _) = columns(decision.what);
        table.cells(vec![
            moment(facts, decision.time),
            format!("{} {what}", decision.direction.name()),
            reason.unwrap_or("").to_owned(),
            decision.page.pid.0.to_string(),
            format!("`0x{:x}`", decision.page.address()),
            bytes(u64::from(decision.pages).saturating_mul(facts.page_bytes())),
            decision.from.0.to_string(),
            decision.to.map_or(String::new(), |to| to.0.to_string()),
            decision.why.name().to_owned(),
        ]);
    }
    out.table("last", &table);
    out.notes("A page is explained further by `thermocline explain` while the daemon runs.");
    out
}

/// A time since the beginning.
fn moment(facts: &Facts, time: Nanos) -> String {
    match facts.seconds() {
        Some(_) => format!("{:.3} s", time.since(facts.digest.span.start).0 as f64 / 1e9),
        None => "unknown".to_owned(),
    }
}
