//! Current figures, declared once like the counters.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::counters::{Counters, Sample, Statistic};
use crate::engine::Engine;
use crate::label::Label;
use crate::payoff::Payoff;
use crate::refusal::RefusalReason;
use crate::rule::Gauge;
use crate::statistics::{Kind, metric_name};

macro_rules! gauges {
    ($( $(#[doc = $doc:literal])+ $name:ident, $unit:literal, |$engine:ident| $value:expr; )*) => {
        impl Engine {
            /// The description of each of the engine's own gauges; the rule's gauges have
            /// descriptive names.
            pub fn gauge_statistics() -> Vec<Statistic> {
                vec![ $( Statistic {
                    name: stringify!($name),
                    metric: metric_name("", stringify!($name), $unit, Kind::Gauge),
                    unit: $unit,
                    description: [ $( $doc ),+ ].map(str::trim).join(" "),
                    label: None,
                    kind: Kind::Gauge,
                    trouble: false,
                } ),* ]
            }

            fn own_gauges(&self) -> Vec<Gauge> {
                vec![ $( Gauge {
                    name: stringify!($name),
                    node: None,
                    value: { let $engine = self; $value as u64 },
                } ),* ]
            }
        }
    };
}

gauges! {
    /// Candidates that wait.
    queue_length, "candidates", |e| e.queue.len();
    /// Of these, candidates that wait for their next try.
    queue_parked, "candidates", |e| e.queue.parked();
    /// Memory of the queue.
    queue_bytes, "bytes", |e| e.queue.bytes();
    /// Batches whose outcome has not come yet.
    batches_in_flight, "batches", |e| e.admission.batches_in_flight();
    /// Moves whose outcome has not come yet.
    moves_in_flight, "moves", |e| e.admission.moves_in_flight();
    /// Base pages of demands to demote that are under way.
    demotion_pending, "pages", |e| e.demotion.pending_pages();
    /// How long a page must not have been accessed to be demoted, now.
    demotion_idle_ms, "ms", |e| e.demotion.idle().ms();
    /// Sections of 128 MiB that have page records.
    record_sections, "sections", |e| e.table.sections();
    /// Memory of the page records.
    record_bytes, "bytes", |e| e.table.memory_bytes();
    /// Accesses that found no room for a record.
    record_unrecorded, "accesses", |e| e.table.unrecorded();
    /// Pages that stay on lower tiers to show what promoting others like them gains.
    held_out, "pages", |e| e.payoff.as_ref().map_or(0, Payoff::held_out);
    /// What may still be spent on hint faults before they slow down.
    evidence_budget_ms, "ms", |e| e.payoff.as_ref().map_or(0, |payoff| payoff.left()[0].ms());
    /// What may still be spent on promotions of which it is not known yet what they gain, and on
    /// demotion for them.
    trial_budget_ms, "ms", |e| e.payoff.as_ref().map_or(0, |payoff| payoff.left()[1].ms());
    /// Pages in the log of recent moves.
    recent_length, "entries", |e| e.admission.recent_len();
    /// Memory of the log of recent moves.
    recent_bytes, "bytes", |e| e.admission.recent_bytes();
    /// Decisions kept in the journal.
    journal_length, "decisions", |e| e.journal.len();
    /// Memory of the journal.
    journal_bytes, "bytes", |e| e.journal.bytes();
}

/// Everything that status, metrics and the dashboard show of an engine.
#[derive(Clone, Debug, Serialize)]
pub struct Status {
    /// Name of the rule.
    pub rule: &'static str,
    /// The counters since the start.
    pub counters: Counters,
    /// The engine's figures, those of its nodes, then the rule's.
    pub gauges: Vec<Gauge>,
    /// Candidates that wait now, by what holds their lane; `free` are held by nothing.
    pub waiting: Vec<Sample>,
}

impl Engine {
    /// Current figures: the engine's, the base pages in flight towards each node, the rule's.
    pub fn gauges(&self) -> Vec<Gauge> {
        let mut out = self.own_gauges();
        out.extend(self.topology.nodes.iter().map(|n| Gauge {
            name: "pages_in_flight",
            node: Some(n.id),
            value: self.admission.pages_towards(n.id),
        }));
        out.extend(self.rule.gauges());
        out
    }

    /// Candidates that wait now, by what holds them; `None`: nothing yet.
    pub fn waiting(&self) -> BTreeMap<Option<RefusalReason>, u64> {
        self.queue.waiting()
    }

    /// Counters, gauges and waiting candidates.
    pub fn status(&self) -> Status {
        let waiting = self.waiting().into_iter().map(|(held, value)| Sample {
            name: "waiting",
            label: Some(held.map_or("free", Label::name)),
            value,
        });
        Status {
            rule: self.rule.name(),
            counters: self.counters.clone(),
            gauges: self.gauges(),
            waiting: waiting.collect(),
        }
    }
}
