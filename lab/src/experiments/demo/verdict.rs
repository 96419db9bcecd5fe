//! The result of the demo, and whether it is good enough.

use std::collections::BTreeMap;

use serde::Serialize;
use thermocline_core::config::Config;
use thermocline_core::units::{NodeId, PAGE_SHIFT, PAGES_PER_MIB};
use thermocline_lab::truth::{Counts, PageMisses, best_static, by_page};

use super::line::{mib, tiers};
use super::record::Recording;
use crate::experiments::daemon::{counter, family, gauge};

/// Minimum factor by which the share of misses that DRAM serves must grow.
const FACTOR_MIN: f64 = 2.0;
/// Minimum share of what the best static placement would serve.
const OF_BEST_MIN: f64 = 0.8;
/// Maximum difference between our residency and numa_maps.
const RESIDENCY_MAX: f64 = 0.01;

/// One figure and its bar.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Bar {
    /// What is judged.
    pub(crate) name: &'static str,
    /// The value seen.
    pub(crate) seen: String,
    /// The required value.
    pub(crate) bar: String,
    /// Whether it holds.
    pub(crate) holds: bool,
}

/// Where candidates and moves ended.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Candidates {
    /// Candidates that the rule proposed.
    pub(crate) proposed: u64,
    /// Candidates that came back from a batch.
    pub(crate) returned: u64,
    /// Proposals beyond the limit of a batch of evidence.
    pub(crate) dropped: u64,
    /// Proposals of pages that waited already.
    pub(crate) merged: u64,
    /// Refused, by reason.
    pub(crate) refused: BTreeMap<String, u64>,
    /// Expired while waiting, by what held them.
    pub(crate) expired: BTreeMap<String, u64>,
    /// Evicted by better ones in a full queue.
    pub(crate) queue_evicted: u64,
    /// Their process exited.
    pub(crate) exited: u64,
    /// Waiting at the end.
    pub(crate) waiting: u64,
    /// Moves asked for.
    pub(crate) issued: u64,
    /// Moves that succeeded.
    pub(crate) moved: u64,
    /// Moves that did not, by outcome.
    pub(crate) failed: BTreeMap<String, u64>,
    /// Moves without an outcome.
    pub(crate) lost: u64,
    /// Moves under way at the end: 0, because the daemon waits for them.
    pub(crate) in_flight: u64,
}

/// Every figure that is printed.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Verdict {
    /// Share (0 to 1) of Redis's misses that DRAM served in the last window before.
    pub(crate) dram_share_before: f64,
    /// The same at the end.
    pub(crate) dram_share_after: f64,
    /// The share that the best static placement would have served at the end.
    pub(crate) dram_share_best: f64,
    /// DRAM that Redis could have, base pages.
    pub(crate) capacity_pages: u64,
    /// Redis's DRAM pages before.
    pub(crate) dram_pages_before: u64,
    /// Redis's DRAM pages by our count: those before, and our moves.
    pub(crate) dram_pages_counted: u64,
    /// Redis's DRAM pages after, from numa_maps.
    pub(crate) dram_pages_after: u64,
    /// All of Redis's pages after.
    pub(crate) pages_after: u64,
    /// Base pages that we promoted.
    pub(crate) promoted_pages: u64,
    /// Base pages that the kernel promoted on its own.
    pub(crate) kernel_promoted_pages: u64,
    /// Base pages that the kernel demoted on its own, Redis's or others', as reported by the
    /// daemon.
    pub(crate) kernel_demoted_pages: u64,
    /// Hint faults that the daemon saw, and lost.
    pub(crate) hint_faults: (u64, u64),
    /// CPU time of the daemon, s.
    pub(crate) daemon_cpu_s: f64,
    /// Mean reads a second before.
    pub(crate) ops_per_s_before: f64,
    /// Mean reads a second in the last window.
    pub(crate) ops_per_s_after: f64,
    /// Where candidates ended.
    pub(crate) candidates: Candidates,
    /// The bars.
    pub(crate) bars: Vec<Bar>,
}

impl Verdict {
    /// Judges a recording by the page dump of its last window.
    pub(crate) fn of(recording: &Recording, dump: &[PageMisses]) -> Verdict {
        let (slow, daemon) = (recording.slow, &recording.daemon);
        let share = |counts: &Counts| {
            let dram: Vec<NodeId> = (0..slow.0).map(NodeId).collect();
            counts.share(&dram).unwrap_or(0.0)
        };
        let (dram_before, _) = tiers(&recording.pages_before, slow);
        let (dram_after, cxl_after) = tiers(&recording.pages_after, slow);
        let goal = Config::default().admission.free_goal_mib * PAGES_PER_MIB;
        let room: u64 =
            recording.room.values().map(|room| room.free_pages.saturating_sub(room.high_pages + goal)).sum();
        let capacity_pages = dram_before + room;
        let range = (recording.range.0 >> PAGE_SHIFT, recording.range.1 >> PAGE_SHIFT);
        let best = best_static(by_page(dump, range.0, range.1).into_values(), capacity_pages as usize);
        let promoted = counter(daemon, "pgpromote_success");
        let mean = |samples: &mut dyn Iterator<Item = f64>| {
            let (sum, count) = samples.fold((0.0, 0u32), |(sum, count), value| (sum + value, count + 1));
            sum / f64::from(count.max(1))
        };
        let samples = &recording.samples;
        let last = samples.len().saturating_sub(recording.plan.window_s as usize);
        let mut verdict = Verdict {
            dram_share_before: share(&recording.misses_before),
            dram_share_after: share(&recording.misses_after),
            dram_share_best: best.unwrap_or(0.0),
            capacity_pages,
            dram_pages_before: dram_before,
            dram_pages_counted: (dram_before + promoted)
                .saturating_sub(counter(daemon, "pgdemote") + counter(daemon, "demotion_done")),
            dram_pages_after: dram_after,
            pages_after: dram_after + cxl_after,
            promoted_pages: promoted,
            kernel_promoted_pages: recording.kernel_promotions,
            kernel_demoted_pages: demoted_by_kernel(daemon),
            hint_faults: (
                daemon["source"]["seen"].as_u64().unwrap_or(0),
                daemon["source"]["dropped"].as_u64().unwrap_or(0),
            ),
            daemon_cpu_s: daemon["cpu_time_ns"].as_u64().unwrap_or(0) as f64 / 1e9,
            ops_per_s_before: mean(&mut samples.iter().filter(|s| !s.with).map(|s| s.ops_per_s)),
            ops_per_s_after: mean(&mut samples[last..].iter().map(|s| s.ops_per_s)),
            candidates: Candidates::of(daemon),
            bars: Vec::new(),
        };
        verdict.bars = verdict.judge(recording);
        verdict
    }

    fn judge(&self, recording: &Recording) -> Vec<Bar> {
        let (before, after) = (self.dram_share_before, self.dram_share_after);
        let of_best = after / self.dram_share_best.max(f64::MIN_POSITIVE);
        // The kernel does not report whose pages it moved on its own.
        let least = self.dram_pages_counted.saturating_sub(self.kernel_demoted_pages);
        let most = self.dram_pages_counted + self.kernel_promoted_pages;
        let nearest = self.dram_pages_after.clamp(least, most);
        let apart = nearest.abs_diff(self.dram_pages_after) as f64 / self.dram_pages_after.max(1) as f64;
        let balance = self.candidates.balance();
        let verified = &recording.verified;
        let load = &recording.load;
        vec![
            Bar {
                name: "share of misses served by DRAM",
                seen: format!(
                    "{:.1} % before, {:.1} % after {} promoted pages",
                    100.0 * before,
                    100.0 * after,
                    self.promoted_pages
                ),
                bar: format!("at least {FACTOR_MIN} times as much, by our promotions"),
                // Without a promotion of ours the result is not ours.
                holds: self.promoted_pages > 0 && after >= FACTOR_MIN * before,
            },
            Bar {
                name: "of the best static placement",
                seen: format!(
                    "{:.1} % ({:.1} % of {:.1} %)",
                    100.0 * of_best,
                    100.0 * after,
                    100.0 * self.dram_share_best
                ),
                bar: format!("at least {:.0} %", 100.0 * OF_BEST_MIN),
                holds: of_best >= OF_BEST_MIN,
            },
            Bar {
                name: "our residency against numa_maps",
                seen: format!(
                    "{} pages of DRAM by our count, up to {} fewer and {} more by the kernel's own moves, {} there: {:.2} % apart",
                    self.dram_pages_counted,
                    self.kernel_demoted_pages,
                    self.kernel_promoted_pages,
                    self.dram_pages_after,
                    100.0 * apart
                ),
                bar: format!("within {:.0} %", 100.0 * RESIDENCY_MAX),
                holds: apart <= RESIDENCY_MAX,
            },
            Bar {
                name: "every candidate moved or has a reason",
                seen: balance.clone().err().unwrap_or_else(|| self.candidates.text()),
                bar: "the counters balance, no move is lost".to_owned(),
                holds: balance.is_ok() && self.candidates.lost == 0,
            },
            Bar {
                name: "Redis's data",
                seen: format!(
                    "{} of {} keys verified after the moves; under load {} right, {} wrong, {} errors",
                    verified.right, recording.plan.keys, load.right, load.wrong, load.errors
                ),
                bar: "every key, no error".to_owned(),
                holds: verified.right == u64::from(recording.plan.keys)
                    && verified.wrong + verified.errors + load.wrong + load.errors == 0,
            },
        ]
    }

    /// Whether every bar holds.
    pub(crate) fn holds(&self) -> bool {
        self.bars.iter().all(|bar| bar.holds)
    }

    /// The end of the demo, for people.
    pub(crate) fn text(&self) -> String {
        let mut text = format!(
            "promoted by thermocline: {} pages ({:.1} MiB), by the kernel itself: {}\n\
             DRAM that Redis could have: {:.1} MiB, of {:.1} MiB in all\n\
             hint faults: {} seen, {} lost; the daemon used {:.1} s of CPU time\n\
             reads: {:.0} a second before, {:.0} at the end. Under emulation no node is slower than another: placement and\n\
             mechanism are real here, speed is not.\n\n",
            self.promoted_pages,
            mib(self.promoted_pages),
            self.kernel_promoted_pages,
            mib(self.capacity_pages),
            mib(self.pages_after),
            self.hint_faults.0,
            self.hint_faults.1,
            self.daemon_cpu_s,
            self.ops_per_s_before,
            self.ops_per_s_after,
        );
        for bar in &self.bars {
            let holds = if bar.holds { "holds" } else { "does not hold" };
            text.push_str(&format!("{holds:>13}  {}: {} (bar: {})\n", bar.name, bar.seen, bar.bar));
        }
        text
    }
}

impl Candidates {
    fn of(daemon: &serde_json::Value) -> Candidates {
        let count = |name| counter(daemon, name);
        Candidates {
            proposed: count("proposed"),
            returned: count("returned"),
            dropped: count("dropped"),
            merged: count("merged"),
            refused: some(family(daemon, "refused")),
            expired: some(family(daemon, "expired")),
            queue_evicted: count("queue_evicted"),
            exited: count("exited"),
            waiting: gauge(daemon, "queue_length"),
            issued: count("issued"),
            moved: count("moved"),
            failed: some(family(daemon, "failed")),
            lost: count("lost"),
            in_flight: 0,
        }
    }

    /// Whether each is accounted for; else the sum that does not balance.
    fn balance(&self) -> Result<(), String> {
        let sum = |family: &BTreeMap<String, u64>| family.values().sum::<u64>();
        let came = self.proposed + self.returned;
        let went = self.dropped
            + self.merged
            + sum(&self.refused)
            + sum(&self.expired)
            + self.queue_evicted
            + self.exited
            + self.issued
            + self.waiting;
        if came != went {
            return Err(format!("{came} candidates came, {went} went: {}", self.text()));
        }
        let ended = self.moved + sum(&self.failed) + self.lost + self.in_flight;
        if self.issued != ended {
            return Err(format!("{} moves were issued, {ended} ended: {}", self.issued, self.text()));
        }
        Ok(())
    }

    fn text(&self) -> String {
        let mut parts = vec![format!("{} proposed", self.proposed)];
        for (count, what) in [
            (self.returned, "returned"),
            (self.moved, "moved"),
            (self.merged, "merged"),
            (self.dropped, "dropped"),
            (self.queue_evicted, "pushed out of the queue"),
            (self.exited, "exited"),
            (self.waiting, "waiting"),
            (self.lost, "lost"),
        ] {
            if count > 0 {
                parts.push(format!("{count} {what}"));
            }
        }
        for (what, family) in
            [("refused", &self.refused), ("expired", &self.expired), ("failed", &self.failed)]
        {
            parts.extend(family.iter().map(|(reason, count)| format!("{what} {reason} {count}")));
        }
        parts.join(", ")
    }
}

/// Base pages that the kernel demoted on its own, for any cause.
fn demoted_by_kernel(daemon: &serde_json::Value) -> u64 {
    let moves = daemon["kernel_moves"].as_object().into_iter().flatten();
    moves.filter(|(name, _)| name.starts_with("pgdemote_")).filter_map(|(_, pages)| pages.as_u64()).sum()
}

/// Without the labels that never occurred.
fn some(mut family: BTreeMap<String, u64>) -> BTreeMap<String, u64> {
    family.retain(|_, count| *count > 0);
    family
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn daemon(waiting: u64) -> serde_json::Value {
        json!({
            "counters": {"proposed": 10, "returned": 1, "merged": 2, "refused": {"node_full": 3, "pinned": 0},
                         "expired": {}, "issued": 5, "moved": 4, "failed": {"busy": 1}},
            "gauges": [{"name": "queue_length", "node": null, "value": waiting}],
        })
    }

    #[test]
    fn candidates_that_vanish_are_noticed() {
        let whole = Candidates::of(&daemon(1));
        assert_eq!(whole.balance(), Ok(()));
        assert_eq!(whole.refused.len(), 1);
        assert!(Candidates::of(&daemon(0)).balance().unwrap_err().starts_with("11 candidates came, 10 went"));
    }

    #[test]
    fn what_the_kernel_demoted_by_itself_is_told_apart() {
        let told = json!({ "kernel_moves": { "pgpromote_success": 9, "pgdemote_kswapd": 5, "pgdemote_direct": 2, "allocstall": 3 } });
        assert_eq!((demoted_by_kernel(&told), demoted_by_kernel(&json!({}))), (7, 0));
    }

    #[test]
    fn moves_that_vanish_are_noticed() {
        let mut told = daemon(1);
        told["counters"]["failed"] = json!({});
        assert!(Candidates::of(&told).balance().unwrap_err().starts_with("5 moves were issued, 4 ended"));
    }
}
