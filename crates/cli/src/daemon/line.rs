//! A readable line per second, and the summary at the end.

use thermocline_core::config::Source;
use thermocline_core::units::Nanos;
use thermocline_linux::kernel_moves::Moved;

use super::Mode;
use crate::output::{print_line, tell_text};
use crate::snapshot::{Deciding, Snapshot};
use crate::text::{self, by_damon, by_kernel, mib};

/// Prints lines and the summary.
#[derive(Debug)]
pub struct Lines {
    json: bool,
    mode: Mode,
    last: Option<Snapshot>,
}

impl Lines {
    /// As text, or as one JSON object per line.
    pub fn new(json: bool, mode: Mode) -> Lines {
        Lines { json, mode, last: None }
    }

    /// Prints a line for this snapshot.
    pub fn print(&mut self, now: &Snapshot) {
        let line = if self.json {
            serde_json::to_string(now).unwrap_or_default()
        } else {
            text(self.last.as_ref(), now, self.mode)
        };
        // The daemon goes on even if the reader has gone away.
        print_line(&line);
        self.last = Some(now.clone());
    }

    /// Prints the totals.
    pub fn summary(&self, end: &Snapshot) {
        if self.json {
            print_line(&serde_json::to_string(end).unwrap_or_default());
        } else {
            tell_text(format_args!("{}", summary(end, self.mode)));
        }
    }
}

/// One line: rates since `last`, and current totals.
fn text(last: Option<&Snapshot>, now: &Snapshot, mode: Mode) -> String {
    let mut line = format!("{:>5.0}s", now.uptime_ns.0 as f64 / 1e9);
    match &now.engine {
        Some(engine) => {
            let since = last.map_or(Nanos(0), |last| last.uptime_ns);
            let seconds = (now.uptime_ns.since(since).0 as f64 / 1e9).max(1e-3);
            let last = last.and_then(|last| last.engine.as_ref());
            line.push_str(&evidence(last, engine, seconds));
            if mode == Mode::Run {
                line.push_str(&moves(last, engine, seconds));
            }
        }
        None => {
            let Moved { promoted, demoted } = now.moved;
            line.push_str(&format!(
                "  promoted {:>7.1} MiB  demoted {:>7.1} MiB",
                mib(promoted.kernel + promoted.damon),
                mib(demoted.kernel + demoted.damon)
            ));
        }
    }
    let direct = now.kernel_moves.pgdemote_direct;
    if direct > 0 && mode == Mode::Run {
        line.push_str(&format!("  direct demotions {direct}"));
    }
    if let Some(engine) = &now.engine {
        let refused = reasons(engine, last.and_then(|last| last.engine.as_ref()));
        if !refused.is_empty() {
            line.push_str(&format!("  held or refused: {refused}"));
        }
        for brake in engine.brakes.iter().filter(|brake| brake.standing.by.is_some()) {
            line.push_str(&format!("  scope {} {}", brake.name, text::rate(brake.standing.rate_bp)));
        }
    }
    for node in &now.nodes {
        line.push_str(&format!("  node {} free {:.0} MiB", node.node.0, mib(node.free_pages)));
    }
    for node in now.engine.iter().flat_map(|engine| &engine.free_space_promotion) {
        line.push_str(&format!("  free-space promotion active on {node}"));
    }
    line
}

/// The evidence that arrived in `seconds`, and the candidates proposed.
fn evidence(last: Option<&Deciding>, now: &Deciding, seconds: f64) -> String {
    let faults = now.source.seen - last.map_or(0, |last| last.source.seen);
    let mut line = format!("  faults {:>7.0}/s", faults as f64 / seconds);
    let mut lost = now.source.dropped;
    for rate in &now.rates {
        let rates = last.into_iter().flat_map(|last| &last.rates);
        let before = rates.filter(|r| r.what == rate.what).map(|r| r.count).sum();
        let came = rate.count.saturating_sub(before) as f64 / seconds;
        line.push_str(&format!("  {} {came:>7.0}/s", rate.what));
        lost += rate.lost;
    }
    if let Some(reverse) = &now.reverse {
        let before = last.and_then(|last| last.reverse.as_ref()).map_or(0, |r| r.unknown);
        line.push_str(&format!("  of unknown frames {:>7.0}/s", (reverse.unknown - before) as f64 / seconds));
    }
    if lost > 0 {
        line.push_str(&format!("  lost {lost}"));
    }
    let (proposed, waiting) = (now.counters.proposed, now.gauge("queue_length"));
    line.push_str(&format!("  proposed {proposed:>7}  waiting {waiting:>6}"));
    line
}

/// The pages moved, in total and in `seconds`.
fn moves(last: Option<&Deciding>, now: &Deciding, seconds: f64) -> String {
    let c = &now.counters;
    let moved = c.pgmigrate_success - last.map_or(0, |last| last.counters.pgmigrate_success);
    let mut line =
        format!("  promoted {:>7.1} MiB ({:>5.1} MiB/s)", mib(c.pgpromote_success), mib(moved) / seconds);
    if now.demoter.is_some() {
        line.push_str(&format!("  demoted {:>7.1} MiB", mib(c.demotion_done)));
    }
    line
}

/// Reasons since `last`, most frequent first.
fn reasons(now: &Deciding, last: Option<&Deciding>) -> String {
    let samples = |s: &Deciding| -> Vec<(&'static str, &'static str, u64)> {
        let named = ["refused", "expired", "failed", "held"];
        let all = s.counters.samples();
        all.into_iter()
            .filter(|s| named.contains(&s.name))
            .filter_map(|s| Some((s.name, s.label?, s.value)))
            .collect()
    };
    let before = last.map(samples).unwrap_or_default();
    let mut found: Vec<(u64, &str)> = Vec::new();
    for (i, (_, label, value)) in samples(now).into_iter().enumerate() {
        let grown = value - before.get(i).map_or(0, |b| b.2);
        match found.iter_mut().find(|(_, l)| *l == label) {
            Some(entry) => entry.0 += grown,
            None => found.push((grown, label)),
        }
    }
    found.retain(|(n, _)| *n > 0);
    found.sort_by_key(|(n, label)| (std::cmp::Reverse(*n), *label));
    found.iter().take(3).map(|(n, label)| format!("{label} {n}")).collect::<Vec<_>>().join(", ")
}

/// The totals.
fn summary(end: &Snapshot, mode: Mode) -> String {
    let seconds = (end.uptime_ns.0 as f64 / 1e9).max(1e-3);
    let rest = match &end.engine {
        Some(engine) => summary_of_engine(end, engine, mode, seconds),
        None => {
            let damon = end.damon.as_ref().map(by_damon).unwrap_or_default();
            format!("{}{damon}", by_kernel(&end.kernel_moves))
        }
    };
    format!("after {seconds:.1} s\n{}{rest}", text::benefit(end))
}

fn summary_of_engine(end: &Snapshot, engine: &Deciding, mode: Mode, seconds: f64) -> String {
    let (c, s) = (&engine.counters, &engine.source);
    let mut out = format!(
        "{} hint faults seen, {} delivered, {} lost, {} out of scope\n",
        s.seen, s.delivered, s.dropped, s.filtered
    );
    let others = engine.counted.iter().filter(|(row, _)| row.source != Source::HintFault);
    others.for_each(|(_, counted)| out.push_str(&counted.text));
    out.push_str(&engine.reverse.as_ref().map(text::reverse).unwrap_or_default());
    out.push_str(&format!(
        "candidates: {} proposed, {} waiting, {} issued in {} batches\n",
        c.proposed,
        engine.gauge("queue_length"),
        c.issued,
        c.batches
    ));
    if mode == Mode::Run {
        out.push_str(&format!(
            "moved by thermocline: {:.1} MiB promoted, {:.1} MiB demoted, {:.1} MiB balanced\n",
            mib(c.pgpromote_success),
            mib(c.pgdemote + c.demotion_done),
            mib(c.pgbalance)
        ));
        out.push_str(&by_kernel(&end.kernel_moves));
    }
    out.push_str(&text::scopes(&engine.scopes));
    out.push_str(&text::brakes(&engine.brakes, false));
    for sample in c.samples().into_iter().filter(|s| s.value > 0) {
        if let (name @ ("refused" | "expired" | "failed"), Some(label)) = (sample.name, sample.label) {
            out.push_str(&format!("  {name} {label}: {}\n", sample.value));
        }
    }
    out.push_str(&format!(
        "cost: daemon {:.1} ms of CPU a second, BPF {:.1} ms a second ({} ns a run)\n",
        end.cpu_time_ns.0 as f64 / 1e6 / seconds,
        s.bpf_run_time_ns as f64 / 1e6 / seconds,
        s.bpf_run_time_ns / s.bpf_runs.max(1)
    ));
    out.push_str(&text::overhead(&engine.overhead));
    out
}
