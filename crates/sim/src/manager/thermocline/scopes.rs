//! The scopes of processes, their top-tier holdings and their memory pressure.
//!
//! A simulated process has the cgroup `/NAME`, with its name in the scenario; processes with the
//! same name share it. No task of a running program waits for memory, so the cgroups' pressure is
//! zero. The machine's is kswapd's time, which the kernel counts as well (Linux 6.12 `mm/vmscan.c`,
//! `balance_pgdat`); it is never the time of all tasks.

use regex::Regex;
use thermocline_core::access::{Evidence, Holding, Membership, Pressure};
use thermocline_core::cgroup::normal;
use thermocline_core::config::{Config, Scope, counted};
use thermocline_core::units::ScopeId;

use crate::memory::flags;
use crate::spec::SpecError;
use crate::system::{Process, System};

/// A configured scope.
#[derive(Debug)]
struct Criteria {
    keys: Scope,
    command: Option<Regex>,
    cgroup: Option<String>,
}

impl Criteria {
    fn names(&self, pid: u32, name: &str) -> bool {
        let keys = &self.keys;
        let within = |path: &String| path == "/" || format!("/{name}/").starts_with(&format!("{path}/"));
        (!keys.pids.is_empty() || self.command.is_some() || self.cgroup.is_some())
            && (keys.pids.is_empty() || keys.pids.contains(&pid))
            && self.command.as_ref().is_none_or(|command| command.is_match(name))
            && self.cgroup.as_ref().is_none_or(within)
    }
}

/// See the module's description.
#[derive(Debug)]
pub(super) struct Scopes {
    all: Vec<Criteria>,
    /// The places of those whose holding counts.
    counted: Vec<usize>,
    /// The engine knows the processes' scopes.
    assigned: bool,
    brakes: bool,
}

impl Scopes {
    /// The configured scopes.
    ///
    /// # Errors
    /// A command is not a regular expression.
    pub(super) fn new(config: &Config) -> Result<Scopes, SpecError> {
        let criteria = |(i, keys): (usize, &Scope)| {
            let command = keys.command.as_deref().map(Regex::new).transpose().map_err(|e| {
                let place = format!("config.scope[{i}].command");
                SpecError::new(&place, e.to_string(), "give a regular expression")
            })?;
            Ok(Criteria { keys: keys.clone(), command, cgroup: keys.cgroup.as_deref().map(normal) })
        };
        let all = config.scope.iter().enumerate().map(criteria).collect::<Result<_, SpecError>>()?;
        Ok(Scopes { all, counted: counted(&config.scope), assigned: false, brakes: config.brake.enabled })
    }

    fn of(&self, index: usize, name: &str) -> Membership {
        let pid = Process::pid(index).0;
        Membership::among(&self.all, |scope| scope.keys.exclude, |scope| scope.names(pid, name))
    }

    /// Reports once the membership of each process: excluded if a scope excludes it, else in the
    /// first scope that names it. Reports the memory pressure each time, if something may be
    /// braked.
    pub(super) fn report(&mut self, system: &System, observe: &mut dyn FnMut(Evidence<'_>)) {
        if !std::mem::replace(&mut self.assigned, true) {
            for (i, process) in system.processes.iter().enumerate() {
                let membership = self.of(i, &process.name);
                observe(Evidence::Process { pid: Process::pid(i), membership });
            }
        }
        if !self.brakes {
            return;
        }
        let machine_us = system.kswapd.iter().map(|k| k.worked_ns / 1e3).fold(0.0, f64::max) as u64;
        let managed = self.all.iter().enumerate().filter(|(_, scope)| !scope.keys.exclude);
        let mut told: Vec<(ScopeId, u64)> = managed
            .map(|(place, scope)| {
                let alone = scope.cgroup.as_ref().is_some_and(|path| path != "/");
                (ScopeId::of_place(place), if alone { 0 } else { machine_us })
            })
            .collect();
        if told.is_empty() {
            told.push((ScopeId::DEFAULT, machine_us));
        }
        for (scope, some_us) in told {
            observe(Evidence::Pressure(Pressure { scope, time: system.now, some_us, full_us: 0 }));
        }
    }

    /// Reports the top-tier holdings of the scopes that count.
    pub(super) fn hold(&self, system: &System, observe: &mut dyn FnMut(Evidence<'_>)) {
        let top = usize::from(system.machine.top);
        for &place in &self.counted {
            let id = ScopeId::of_place(place);
            let mut pages = 0;
            for (i, process) in system.processes.iter().enumerate() {
                if self.of(i, &process.name) == Membership::Managed(id) {
                    let space = &system.memory.spaces[i];
                    let nodes = system.memory.bytes(space.start..space.end);
                    pages += nodes.iter().filter(|b| usize::from(**b & flags::NODE) < top).count();
                }
            }
            observe(Evidence::Holding(Holding { scope: id, time: system.now, pages: pages as u64 }));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_exclusion_wins_wherever_it_stands() {
        let scope =
            |command: &str, exclude| Scope { command: Some(command.to_owned()), exclude, ..Scope::default() };
        let of = |scopes: Vec<Scope>, name| {
            let config = Config { scope: scopes, ..Config::default() };
            Scopes::new(&config).unwrap().of(0, name)
        };
        let first = Membership::Managed(ScopeId::of_place(0));
        let both = || vec![scope(".", false), scope("^p$", true)];
        assert_eq!((of(both(), "p"), of(both(), "q")), (Membership::Excluded, first));
        let turned = || both().into_iter().rev().collect();
        assert_eq!(of(turned(), "p"), Membership::Excluded);
        assert_eq!(of(turned(), "q"), Membership::Managed(ScopeId::of_place(1)));
        assert_eq!(of(vec![scope("^p$", true)], "q"), Membership::Managed(ScopeId::DEFAULT));
        assert_eq!(of(vec![scope("^p$", false)], "q"), Membership::Excluded);
    }
}
