//! A moment as the screen reads a daemon: what a recording does not have is unknown.

use std::collections::BTreeMap;

use serde_json::json;
use thermocline_core::admission::Standing;
use thermocline_core::config::Config;
use thermocline_core::label::Label;
use thermocline_core::refusal::RefusalReason;
use thermocline_core::units::{Nanos, ScopeId};
use thermocline_trace::reader::Recording;

use super::engine::Known;
use super::rows::{Counts, Moment};
use crate::snapshot::{Fixed, Named};
use crate::top::reading::{COUNTERS, Figures, Gauge, Origin, Reading, figures};

/// Base pages of a MiB.
const MIB: u64 = 256;

/// What is known of a moment; `start` is the time at which the recording begins.
pub fn reading(recording: &Recording, config: Option<&Config>, moment: &Moment, start: Nanos) -> Reading {
    let imported = recording.imported().is_some();
    let mut out = Reading::of_recording(recording.topology());
    out.version = recording.setting("program").unwrap_or("an unknown program").to_owned();
    out.mode = recording.setting("verb").unwrap_or("import").to_owned();
    out.manager = config.map_or("unknown", |config| config.manager.name.text()).to_owned();
    out.rule = config.map(|config| config.rule.name.text().to_owned());
    out.uptime_ns = moment.at;
    out.nodes = moment.nodes.clone();
    let ours = match &moment.known {
        Some(known) => of_engine(&mut out, known),
        None => {
            out.origin = Origin::Rows;
            out.figures = of_rows(&moment.counts);
            out.scopes = config.map(|config| held(config, recording, moment, start)).unwrap_or_default();
            (!imported).then_some(moment.counts.moved)
        }
    };
    for (way, flow) in out.moved.iter_mut().enumerate() {
        flow[0] = ours.map(|ours| ours[way]);
    }
    out
}

/// What the engine knew. Returns the base pages that it promoted and demoted.
fn of_engine(out: &mut Reading, known: &Known) -> Option<[u64; 2]> {
    let (fixed, counters) = (&known.fixed, &known.counters);
    out.origin = Origin::Replay;
    out.figures = figures(&json!({ COUNTERS: counters }));
    let gauge = |gauge: &thermocline_core::rule::Gauge| Gauge {
        name: gauge.name.to_owned(),
        node: gauge.node,
        value: gauge.value,
    };
    out.gauges = known.gauges.iter().map(gauge).collect();
    out.scopes = known.standings.iter().map(|of| fixed.name(of.scope, *of)).collect();
    out.ledgers = known.ledgers.iter().map(|of| fixed.name(of.scope, of.clone().into())).collect();
    out.brakes = known.brakes.iter().map(|of| fixed.name(of.scope, *of)).collect();
    Some([counters.pgpromote_success, counters.pgdemote + counters.demotion_done])
}

/// What rows say of the engine's counters. Those that they do not say are absent.
fn of_rows(counts: &Counts) -> Figures {
    let mut out = Figures::new();
    for (source, pieces) in counts.evidence.iter() {
        out.insert((COUNTERS, "evidence", Some(source.name().to_owned())), pieces);
    }
    let mut add = |key, count| *out.entry(key).or_default() += count;
    for ((what, reason), count) in &counts.decided {
        match *what {
            "refused" | "held" | "expired" | "failed" => {
                let reason = reason.unwrap_or(RefusalReason::Expired.name()).to_owned();
                add((COUNTERS, what, Some(reason)), *count);
            }
            "proposed" | "issued" | "moved" | "lost" => add((COUNTERS, what, None), *count),
            _ => {}
        }
    }
    out
}

/// The scopes with limits, as the configuration has them, and what was read of their holdings.
fn held(config: &Config, recording: &Recording, moment: &Moment, start: Nanos) -> Vec<Named<Standing>> {
    let fixed = Fixed::new("replay", config, recording.topology());
    let limited = config.scope.iter().enumerate().filter(|(_, scope)| scope.is_limited());
    let limited: BTreeMap<ScopeId, _> =
        limited.map(|(place, scope)| (ScopeId::of_place(place), scope)).collect();
    let mut all: Vec<ScopeId> = limited.keys().chain(moment.holdings.keys()).copied().collect();
    all.sort_unstable();
    all.dedup();
    let standing = |scope: ScopeId| {
        let (limits, held) = (limited.get(&scope), moment.holdings.get(&scope));
        let now = start.plus(moment.at);
        let standing = Standing {
            scope,
            floor_pages: limits.map_or(0, |limits| limits.top_tier_floor_mib * MIB),
            never_slow: limits.is_some_and(|limits| limits.never_slow),
            cap_pages: limits.and_then(|limits| limits.top_tier_cap_mib).map(|mib| mib * MIB),
            share_pages: limits.map_or(0, |limits| limits.top_tier_share_mib * MIB),
            claimed_pages: 0,
            top_tier_pages: held.map(|(_, pages)| *pages),
            age_ms: held.map(|(time, _)| now.since(*time).ms()),
            up_pages: 0,
            down_pages: 0,
            room_pages: None,
            spare_pages: None,
        };
        fixed.name(scope, standing)
    };
    all.into_iter().map(standing).collect()
}
