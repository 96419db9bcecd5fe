//! Other movers of pages: modules of the kernel, kdamonds, programs.

use std::path::Path;

use thermocline_core::units::Pid;

use super::Look;
use crate::actuator::{kdamonds, log, same_value};
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
    (DAMON_STAT, false, "watches all memory for statistics and moves nothing"),
];

/// The module that has DAMON watch from boot on.
pub(super) const DAMON_STAT: &str = "damon_stat";

/// The movers at work.
#[derive(Clone, Debug, Default)]
pub struct Others {
    /// Modules of DAMON's that run.
    pub modules: Vec<Module>,
    /// Kdamonds that run.
    pub kdamonds: Vec<Kdamond>,
    /// The kdamonds belong to a thermocline that runs, or was killed.
    pub our_kdamonds: bool,
    /// Programs known to move pages.
    pub programs: Vec<Program>,
}

/// A kernel module that runs DAMON.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Module {
    /// Its name.
    pub name: &'static str,
    /// Whether it moves pages.
    pub moves: bool,
    /// What it does.
    pub what: &'static str,
}

/// A thread of DAMON's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kdamond {
    /// Its number in sysfs.
    pub number: String,
    /// What it does with the regions that it finds.
    pub actions: Vec<String>,
}

impl Kdamond {
    /// Whether it moves or reclaims pages.
    pub fn moves(&self) -> bool {
        self.actions.iter().any(|action| action != "stat")
    }

    /// What it does, in words.
    pub fn detail(&self) -> String {
        match self.actions.is_empty() {
            true => "watches memory".to_owned(),
            false => format!("actions: {}", self.actions.join(", ")),
        }
    }
}

/// A program that moves pages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Program {
    /// Its name.
    pub name: &'static str,
    /// What it does.
    pub what: &'static str,
    /// The process.
    pub pid: Pid,
    /// Whether it is a kernel thread, which cannot be stopped.
    pub kernel_thread: bool,
}

impl Others {
    /// Reads what DAMON does, and leaves programs out.
    pub(super) fn read(look: &mut Look<'_>, state_dir: &Path) -> Others {
        let mut modules = Vec::new();
        for (name, moves, what) in MODULES {
            let enabled = look.word(&look.root.sys.join("module").join(name).join("parameters/enabled"));
            if enabled.is_some_and(|text| same_value(&text, "Y")) {
                modules.push(Module { name, moves, what });
            }
        }
        let mut running = Vec::new();
        for thread in look.list(&kdamonds(look.root), "") {
            if look.word(&thread.join("state")).as_deref() != Some("on") {
                continue;
            }
            let number = thread.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
            let actions = actions(look, &thread);
            running.push(Kdamond { number, actions });
        }
        let our_kdamonds = our_kdamonds(look, state_dir);
        Others { modules, kdamonds: running, our_kdamonds, programs: Vec::new() }
    }

    /// Looks for programs, at every process.
    pub(crate) fn read_programs(look: &mut Look<'_>) -> Vec<Program> {
        let pids = process::list(look.root);
        let pids = look.keep(pids).unwrap_or_default();
        // Processes come and go, and others' may be hidden: neither is reported here.
        let stats = pids.into_iter().filter_map(|pid| process::stat(look.root, pid).ok()?);
        stats
            .filter_map(|stat| {
                let (name, what) = MOVERS.into_iter().find(|(name, _)| stat.comm == *name)?;
                Some(Program { name, what, pid: stat.pid, kernel_thread: stat.kernel_thread })
            })
            .collect()
    }
}

/// Whether the kdamonds belong to a thermocline that runs, or was killed.
pub(crate) fn our_kdamonds(look: &Look<'_>, state_dir: &Path) -> bool {
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
