//! Other movers and watchers of pages.

use std::path::Path;

use thermocline_core::units::Pid;

use crate::actuator::{Held, Holder, Lock, kdamonds, log};
use crate::doctor::kernel::KernelInfo;
use crate::doctor::look::Look;
use crate::doctor::report::{Finding, Ground, Other, Severity};
use crate::process;

/// Programs that move pages between nodes, by process name, and what they do.
const MOVERS: [(&str, &str); 7] = [
    ("numad", "moves processes and their memory between nodes"),
    ("memtierd", "moves pages between memory tiers"),
    ("etmemd", "swaps and moves cold pages"),
    ("sys-refs", "moves pages between DRAM and persistent memory (MemoryOptimizer)"),
    ("task-refs", "moves pages between DRAM and persistent memory (MemoryOptimizer)"),
    ("senpai", "makes cgroups give up cold memory"),
    ("damo", "configures DAMON, which may move pages"),
];

/// Kernel modules that run DAMON on their own, whether they move pages, and what they do.
const MODULES: [(&str, bool, &str); 3] = [
    ("damon_reclaim", true, "reclaims cold pages, or demotes them where demotion is on"),
    ("damon_lru_sort", true, "sorts pages by heat within their node"),
    ("damon_stat", false, "watches all memory for statistics and moves nothing"),
];

/// The findings.
pub(super) struct Others {
    pub(super) list: Vec<Other>,
    pub(super) findings: Vec<Finding>,
}

/// Looks for all other movers of pages. `mode` is kernel.numa_balancing as it will be while
/// running.
pub(super) fn others(
    look: &mut Look<'_>,
    kernel: &KernelInfo,
    mode: Option<u32>,
    state_dir: &Path,
) -> Others {
    let mut found = Others { list: Vec::new(), findings: Vec::new() };
    found.kernel(kernel, mode);
    found.damon(look, our_kdamonds(look, state_dir));
    found.programs(look);
    found.thermocline(look, state_dir);
    found
}

impl Others {
    fn kernel(&mut self, kernel: &KernelInfo, mode: Option<u32>) {
        let now = kernel.numa_balancing.unwrap_or(0);
        let unchanged = mode.is_none_or(|mode| mode == now);
        if now & 1 != 0 {
            self.add(
                "kernel NUMA balancing",
                None,
                true,
                "mode bit 0: moves pages towards the CPU that uses them",
            );
        }
        if now & 2 != 0 && kernel.promote_rate_limit_mbps != Some(0) {
            self.add("kernel tiering", None, true, "mode bit 1: promotes pages by its own rule");
        }
        if now & 1 != 0 && unchanged {
            let cause = format!(
                "kernel.numa_balancing is {now} and the configuration leaves it so: the kernel moves pages towards the \
                 CPU that uses them, beside thermocline"
            );
            self.findings.push(Finding::new("others.numa_balancing", Severity::Problem, cause).fix(
                Ground::OURS,
                "set kernel.numa_balancing = 2 in the configuration, which is its default",
            ));
        } else if let Some(mode) = mode.filter(|mode| mode & 1 != 0) {
            let cause = format!(
                "the configuration sets kernel.numa_balancing to {mode}: the kernel will move pages towards the CPU \
                 that uses them, beside thermocline"
            );
            self.findings.push(Finding::new("others.numa_balancing", Severity::Problem, cause));
        }
        if kernel.demotion_enabled == Some(true) {
            self.add(
                "kernel demotion",
                None,
                true,
                "moves cold pages to the next tier under memory pressure",
            );
        }
    }

    /// Modules and kdamonds; those created by a running thermocline are expected.
    fn damon(&mut self, look: &mut Look<'_>, ours: bool) {
        for (module, moves, what) in MODULES {
            let enabled = look.word(&look.root.sys.join("module").join(module).join("parameters/enabled"));
            if enabled.is_none_or(|text| !crate::actuator::same_value(&text, "Y")) {
                continue;
            }
            self.add(module, None, moves, what);
            if moves {
                let cause = format!("{module} runs: it {what}");
                self.findings.push(Finding::new("others.damon", Severity::Problem, cause).run(
                    Ground::seen(true),
                    "switch it off while thermocline runs",
                    format!("echo N > /sys/module/{module}/parameters/enabled"),
                ));
            }
        }
        for thread in look.list(&kdamonds(look.root), "") {
            if look.word(&thread.join("state")).as_deref() != Some("on") {
                continue;
            }
            let number = thread.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
            let actions = actions(look, &thread);
            let moves = actions.iter().any(|a| a != "stat");
            let detail = match actions.is_empty() {
                true => "watches memory".to_owned(),
                false => format!("actions: {}", actions.join(", ")),
            };
            let name = format!("kdamond {number}");
            if moves && !ours {
                let cause = format!("DAMON acts on memory in {name} ({detail})");
                self.findings.push(Finding::new("others.damon", Severity::Problem, cause).run(
                    Ground::seen(true),
                    "switch it off while thermocline runs, if it is not meant to help",
                    format!("echo off > /sys/kernel/mm/damon/admin/kdamonds/{number}/state"),
                ));
            }
            self.add(&name, None, moves, &detail);
        }
    }

    fn programs(&mut self, look: &mut Look<'_>) {
        let pids = process::list(look.root);
        for pid in look.keep(pids).unwrap_or_default() {
            // Processes come and go, and others' may be hidden: neither is reported here.
            let Ok(Some(stat)) = process::stat(look.root, pid) else { continue };
            let Some((name, what)) = MOVERS.iter().find(|(name, _)| stat.comm == *name) else { continue };
            self.add(name, Some(pid), true, what);
            let cause =
                format!("{name} (pid {}) runs: it {what}; two managers fight over the same pages", pid.0);
            self.findings.push(Finding::new("others.daemon", Severity::Problem, cause).run(
                Ground::seen(!stat.kernel_thread),
                "stop it while thermocline runs",
                format!("kill {}", pid.0),
            ));
        }
    }

    fn thermocline(&mut self, look: &mut Look<'_>, state_dir: &Path) {
        match Lock::held(look.root, state_dir) {
            Some(Held { holder: Some(Holder { pid, is_thermocline: true, .. }), .. }) => {
                self.add("thermocline", Some(Pid(pid)), true, "manages this machine now");
                let cause =
                    format!("thermocline runs on this machine (pid {pid}); a second one would be refused");
                self.findings.push(Finding::new("others.thermocline", Severity::Note, cause));
                return;
            }
            Some(held) => {
                let cause = format!("{held}: `run` and `restore` would be refused; {}", held.remedy());
                self.findings.push(Finding::new("others.lock", Severity::Problem, cause));
                return;
            }
            None => {}
        }
        match log::read(state_dir) {
            Ok(left) if !left.entries.is_empty() || !left.damaged.is_empty() => {
                let cause = format!(
                    "a thermocline that was killed left {} kernel settings as it had set them",
                    left.entries.len()
                );
                self.findings.push(Finding::new("others.not_restored", Severity::Problem, cause).run(
                    Ground::OURS,
                    "put them back (the next start does it too)",
                    "thermocline restore",
                ));
            }
            Ok(_) => {}
            Err(error) => look.fail(error.to_string()),
        }
    }

    fn add(&mut self, name: &str, pid: Option<Pid>, moves: bool, detail: &str) {
        self.list.push(Other { name: name.to_owned(), pid, moves, detail: detail.to_owned() });
    }
}

/// Whether the kdamonds belong to a thermocline that runs, or was killed.
pub(super) fn our_kdamonds(look: &Look<'_>, state_dir: &Path) -> bool {
    let number = kdamonds(look.root).join("nr_kdamonds");
    log::read(state_dir).is_ok_and(|left| left.entries.iter().any(|entry| entry.path == number))
}

/// What a kdamond does with the regions that it finds.
fn actions(look: &mut Look<'_>, thread: &Path) -> Vec<String> {
    let mut actions = Vec::new();
    for context in look.list(&thread.join("contexts"), "") {
        for scheme in look.list(&context.join("schemes"), "") {
            actions.extend(look.word(&scheme.join("action")));
        }
    }
    actions
}
