//! Whose memory is managed: keeps the filter in the kernel and the engine's scopes in step with the
//! processes.

use std::collections::BTreeSet;
use std::path::PathBuf;

use thermocline_core::access::{Evidence, Membership};
use thermocline_core::config;
use thermocline_core::units::Pid;

use super::MachineError;
use crate::root::Root;
use crate::scope::{CgroupScope, Change, Known, Member, Members, Scopes};
use crate::source::hintfault::Scope;

/// The kernel's filter of hint faults, as far as it follows processes and cgroups. After an error
/// the engine refuses what the filter passes.
pub(super) trait Filter {
    /// Lists a process, or takes it off the list; false where that failed.
    fn include(&self, pid: Pid, listed: bool) -> bool;
    /// Leaves a process out, or takes that back; false where that failed.
    fn exclude(&self, pid: Pid, excluded: bool) -> bool;
    /// Sets the cgroup at this place among the configured ones to the one in `folder`, or to none;
    /// false where that failed.
    fn set_cgroup(&self, place: usize, excluded: bool, folder: Option<PathBuf>) -> bool;
}

/// The members of all scopes, and the kernel filter's copy of them.
#[derive(Debug)]
pub(super) struct Managed {
    root: Root,
    scopes: Scopes,
    /// `None` if processes need not be tracked: the whole machine is managed, and every access
    /// names its process.
    members: Option<Members>,
    /// The filter lists members individually.
    listed: bool,
    own: Pid,
    /// The cgroup numbers last set in the filter; `None` for a cgroup that did not exist.
    cgroups: Vec<Option<u64>>,
    /// Processes that the filter leaves out.
    left_out: BTreeSet<Pid>,
    /// Processes that did not fit into the kernel's list: their faults are not seen.
    pub(super) unlisted: u64,
}

impl Managed {
    /// Creates the kernel's filter, and the state that keeps it in step.
    pub(super) fn new(root: &Root, scopes: &[config::Scope]) -> Result<(Scope, Managed), MachineError> {
        let prepared = Scopes::new(scopes)?;
        let all = prepared.only_exclude();
        let mut filter = Scope { all, listed: !all, exclusions: true, ..Scope::whole_machine() };
        let cgroups = prepared.cgroups(root)?;
        for CgroupScope { folder, excluded, .. } in &cgroups {
            let list = if *excluded { &mut filter.excluded_cgroups } else { &mut filter.cgroups };
            list.push(folder.clone());
        }
        let managed = Managed {
            root: root.clone(),
            members: prepared.are_any().then(|| Members::new(root, prepared.clone())),
            scopes: prepared,
            listed: !all,
            own: root.own_pid(),
            cgroups: vec![None; cgroups.len()],
            left_out: BTreeSet::new(),
            unlisted: 0,
        };
        Ok((filter, managed))
    }

    /// Tracks all processes from now on, regardless of scopes.
    pub(super) fn follow_all(&mut self, root: &Root) -> Result<(), MachineError> {
        if self.members.is_none() {
            self.members = Some(Members::new(root, Scopes::new(&[])?));
        }
        Ok(())
    }

    /// The processes whose memory is managed, if they are tracked.
    pub(super) fn processes(&self) -> impl Iterator<Item = Pid> + '_ {
        self.members().map(|member| member.pid)
    }

    /// The same, with the start time of each.
    pub(super) fn members(&self) -> impl Iterator<Item = Member> + '_ {
        self.members.iter().flat_map(Members::iter)
    }

    /// Whether a scan of the processes is incomplete, or a process is to be examined out of turn.
    pub(super) fn is_busy(&self) -> bool {
        self.members.as_ref().is_some_and(Members::is_busy)
    }

    /// Looks for changes of processes and cgroups, and reports them to the kernel and the engine;
    /// see [`Members::look_while`].
    pub(super) fn look(
        &mut self,
        anew: bool,
        go_on: impl FnMut() -> bool,
        filter: Option<&impl Filter>,
        mut observe: impl FnMut(Evidence<'_>),
    ) -> Result<(), MachineError> {
        let Some(members) = &mut self.members else { return Ok(()) };
        let changes = members.look_while(anew, go_on)?;
        if let Some(filter) = filter.filter(|_| anew) {
            self.follow_cgroups(filter)?;
        }
        for change in changes {
            if let Some(filter) = filter {
                self.tell_filter(filter, &change);
            }
            if change.is_end() {
                observe(Evidence::Exit { pid: change.pid });
            }
            if let Some(Known { membership, .. }) = change.now {
                observe(Evidence::Process { pid: change.pid, membership });
            }
        }
        Ok(())
    }

    /// Keeps the filter at the cgroups that have the configured paths now: a restarted service has
    /// another cgroup with the same name.
    fn follow_cgroups(&mut self, filter: &impl Filter) -> Result<(), MachineError> {
        let mut places = [0, 0];
        for (known, found) in self.cgroups.iter_mut().zip(self.scopes.cgroups(&self.root)?) {
            let place = &mut places[usize::from(found.excluded)];
            let folder = found.id.map(|_| found.folder);
            if *known != found.id && filter.set_cgroup(*place, found.excluded, folder) {
                *known = found.id;
            }
            *place += 1;
        }
        Ok(())
    }

    fn tell_filter(&mut self, filter: &impl Filter, change: &Change) {
        let membership = change.now.map_or(Membership::Unexamined, |now| now.membership);
        let managed = matches!(membership, Membership::Managed(_));
        if self.listed {
            if managed {
                self.unlisted += u64::from(!filter.include(change.pid, true));
            } else if change.before.is_some() {
                filter.include(change.pid, false);
            }
        } else if membership == Membership::Excluded {
            if filter.exclude(change.pid, true) {
                self.left_out.insert(change.pid);
            }
        } else if self.left_out.remove(&change.pid) {
            filter.exclude(change.pid, false);
        }
    }

    /// A process has called exec: its pages are new, and if scopes match by command it is in no
    /// scope until it has been examined.
    pub(super) fn exec(&mut self, pid: Pid, mut observe: impl FnMut(Evidence<'_>)) {
        observe(Evidence::Exec { pid });
        if let Some(Known { membership, .. }) = self.members.as_mut().and_then(|m| m.exec(pid)?.now) {
            observe(Evidence::Process { pid, membership });
        }
    }

    /// A process is gone.
    pub(super) fn exit(&mut self, pid: Pid, mut observe: impl FnMut(Evidence<'_>)) {
        if let Some(members) = &mut self.members {
            members.exit(pid);
        }
        observe(Evidence::Exit { pid });
    }

    /// Whether a process's memory is managed, as far as known: for sources that see the whole
    /// machine.
    pub(super) fn in_scope(&self, pid: Pid) -> bool {
        let managed = |members: &Members| matches!(members.membership(pid), Membership::Managed(_));
        pid != self.own && self.members.as_ref().is_none_or(managed)
    }

    /// Our own memory never moves.
    pub(super) fn leave_out_ourselves(filter: &impl Filter) {
        // The list is still empty, so there is room. Without the entry the engine would refuse our
        // own pages, which are few.
        let _ = filter.exclude(Pid(std::process::id()), true);
    }
}

impl Filter for crate::source::hintfault::HintFaultSource {
    fn include(&self, pid: Pid, listed: bool) -> bool {
        self.include(pid, listed).is_ok()
    }

    fn exclude(&self, pid: Pid, excluded: bool) -> bool {
        self.exclude(pid, excluded).is_ok()
    }

    fn set_cgroup(&self, place: usize, excluded: bool, folder: Option<PathBuf>) -> bool {
        self.set_cgroup(place, excluded, folder.as_deref()).is_ok()
    }
}

#[cfg(test)]
mod tests;
