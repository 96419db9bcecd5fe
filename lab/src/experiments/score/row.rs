//! The figures of one run.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};
use thermocline_core::config::Config;
use thermocline_core::units::{NodeId, PAGE_SHIFT, PAGES_PER_MIB};
use thermocline_lab::truth::{Model, NodeCounts, PageMisses, best_static, by_page};

use super::felt::Felt;
use super::manager::Manager;
use super::neighbour::Lay;
use super::plan::{Moved, Plan, Recording, Start, Workload};
use crate::experiments::within::ByNode;

/// One run of a program under a manager.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Row {
    /// The manager: none, numab2, damon or thermocline.
    pub(crate) manager: String,
    /// Our daemon's rule; null under the other managers.
    pub(crate) rule: Option<String>,
    /// Where the manager's evidence comes from; null under none.
    pub(crate) source: Option<String>,
    /// Share (0 to 1) of the program's modelled cache misses that DRAM served.
    pub(crate) dram_share: f64,
    /// That as a share of what the best static placement would have reached in the same window;
    /// null if that is 0.
    pub(crate) oracle_share: Option<f64>,
    /// Modelled time, as a multiple of that with all misses served by node 0, which is DRAM.
    pub(crate) slowdown: f64,
    /// Base pages promoted, by any mover.
    pub(crate) promoted: u64,
    /// Base pages demoted, by any mover.
    pub(crate) demoted: u64,
    /// The program's pages that came back to a tier that they had left.
    pub(crate) ping_pong: u64,
    /// CPU time of the manager's own process or threads, s.
    pub(crate) daemon_cpu: f64,
    /// The manager as the command line names it.
    pub(crate) label: Manager,
    /// The program.
    pub(crate) workload: Workload,
    /// The initial placement of its memory.
    pub(crate) start: Start,
    /// Seed of the load.
    pub(crate) seed: u64,
    /// The kernel's release.
    pub(crate) kernel: String,
    /// The share (0 to 1) that the best static placement would have reached.
    pub(crate) best_share: f64,
    /// Its slowdown, if a miss waited for each tier as long as in this window.
    pub(crate) best_slowdown: f64,
    /// The program's modelled time in the window, s.
    #[serde(default)]
    pub(crate) modelled_s: f64,
    /// The share (0 to 1) of that for which it queued for bandwidth.
    #[serde(default)]
    pub(crate) queueing_share: f64,
    /// The machine whose time is modelled; null in rows of versions that did not model queueing.
    #[serde(default)]
    pub(crate) model: Option<Model>,
    /// DRAM available to the program, base pages.
    pub(crate) capacity_pages: u64,
    /// All pages of the program.
    pub(crate) footprint_pages: u64,
    /// The program's pages in DRAM when the manager started.
    pub(crate) dram_pages_before: u64,
    /// The same at the end of the window.
    pub(crate) dram_pages_after: u64,
    /// The placement of the memory of a program beside it, if any: cold ballast, or a hog.
    #[serde(default, alias = "ballast")]
    pub(crate) neighbour: Option<Lay>,
    /// Accesses of a hog in the window.
    #[serde(default)]
    pub(crate) hog_accesses: Option<u64>,
    /// Modelled cache misses on the program's data in the window.
    pub(crate) misses: u64,
    /// The program's instructions in the window.
    pub(crate) instructions: u64,
    /// Operations in the window.
    pub(crate) ops: u64,
    /// Operations before.
    pub(crate) warmup_ops: u64,
    /// Time from the manager's start to the window, s.
    pub(crate) warmup_s: f64,
    /// Length of the window, s.
    pub(crate) window_s: f64,
    /// Seconds of the guest per modelled second of the program, in the window.
    pub(crate) dilation: f64,
    /// Base pages promoted, by mover.
    pub(crate) promoted_by: Moved,
    /// Base pages demoted, by mover.
    pub(crate) demoted_by: Moved,
    /// CPU time of our BPF programs, which the program pays, s.
    pub(crate) bpf_cpu: f64,
    /// CPU time of kswapd, s.
    pub(crate) kswapd_cpu: f64,
    /// The plugin's error on a known pattern in this boot, a share (0 to 1).
    pub(crate) pattern_error: f64,
    /// The kernel's settings under the manager.
    pub(crate) settings: BTreeMap<String, String>,
    /// Increase of the kernel's counters of balancing and demotion from the manager's start to the
    /// end of the window.
    #[serde(default)]
    pub(crate) counters: BTreeMap<String, u64>,
    /// Time of the window in the guest that felt latencies, as a multiple of that with all misses
    /// as fast as DRAM's; null if misses were only counted.
    #[serde(default)]
    pub(crate) felt_slowdown: Option<f64>,
    /// The latencies felt.
    #[serde(default)]
    pub(crate) felt: Option<Felt>,
}

impl Row {
    /// The row of a recording and the page dump of its window; `None` without misses.
    pub(crate) fn of(plan: &Plan, recording: &Recording, dump: &[PageMisses]) -> Option<Row> {
        let Recording { slow, counts, .. } = recording;
        let dram: Vec<NodeId> = (0..slow.0).map(NodeId).collect();
        let in_dram = |pages: &ByNode| -> u64 { dram.iter().filter_map(|node| pages.get(node)).sum() };
        let (before, after) = (in_dram(&recording.pages_before), in_dram(&recording.pages_after));
        // A manager that makes room by pushing others out of DRAM is measured against that room.
        let capacity_pages = (before + recording.room_pages).max(after);
        let (first, end) = (recording.range.0 >> PAGE_SHIFT, recording.range.1 >> PAGE_SHIFT);
        let best_share = best_static(by_page(dump, first, end).into_values(), capacity_pages as usize)?;
        let dram_share = counts.share(&dram)?;
        let (misses, instructions) = (counts.misses(), counts.program_instructions);
        let modelled = counts.modelled.filter(|modelled| modelled.program_reference_ns > 0)?;
        let reference_ns = modelled.program_reference_ns as f64;
        let waited_ns =
            |nodes: &[NodeCounts]| nodes.iter().map(|node| node.latency_ns + node.queueing_ns).sum::<u64>();
        // A tier that served nothing would have caused no queueing.
        let tier_ns =
            |nodes: &[NodeCounts], number: usize| match nodes.iter().map(NodeCounts::misses).sum::<u64>() {
                0 => plan.model.nodes.get(number).map_or(0.0, |node| node.latency_ns),
                misses => waited_ns(nodes) as f64 / misses as f64,
            };
        let (fast, rest) = counts.nodes.split_at_checked(usize::from(slow.0))?;
        let best_wait_ns = best_share * tier_ns(fast, 0) + (1.0 - best_share) * tier_ns(rest, fast.len());
        let instructions_ns = modelled.program_ns.saturating_sub(waited_ns(&counts.nodes));
        let best_ns = instructions_ns as f64 + misses as f64 * best_wait_ns;
        let queueing_ns: u64 = counts.nodes.iter().map(|node| node.queueing_ns).sum();
        let rule = match &plan.manager {
            Manager::Thermocline { rule, .. } => {
                Some(rule.clone().unwrap_or_else(|| Config::default().rule.name.text().to_owned()))
            }
            _ => None,
        };
        Some(Row {
            manager: plan.manager.name().to_owned(),
            rule,
            source: plan.manager.source(),
            dram_share,
            oracle_share: (best_share > 0.0).then(|| dram_share / best_share),
            slowdown: modelled.program_ns as f64 / reference_ns,
            promoted: recording.promoted.all(),
            demoted: recording.demoted.all(),
            ping_pong: recording.ping_pong,
            daemon_cpu: recording.daemon_cpu_s,
            label: plan.manager.clone(),
            workload: plan.workload,
            start: plan.start,
            seed: plan.seed,
            kernel: recording.kernel.clone(),
            best_share,
            best_slowdown: best_ns / reference_ns,
            modelled_s: modelled.program_ns as f64 / 1e9,
            queueing_share: queueing_ns as f64 / modelled.program_ns as f64,
            model: Some(plan.model.clone()),
            capacity_pages,
            footprint_pages: recording.pages_after.values().sum(),
            dram_pages_before: before,
            dram_pages_after: after,
            neighbour: recording.neighbour.clone(),
            hog_accesses: recording.hog_accesses,
            misses,
            instructions,
            ops: recording.ops,
            warmup_ops: plan.warmup_ops,
            warmup_s: recording.warmup_s,
            window_s: recording.window_s,
            dilation: recording.window_s * 1e9 / modelled.program_ns as f64,
            promoted_by: recording.promoted,
            demoted_by: recording.demoted,
            bpf_cpu: recording.bpf_cpu_s,
            kswapd_cpu: recording.kswapd_cpu_s,
            pattern_error: recording.pattern_error,
            settings: recording.settings.clone(),
            counters: recording.counters.clone(),
            felt_slowdown: recording
                .felt
                .filter(|felt| recording.ops > 0 && felt.reference_s_per_op > 0.0)
                .map(|felt| recording.window_s / recording.ops as f64 / felt.reference_s_per_op),
            felt: recording.felt,
        })
    }

    /// The run and its machine, as text.
    pub(crate) fn text(&self) -> String {
        let mib = |pages: u64| pages as f64 / PAGES_PER_MIB as f64;
        let by = |moved: &Moved| {
            format!("kernel {}, thermocline {}, damon {}", moved.kernel, moved.thermocline, moved.damon)
        };
        fn pairs<V: fmt::Display>(map: &BTreeMap<String, V>) -> String {
            map.iter().map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>().join(" ")
        }
        format!(
            "{} under {}, Linux {}, seed {}, {} at first\n\
             DRAM for it: {:.0} MiB of {:.0} MiB ({:.0} %); in DRAM {:.0} MiB before, {:.0} MiB after\n\
             DRAM served {:.1} % of its {} misses; the best static placement {:.1} %: {} % of the oracle\n\
             modelled slowdown against all in DRAM: {:.3} ({:.3} for the best static placement); {:.1} % of {:.3} s of modelled time in queues for bandwidth\n\
             modelled machine: {}\n\
             {}\
             promoted {} ({}); demoted {} ({}); ping-ponged {}\n\
             CPU: manager {:.1} s, its BPF {:.1} s, kswapd {:.1} s, in {:.0} s of warm-up and {:.0} s of window\n\
             {} {} to warm up, {} measured; {:.1} guest seconds for each modelled one\n\
             plugin against a known pattern: {:.2} % off\n\
             kernel settings: {}\n\
             kernel counters: {}\n",
            self.workload.name(),
            self.label,
            self.kernel,
            self.seed,
            self.start.name(),
            mib(self.capacity_pages),
            mib(self.footprint_pages),
            100.0 * self.capacity_pages as f64 / self.footprint_pages.max(1) as f64,
            mib(self.dram_pages_before),
            mib(self.dram_pages_after),
            100.0 * self.dram_share,
            self.misses,
            100.0 * self.best_share,
            self.oracle_share.map_or("unknown".to_owned(), |share| format!("{:.1}", 100.0 * share)),
            self.slowdown,
            self.best_slowdown,
            100.0 * self.queueing_share,
            self.modelled_s,
            self.model_text(),
            self.felt_text(),
            self.promoted,
            by(&self.promoted_by),
            self.demoted,
            by(&self.demoted_by),
            self.ping_pong,
            self.daemon_cpu,
            self.bpf_cpu,
            self.kswapd_cpu,
            self.warmup_s,
            self.window_s,
            self.warmup_ops,
            self.workload.ops(),
            self.ops,
            self.dilation,
            100.0 * self.pattern_error,
            pairs(&self.settings),
            pairs(&self.counters),
        )
    }

    /// The machine whose time is modelled.
    pub(crate) fn model_text(&self) -> String {
        self.model
            .as_ref()
            .map_or("latencies without queueing, of an earlier version".to_owned(), Model::to_string)
    }

    fn felt_text(&self) -> String {
        let (Some(slowdown), Some(felt)) = (self.felt_slowdown, &self.felt) else { return String::new() };
        format!(
            "felt slowdown: {slowdown:.3}; a miss took {:.0} ns to DRAM and {:.0} ns to CXL, {:.2} times as long\n",
            felt.dram_ns,
            felt.cxl_ns,
            felt.cxl_ns / felt.dram_ns
        )
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use thermocline_core::units::Pfn;
    use thermocline_lab::truth::{Counts, Modelled, NodeCounts, NodeModel, State};

    use thermocline_lab::programs::keys::Distribution;

    use super::super::felt::Asked;
    use super::super::plan::Narrowing;
    use super::*;

    /// A third of a ns an instruction, 100 ns and 300 ns a miss.
    fn model() -> Model {
        let node = |latency_ns| NodeModel { latency_ns, bandwidth_gbps: 1.0 };
        Model { cpi_ns: 1.0 / 3.0, nodes: vec![node(100.0), node(300.0)] }
    }

    fn plan(manager: &str) -> Plan {
        Plan {
            workload: Workload::Redis,
            manager: manager.parse().unwrap(),
            start: Start::FirstTouch,
            seed: 1,
            warmup_ops: 10,
            ops: 20,
            fast_share: 0.5,
            narrowing: Narrowing::Reserve,
            share_mib: None,
            mib: 1,
            graph_scale: 20,
            rate: 0,
            keys: 1,
            value_bytes: 1,
            scale: 1,
            zipf: 0.99,
            distribution: Distribution::Zipfian,
            sample_every: None,
            felt: None,
            model: model(),
        }
    }

    /// Four pages of which two fit: misses 50, 30 (both CXL), 15, 5 (both DRAM).
    fn recording() -> (Recording, Vec<PageMisses>) {
        let node = |load_misses, latency_ns, queueing_ns| NodeCounts {
            load_misses,
            latency_ns,
            queueing_ns,
            ..NodeCounts::default()
        };
        let counts = Counts {
            state: State::Counting,
            epoch: 2,
            host_ns: 0,
            nodes: vec![node(20, 2000, 0), node(80, 24_000, 8000)],
            io: 0,
            outside: 0,
            unresolved: 0,
            pages: 4,
            pages_lost: 0,
            instructions: 90_000,
            program_instructions: 30_000,
            // 30,000 instructions are 10 us; with all 100 misses in DRAM, which queue a little, it
            // would be 22 us.
            modelled: Some(Modelled {
                ns: 90_000,
                reference_ns: 50_000,
                program_ns: 44_000,
                program_reference_ns: 22_000,
            }),
        };
        let pages = ByNode::from([(NodeId(0), 2), (NodeId(1), 2)]);
        let recording = Recording {
            kernel: "6.12".to_owned(),
            slow: NodeId(1),
            range: (0x10_000, 0x14_000),
            settings: BTreeMap::new(),
            counters: BTreeMap::new(),
            pages_before: pages.clone(),
            pages_after: pages,
            neighbour: None,
            hog_accesses: None,
            room_pages: 0,
            counts,
            ops: 20,
            warmup_s: 1.0,
            window_s: 1.0,
            promoted: Moved { kernel: 1, thermocline: 2, damon: 4 },
            demoted: Moved { kernel: 3, ..Moved::default() },
            ping_pong: 1,
            daemon_cpu_s: 0.5,
            bpf_cpu_s: 0.0,
            kswapd_cpu_s: 0.0,
            pattern_error: 0.0,
            felt: None,
        };
        let page = |vpn, load_misses| PageMisses { vpn, pfn: Pfn(vpn), load_misses, store_misses: 0 };
        // The last is outside of the range.
        (recording, vec![page(16, 50), page(17, 30), page(18, 15), page(19, 5), page(99, 1000)])
    }

    /// A row of made-up figures.
    pub(crate) fn row(manager: &str, dram_share: f64) -> Row {
        let (recording, dump) = recording();
        let row = Row::of(&plan(manager), &recording, &dump).unwrap();
        Row { dram_share, ..row }
    }

    #[test]
    fn computed_by_hand() {
        let (recording, dump) = recording();
        let row = Row::of(&plan("thermocline"), &recording, &dump).unwrap();
        assert_eq!((row.dram_share, row.best_share, row.oracle_share), (0.2, 0.8, Some(0.25)));
        assert!((row.slowdown - 44.0 / 22.0).abs() < 1e-9, "{}", row.slowdown);
        // A miss waited 100 ns for DRAM and 400 ns for CXL; 80 and 20 of them are 16 us.
        assert!((row.best_slowdown - 26.0 / 22.0).abs() < 1e-9, "{}", row.best_slowdown);
        assert!((row.queueing_share - 8.0 / 44.0).abs() < 1e-9 && (row.modelled_s - 44e-6).abs() < 1e-12);
        assert!((row.dilation - 1e9 / 44e3).abs() < 1e-3, "{}", row.dilation);
        assert_eq!((row.promoted, row.demoted, row.footprint_pages, row.capacity_pages), (7, 3, 4, 2));
        assert_eq!((row.rule.as_deref(), row.source.as_deref()), (Some("adaptive"), Some("hintfault")));
    }

    #[test]
    fn felt_time_is_told_by_operation() {
        let (mut recording, dump) = recording();
        let asked = Asked { ratio: 2.5, dram_ns: 1000.0 };
        // 20 operations in 1 s are 50 ms each.
        recording.felt = Some(Felt { asked, dram_ns: 1000.0, cxl_ns: 2600.0, reference_s_per_op: 0.04 });
        let row = Row::of(&plan("none"), &recording, &dump).unwrap();
        assert!((row.felt_slowdown.unwrap() - 1.25).abs() < 1e-9);
        assert!(
            row.text()
                .contains("felt slowdown: 1.250; a miss took 1000 ns to DRAM and 2600 ns to CXL, 2.60 times")
        );
    }

    #[test]
    fn who_makes_room_is_measured_by_it_and_silence_is_no_row() {
        let (mut recording, dump) = recording();
        recording.pages_after = ByNode::from([(NodeId(0), 3), (NodeId(1), 1)]);
        let row = Row::of(&plan("numab2"), &recording, &dump).unwrap();
        assert_eq!((row.capacity_pages, row.best_share, row.rule), (3, 0.95, None));
        // With nothing on CXL, a miss that would go there in the best placement takes its latency.
        recording.counts.nodes[0] = recording.counts.nodes[1];
        recording.counts.nodes[1] = NodeCounts::default();
        let row = Row::of(&plan("numab2"), &recording, &dump).unwrap();
        assert!(
            (row.best_slowdown - (12_000.0 + 80.0 * (0.95 * 400.0 + 0.05 * 300.0)) / 22_000.0).abs() < 1e-9
        );
        recording.counts.nodes = vec![NodeCounts::default(); 2];
        assert!(Row::of(&plan("none"), &recording, &dump).is_none());
    }
}
