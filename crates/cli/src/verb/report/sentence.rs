//! The answer: what happened, in one sentence.

use thermocline_core::counters::Counters;
use thermocline_core::label::Label;

use super::facts::Facts;
use super::number::{count, span};
use crate::recorded::bytes;

/// What share of accesses DRAM served, how much moved, and what held it back.
pub fn answer(facts: &Facts) -> String {
    let when = match facts.seconds() {
        Some(seconds) if facts.reach.is_part => format!("In the last {}", span(seconds)),
        Some(seconds) => format!("In {}", span(seconds)),
        None => "In this recording, which has no times".to_owned(),
    };
    format!("{when}, {}; {}; {}.", served(facts), moved(facts), held(facts))
}

fn served(facts: &Facts) -> String {
    match facts.served() {
        Ok((share, error, samples)) => format!(
            "DRAM served {:.1} +- {:.1} % of the accesses to memory, by {} samples",
            share * 100.0,
            error * 100.0,
            count(samples)
        ),
        Err(why) => format!("what share of the accesses DRAM served is unknown, because {why}"),
    }
}

fn moved(facts: &Facts) -> String {
    if !facts.says_moves() {
        return "what moved is not recorded".to_owned();
    }
    let flows = &facts.digest.flows;
    let size = |pages: u64| bytes(pages.saturating_mul(facts.page_bytes()));
    let (up, down, level) = (flows.promoted.sum(), facts.demoted().sum(), flows.balanced.sum());
    if up + down + level == 0 {
        return "nothing moved".to_owned();
    }
    let balanced = if level > 0 { format!(", {} moved within its tier", size(level)) } else { String::new() };
    format!("{} was promoted and {} demoted{balanced}", size(up), size(down))
}

fn held(facts: &Facts) -> String {
    if !facts.says_moves() {
        return "what held memory back is not recorded".to_owned();
    }
    if facts.digest.decided.all == 0 {
        return match &facts.counted {
            Ok(counted) if counted.counters.proposed == 0 => no_candidate(&counted.counters),
            Ok(_) => "no decision was recorded".to_owned(),
            Err(_) => "what held memory back is unknown".to_owned(),
        };
    }
    let Some((reason, most, all)) = facts.held_back() else {
        return "no page that stood out was held back for good".to_owned();
    };
    let by = match &facts.counted {
        Ok(_) => "candidates that were let go",
        Err(_) => "recorded decisions to let a candidate go",
    };
    format!("`{}` held back most, {} of {} {by}", reason.name(), count(most), count(all))
}

fn no_candidate(counters: &Counters) -> String {
    match counters.evidence.sum() + counters.region_pages {
        0 => "there was no evidence, so that no page stood out".to_owned(),
        pieces => format!("of {} pieces of evidence none made a page stand out", count(pieces)),
    }
}
