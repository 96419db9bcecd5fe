//! Other movers and watchers of pages.

use std::path::Path;

use thermocline_core::units::Pid;

use crate::actuator::{Held, Holder, Lock, log};
use crate::doctor::kernel::KernelInfo;
use crate::doctor::report::Other;
use crate::finding::{Facts, Finding, Ground, Kind, Look};

/// The findings.
pub(super) struct Others {
    pub(super) list: Vec<Other>,
    pub(super) findings: Vec<Finding>,
}

/// Lists all other movers of pages, and finds out whether a thermocline runs or was killed.
pub(super) fn others(look: &mut Look<'_>, kernel: &KernelInfo, facts: &Facts, state_dir: &Path) -> Others {
    let mut found = Others { list: Vec::new(), findings: Vec::new() };
    found.kernel(kernel);
    for module in &facts.others.modules {
        found.add(module.name, None, module.moves, module.what);
    }
    for kdamond in &facts.others.kdamonds {
        let name = format!("kdamond {}", kdamond.number);
        found.add(&name, None, kdamond.moves(), &kdamond.detail());
    }
    for program in &facts.others.programs {
        found.add(program.name, Some(program.pid), true, program.what);
    }
    found.thermocline(look, state_dir);
    found
}

impl Others {
    fn kernel(&mut self, kernel: &KernelInfo) {
        let now = kernel.numa_balancing.unwrap_or(0);
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
        if kernel.demotion_enabled == Some(true) {
            self.add(
                "kernel demotion",
                None,
                true,
                "moves cold pages to the next tier under memory pressure",
            );
        }
    }

    fn thermocline(&mut self, look: &mut Look<'_>, state_dir: &Path) {
        match Lock::held(look.root, state_dir) {
            Some(Held { holder: Some(Holder { pid, is_thermocline: true, .. }), .. }) => {
                self.add("thermocline", Some(Pid(pid)), true, "manages this machine now");
                let cause =
                    format!("thermocline runs on this machine (pid {pid}); a second one would be refused");
                self.findings.push(Finding::new(Kind::OthersThermocline, cause));
                return;
            }
            Some(held) => {
                let cause = format!("{held}: `run` and `restore` would be refused; {}", held.remedy());
                self.findings.push(Finding::new(Kind::OthersLock, cause));
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
                self.findings.push(Finding::new(Kind::OthersNotRestored, cause).run(
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
