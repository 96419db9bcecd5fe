//! The text of `thermocline explain`.

use std::fmt::Write;

use serde_json::{Value, json};
use thermocline_core::engine::PageState;
use thermocline_core::journal::Decision;
use thermocline_core::label::Label;
use thermocline_core::payoff::{Judged, Verdict};

use super::{brake_row, scope_row};
use crate::snapshot::Explained;

/// Says why a page did or did not move.
pub fn explained(e: &Explained) -> String {
    let mut out = format!("pid {} address {:#x}", e.page.pid.0, e.page.address());
    if let Some(pfn) = e.pfn {
        let _ = write!(out, ", frame {:#x}", pfn.0);
    }
    let _ = writeln!(out, ": {}", e.summary);
    if let Some(record) = &e.record {
        let gap = record.gap_ms.map_or("long ago".to_owned(), |ms| format!("{ms} ms ago"));
        let _ = writeln!(out, "record: {} accesses that counted, the last {gap}", record.frequency);
    }
    if let PageState::Waiting { estimates, .. } = &e.state {
        for said in estimates {
            let us = said.gap_us;
            let time = if us < 1000 { format!("{us} us") } else { format!("{:.1} ms", us as f64 / 1000.0) };
            let _ = writeln!(out, "{}: accessed once in {time}", said.source.name());
        }
    }
    if let Some(gain) = &e.gain {
        let _ = writeln!(out, "{}", gain_row(gain));
    }
    if let Some(scope) = &e.scope {
        let _ = writeln!(out, "{}", scope_row(scope));
    }
    if let Some(brake) = e.brake.as_ref().filter(|brake| brake.standing.by.is_some()) {
        let _ = writeln!(out, "{}", brake_row(brake));
    }
    out + &decisions(&e.decisions)
}

/// A line per decision, with the time since the first.
pub fn decisions(decisions: &[Decision]) -> String {
    let first = decisions.first().map_or(0, |decision| decision.time.0);
    let line = |decision: &Decision| {
        let at = decision.time.0.saturating_sub(first) as f64 / 1e9;
        format!("{at:>+9.3}s  {}\n", facts(&json!(decision)))
    };
    decisions.iter().map(line).collect()
}

/// The inequality by which a move is worth it, with its figures.
fn gain_row(gain: &Judged) -> String {
    let verdict = match gain.verdict {
        Verdict::Unknown => "which is not known well enough yet",
        Verdict::Worth => "which is worth it",
        Verdict::NotWorth => "which is not worth it",
    };
    format!(
        "pages like it: {:.2} accesses a second, of which {:.2} are the price of room; in {:.0} s, at {:.0} ns an \
         access, a move gains {:.1} us and costs {:.1}, {verdict}",
        gain.rate,
        gain.price,
        gain.stay_s,
        gain.saved_ns,
        gain.gain_ns() / 1e3,
        f64::from(gain.move_ns) / 1e3,
    )
}

/// The fields of a decision other than its time and page, each with its name in JSON.
fn facts(decision: &Value) -> String {
    let facts = decision
        .as_object()
        .into_iter()
        .flatten()
        .filter(|(key, value)| !matches!(key.as_str(), "time" | "page" | "pfn") && !value.is_null());
    facts.map(|(key, value)| format!("{key} {}", plain(value))).collect::<Vec<_>>().join(", ")
}

/// A value without JSON's quotes and brackets.
fn plain(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Array(list) => list.iter().map(plain).collect::<Vec<_>>().join("+"),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use thermocline_core::access::Source;
    use thermocline_core::admission::{Braking, Cause, Standing};
    use thermocline_core::candidate::Reason;
    use thermocline_core::engine::{Remembered, Said};
    use thermocline_core::journal::{Decision, What};
    use thermocline_core::moves::{BatchId, Direction};
    use thermocline_core::units::{Nanos, NodeId, Pfn, Pid, ScopeId, VirtPage};
    use thermocline_core::weigh::Sources;

    use super::*;
    use crate::snapshot::{Named, SCHEMA};

    #[test]
    fn an_explanation_reads_as_text() {
        let page = VirtPage::of_address(Pid(7), 0x10000);
        let decision = Decision {
            time: Nanos::from_s(1),
            what: What::Proposed,
            page,
            pfn: None,
            pages: 1,
            direction: Direction::Promote,
            from: NodeId(1),
            to: None,
            score: 900,
            why: Reason::ShortLatency,
            sources: Sources::default().and(Source::HintFault).and(Source::Damon),
        };
        let moved = Decision {
            time: Nanos::from_ms(1500),
            what: What::Moved { batch: BatchId(4) },
            to: Some(NodeId(0)),
            ..decision
        };
        let standing = Standing {
            scope: ScopeId(1),
            floor_pages: 0,
            never_slow: false,
            cap_pages: Some(512),
            share_pages: 0,
            claimed_pages: 0,
            top_tier_pages: Some(512),
            age_ms: Some(5),
            up_pages: 0,
            down_pages: 0,
            room_pages: Some(0),
            spare_pages: None,
        };
        let braking = Braking {
            scope: ScopeId(1),
            rate_bp: 5000,
            by: Some(Cause::PingPong),
            for_ms: Some(4000),
            some_bp: None,
            some_baseline_bp: None,
            full_bp: None,
            full_baseline_bp: None,
            again_bp: Some(5100),
        };
        let said = Said { source: Source::HintFault, gap_us: 12_340, expires: Nanos(5) };
        let text = explained(&Explained {
            schema: SCHEMA,
            page,
            head: page,
            pfn: Some(Pfn(255)),
            record: Some(Remembered { frequency: 3, gap_ms: Some(20), node: Some(NodeId(0)), ready: true }),
            state: PageState::Waiting {
                score: 900,
                estimates: vec![said],
                since: Nanos(1),
                expires: Nanos(5),
                tries: 0,
                held: None,
            },
            scope: Some(Named { name: "db".to_owned(), standing }),
            brake: Some(Named { name: "db".to_owned(), standing: braking }),
            gain: Some(Judged {
                verdict: Verdict::NotWorth,
                rate: 3.0,
                price: 2.0,
                stay_s: 60.0,
                saved_ns: 150.0,
                move_ns: 10_000,
            }),
            decisions: vec![decision, moved],
            summary: "moved; nothing since".to_owned(),
        });
        assert!(text.starts_with("pid 7 address 0x10000, frame 0xff: moved; nothing since\n"), "{text}");
        assert!(text.contains("record: 3 accesses that counted, the last 20 ms ago"), "{text}");
        assert!(
            text.contains("scope db: 2.0 MiB of the top tier 5 ms ago; cap 2 MiB: nothing is promoted"),
            "{text}"
        );
        assert!(text.contains("scope db: braked to 1/2 of its rate by ping-pong, since 4 s ago"), "{text}");
        assert!(text.contains("a move gains 9.0 us and costs 10.0, which is not worth it\n"), "{text}");
        assert!(text.contains("hint-fault: accessed once in 12.3 ms\n"), "{text}");
        assert!(text.contains("sources hint-fault+damon"), "{text}");
        assert!(text.contains("+0.500s  batch 4, "), "{text}");
    }
}
