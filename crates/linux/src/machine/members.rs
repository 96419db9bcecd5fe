//! Whose memory is managed: keeps the filter in the kernel and the engine's scopes in step with the processes.

use thermocline_core::access::Evidence;
use thermocline_core::config;
use thermocline_core::units::Pid;

use super::MachineError;
use crate::root::Root;
use crate::scope::{Member, Members, Scopes};
use crate::source::hintfault::{HintFaultSource, Scope};

/// The members of all scopes, and the processes that the kernel's filter could not take.
#[derive(Debug)]
pub(super) struct Managed {
    /// None where nobody has to be looked for: the whole machine is managed, and every access says whose it is.
    members: Option<Members>,
    /// The filter lists members one by one.
    listed: bool,
    own: Pid,
    /// Processes that did not fit into the kernel's list: their faults are not seen.
    pub(super) unlisted: u64,
}

impl Managed {
    /// The filter for the kernel, and what keeps it in step.
    pub(super) fn new(root: &Root, scopes: &[config::Scope]) -> Result<(Scope, Managed), MachineError> {
        let prepared = Scopes::new(scopes)?;
        let all = scopes.iter().all(|s| s.exclude);
        let mut filter = Scope { all, listed: !all, exclusions: true, ..Scope::whole_machine() };
        for cgroup in prepared.cgroups(root)? {
            let list =
                if cgroup.scope.is_some() { &mut filter.cgroups } else { &mut filter.excluded_cgroups };
            list.push(cgroup.folder);
        }
        let members = (!scopes.is_empty()).then(|| Members::new(root, prepared));
        Ok((filter, Managed { members, listed: !all, own: Pid(std::process::id()), unlisted: 0 }))
    }

    /// Everybody is looked for from now on, whatever the scopes.
    pub(super) fn follow_all(&mut self, root: &Root) -> Result<(), MachineError> {
        if self.members.is_none() {
            self.members = Some(Members::new(root, Scopes::new(&[])?));
        }
        Ok(())
    }

    /// The processes whose memory is managed, where they are looked for.
    pub(super) fn processes(&self) -> impl Iterator<Item = Pid> + '_ {
        self.members().map(|member| member.pid)
    }

    /// The same, with when each of them started.
    pub(super) fn members(&self) -> impl Iterator<Item = Member> + '_ {
        self.members.iter().flat_map(Members::iter)
    }

    /// Looks who came and went, and tells the kernel and the engine.
    pub(super) fn look(
        &mut self,
        source: Option<&HintFaultSource>,
        mut observe: impl FnMut(Evidence<'_>),
    ) -> Result<(), MachineError> {
        let Some(members) = &mut self.members else { return Ok(()) };
        let change = members.look()?;
        for gone in &change.removed {
            if let Some(source) = source.filter(|_| self.listed) {
                // A process that exited took itself off the list.
                let _ = source.include(gone.pid, false);
            }
            observe(Evidence::Exit { pid: gone.pid });
        }
        for new in &change.added {
            let failed = source.is_some_and(|source| self.listed && source.include(new.pid, true).is_err());
            self.unlisted += u64::from(failed);
            observe(Evidence::Process { pid: new.pid, scope: new.scope });
        }
        Ok(())
    }

    /// Whether a process's memory is managed, as far as is known by now: for sources that see the whole machine.
    pub(super) fn in_scope(&self, pid: Pid) -> bool {
        pid != self.own && self.members.as_ref().is_none_or(|members| members.scope_of(pid).is_some())
    }

    /// Our own memory never moves.
    pub(super) fn leave_out_ourselves(source: &HintFaultSource) {
        // The list is empty as yet, so that there is room; without the entry the engine would refuse nothing but
        // our own pages, which are few.
        let _ = source.exclude(Pid(std::process::id()), true);
    }
}
