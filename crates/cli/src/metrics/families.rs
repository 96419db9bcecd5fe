//! Turns a snapshot into families of metrics. Statistics are declared with their metric names;
//! everything else is declared here.

use std::collections::BTreeMap;
use std::time::Duration;

use thermocline_core::admission::{Braking, Standing};
use thermocline_core::counters::Counters;
use thermocline_core::engine::{Engine, ScopeLedger};
use thermocline_core::label::Label;
use thermocline_core::statistics::{Declared, Kind, Sample, Statistic, divisor, metric_name};
use thermocline_core::topology::{NodeState, Topology};
use thermocline_core::units::NodeId;
use thermocline_linux::finding;

use crate::snapshot::{Deciding, Named, Snapshot};

/// Maximum number of scopes with their own labels. The figures of further ones are added up as
/// `other`.
const SCOPES_MAX: usize = 64;
/// Bytes of a base page.
const PAGE_BYTES: f64 = 4096.0;

/// Labels and a value.
type Labelled = (Vec<(&'static str, String)>, f64);

/// A metric with all its label values.
#[derive(Clone, Debug, PartialEq)]
pub struct Family {
    /// Its name; that of a counter ends in `_total`.
    pub name: String,
    /// The help text.
    pub help: String,
    /// Whether it is a counter or a gauge.
    pub kind: Kind,
    /// The values with their labels.
    pub values: Vec<Labelled>,
}

impl Family {
    fn new(name: &str, help: &str, kind: Kind, values: Vec<Labelled>) -> Family {
        Family { name: name.to_owned(), help: help.to_owned(), kind, values }
    }

    fn gauge(name: &str, help: &str, values: Vec<Labelled>) -> Family {
        Family::new(name, help, Kind::Gauge, values)
    }

    fn counter(name: &str, help: &str, values: Vec<Labelled>) -> Family {
        Family::new(name, help, Kind::Counter, values)
    }
}

/// All figures of the daemon and its machine.
pub fn families(snapshot: &Snapshot) -> Vec<Family> {
    let mut out = daemon(snapshot);
    out.extend(nodes(&snapshot.nodes, &snapshot.fixed.topology, &snapshot.kswapd.given_up));
    out.extend(moved(snapshot));
    out.extend(declared(&snapshot.settings));
    out.extend(snapshot.recording.iter().flat_map(declared));
    if let Some(engine) = &snapshot.engine {
        out.extend(decided(engine));
        out.extend(scopes(engine));
    }
    out.retain(|family| !family.values.is_empty());
    out
}

/// For how long the daemon's loop has not run, if that is too long.
pub fn loop_late(late: Option<Duration>) -> Family {
    let help = "Time for which the daemon's loop has not turned; 0 where it does.";
    Family::gauge("thermocline_loop_late_seconds", help, one(late.unwrap_or_default().as_secs_f64()))
}

fn one(value: f64) -> Vec<Labelled> {
    vec![(Vec::new(), value)]
}

/// A value with one label.
fn by(label: &'static str, name: impl ToString, value: f64) -> Labelled {
    (vec![(label, name.to_string())], value)
}

fn daemon(snapshot: &Snapshot) -> Vec<Family> {
    let fixed = &snapshot.fixed;
    let labels = vec![
        ("version", fixed.version.to_owned()),
        ("mode", fixed.mode.to_owned()),
        ("manager", fixed.manager.text().to_owned()),
        ("rule", fixed.rule.map_or("", |rule| rule.text()).to_owned()),
    ];
    let trouble = snapshot.trouble_reason.map(|reason| by("reason", reason, 1.0));
    vec![
        Family::gauge("thermocline_info", "The daemon, whose value is always 1.", vec![(labels, 1.0)]),
        Family::gauge(
            "thermocline_uptime_seconds",
            "Time since the manager began.",
            one(snapshot.uptime_ns.0 as f64 / 1e9),
        ),
        Family::counter(
            "thermocline_cpu_seconds_total",
            "CPU time of the daemon, all threads.",
            one(snapshot.cpu_time_ns.0 as f64 / 1e9),
        ),
        Family::gauge(
            "thermocline_stuck",
            "1 where the last minute's work came to nothing, by the reason.",
            trouble.into_iter().collect(),
        ),
        findings(snapshot),
        Family::counter(
            "thermocline_calls_given_up_total",
            "Calls given up because a process kept them waiting.",
            one(snapshot.calls_given_up as f64),
        ),
        Family::gauge(
            "thermocline_scopes_without_cgroup",
            "Scopes whose cgroup is not there.",
            one(snapshot.no_cgroup.len() as f64),
        ),
    ]
}

/// Each kind that may come and go has a value, so that an alert can tell 0 from a daemon that does
/// not know the kind.
fn findings(snapshot: &Snapshot) -> Family {
    let value = |kind: finding::Kind| {
        let mut open = snapshot.findings.iter().map(|open| &open.finding).filter(|f| f.id == kind);
        // The worst comes first.
        let first = open.next();
        let severity = first.map_or(kind.severity(), |finding| finding.severity);
        let labels = vec![("finding", kind.name().to_owned()), ("severity", severity.name().to_owned())];
        (labels, f64::from(u8::from(first.is_some())))
    };
    Family::gauge(
        "thermocline_finding",
        "1 where a finding of this name is open; `thermocline status` has its cause and remedy.",
        finding::Kind::while_running().map(value).collect(),
    )
}

fn nodes(states: &[NodeState], topology: &Topology, given_up: &[NodeId]) -> Vec<Family> {
    let values = |of: &dyn Fn(&NodeState) -> u64| -> Vec<Labelled> {
        let labels = |state: &NodeState| {
            let tier = topology.nodes.iter().find(|node| node.id == state.node);
            let tier = tier.map_or("unknown".to_owned(), |node| node.tier.0.to_string());
            vec![("node", state.node.0.to_string()), ("tier", tier)]
        };
        states.iter().map(|state| (labels(state), of(state) as f64 * PAGE_BYTES)).collect()
    };
    let gave_up = |state: &NodeState| f64::from(u8::from(given_up.contains(&state.node)));
    vec![
        Family::gauge(
            "thermocline_node_memory_bytes",
            "Memory that the kernel manages.",
            values(&|state| state.managed_pages),
        ),
        Family::gauge("thermocline_node_free_bytes", "Free memory.", values(&|state| state.free_pages)),
        Family::gauge(
            "thermocline_node_high_watermark_bytes",
            "Free memory below which kswapd does not stop; promotions leave it free.",
            values(&|state| state.watermarks.high_pages),
        ),
        Family::gauge(
            "thermocline_kswapd_gave_up",
            "1 where kswapd has given up on a node of the top tier.",
            states.iter().map(|state| by("node", state.node.0, gave_up(state))).collect(),
        ),
    ]
}

fn moved(snapshot: &Snapshot) -> Vec<Family> {
    let mut pages = Vec::new();
    for (direction, moved) in [("promoted", snapshot.moved.promoted), ("demoted", snapshot.moved.demoted)] {
        let movers = [("thermocline", moved.thermocline), ("kernel", moved.kernel), ("damon", moved.damon)];
        pages.extend(movers.map(|(by, value)| {
            (vec![("direction", direction.to_owned()), ("by", by.to_owned())], value as f64)
        }));
    }
    let kernel = &snapshot.kernel_moves;
    vec![
        Family::counter("thermocline_moved_pages_total", "Base pages moved between tiers, by whom.", pages),
        Family::counter(
            "thermocline_kernel_direct_demoted_pages_total",
            "Base pages demoted by programs that had to wait for it.",
            one(kernel.pgdemote_direct as f64),
        ),
        Family::counter(
            "thermocline_kernel_allocation_stalls_total",
            "Times that a program had to reclaim before it got memory.",
            one(kernel.allocstall as f64),
        ),
    ]
}

/// Values of statistics, under their declared names.
fn declared<D: Declared>(figures: &D) -> Vec<Family> {
    of_samples(&D::statistics(), &figures.samples())
}

fn of_samples(statistics: &[Statistic], samples: &[Sample]) -> Vec<Family> {
    let family = |statistic: &Statistic| {
        let values = samples.iter().filter(|sample| sample.name == statistic.name).map(|sample| {
            let labels = statistic.label.zip(sample.label).map(|(name, value)| (name, value.to_owned()));
            (labels.into_iter().collect(), scaled(sample.value, statistic.unit))
        });
        Family {
            name: statistic.metric.clone(),
            help: statistic.description.clone(),
            kind: statistic.kind,
            values: values.collect(),
        }
    };
    statistics.iter().map(family).collect()
}

/// Converts a value to the unit of its metric.
fn scaled(value: u64, unit: &str) -> f64 {
    value as f64 / divisor(unit) as f64
}

/// The counters of engine, sources, mover and demoter.
fn decided(engine: &Deciding) -> Vec<Family> {
    let mut out = of_samples(&Counters::statistics(), &engine.counters.samples());
    for (row, counted) in &engine.counted {
        let lists = (row.statistics)();
        let of_source = lists.iter().zip(&counted.samples);
        out.extend(of_source.flat_map(|((_, statistics), samples)| of_samples(statistics, samples)));
    }
    out.extend(engine.reverse.iter().flat_map(declared));
    out.extend(engine.mover.iter().flat_map(declared));
    out.extend(engine.demoter.iter().flat_map(declared));
    out.extend(gauges(engine));
    let overhead = &engine.overhead;
    let costs = [
        ("fault", overhead.fault_ns),
        ("sample", overhead.sample_ns),
        ("moved_page", overhead.moved_page_ns),
    ];
    let costs = costs.into_iter().filter_map(|(of, ns)| Some(by("of", of, ns? as f64 / 1e9)));
    out.push(Family::gauge(
        "thermocline_cost_seconds",
        "CPU time that a hint fault, a sample and a moved page have cost on average.",
        costs.collect(),
    ));
    out.push(Family::gauge(
        "thermocline_free_space_promotion",
        "1 for a node to which the kernel promotes every page at its first fault.",
        engine.free_space_promotion.iter().map(|node| by("node", node.0, 1.0)).collect(),
    ));
    out
}

/// Gauges of the engine, which are declared, and of its rule, which have only names.
fn gauges(engine: &Deciding) -> Vec<Family> {
    let own = Engine::gauge_statistics();
    let mut out: BTreeMap<&str, Family> = BTreeMap::new();
    for gauge in &engine.gauges {
        let statistic = own.iter().find(|statistic| statistic.name == gauge.name);
        let unit = match statistic {
            Some(statistic) => statistic.unit,
            None => ["ns", "us", "ms"]
                .into_iter()
                .find(|unit| gauge.name.ends_with(&format!("_{unit}")))
                .unwrap_or(""),
        };
        let help = match (statistic, gauge.name) {
            (Some(statistic), _) => statistic.description.clone(),
            (None, "pages_in_flight") => "Base pages under way to a node.".to_owned(),
            (None, name) => format!("What the rule keeps as {name}."),
        };
        let labels = gauge.node.map(|node| ("node", node.0.to_string())).into_iter().collect();
        let name = metric_name("", gauge.name, unit, Kind::Gauge);
        let family = out.entry(gauge.name).or_insert_with(|| Family {
            name,
            help,
            kind: Kind::Gauge,
            values: Vec::new(),
        });
        family.values.push((labels, scaled(gauge.value, unit)));
    }
    out.into_values().collect()
}

/// Limits, holdings and brakes of the scopes.
fn scopes(engine: &Deciding) -> Vec<Family> {
    let held = |of: fn(&Standing) -> Option<u64>| {
        by_scope(&engine.scopes, |standing| of(standing).map(|pages| pages as f64 * PAGE_BYTES))
    };
    let rate = |braking: &Braking| Some(braking.rate_bp as f64 / 1e4);
    // Adding up rates makes no sense, so there is no `other`.
    let shown = &engine.brakes[..engine.brakes.len().min(SCOPES_MAX)];
    let mut out = vec![
        Family::gauge(
            "thermocline_scope_top_tier_bytes",
            "Memory of the top tier that a scope holds, where that counts: it has a floor or a cap, or one has \
             a share.",
            held(|standing| standing.top_tier_pages),
        ),
        Family::gauge(
            "thermocline_scope_floor_bytes",
            "Memory of the top tier that demotion leaves to a scope.",
            held(|standing| Some(standing.floor_pages)),
        ),
        Family::gauge(
            "thermocline_scope_cap_bytes",
            "Memory of the top tier at which nothing is promoted into a scope.",
            held(|standing| standing.cap_pages),
        ),
        Family::gauge(
            "thermocline_scope_share_bytes",
            "Memory of the top tier that a scope gets back from others when it wants it.",
            held(|standing| Some(standing.share_pages)),
        ),
        Family::gauge(
            "thermocline_scope_claimed_bytes",
            "Memory that a scope lacks of its share and has candidates for.",
            held(|standing| Some(standing.claimed_pages)),
        ),
        Family::gauge(
            "thermocline_scope_rate_ratio",
            "Share of its rate of moves that a scope has: 1 free, 0 stopped by the brake.",
            by_scope(shown, rate),
        ),
    ];
    out.extend(ScopeLedger::statistics().into_iter().map(|s| {
        let of = |ledger: &ScopeLedger| {
            let sample = ledger.samples().into_iter().find(|sample| sample.name == s.name)?;
            Some(sample.value as f64 / divisor(s.unit) as f64)
        };
        Family::new(&s.metric, &s.description, s.kind, by_scope(&engine.ledgers, of))
    }));
    out
}

/// A figure of each scope. The figures of those beyond [`SCOPES_MAX`] are added up.
fn by_scope<T>(scopes: &[Named<T>], of: impl Fn(&T) -> Option<f64>) -> Vec<Labelled> {
    let (shown, rest) = scopes.split_at(scopes.len().min(SCOPES_MAX));
    let mut values: Vec<Labelled> = shown
        .iter()
        .filter_map(|scope| Some(by("scope", scope.name.clone(), of(&scope.standing)?)))
        .collect();
    let others: Vec<f64> = rest.iter().filter_map(|scope| of(&scope.standing)).collect();
    if !others.is_empty() {
        values.push(by("scope", "other", others.iter().sum()));
    }
    values
}
