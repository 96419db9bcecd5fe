//! Whose memory is managed: keeps the filter in the kernel and the engine's scopes in step with the
//! processes.

use std::collections::BTreeSet;
use std::path::PathBuf;

use thermocline_core::access::{Evidence, Membership};
use thermocline_core::config::{self, ScopeMap};
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
    /// Sets which of its lists count, and how many cgroups; false where that failed.
    fn set_filter(&self, scope: &Scope) -> bool;
}

/// Other scopes, ready to be used.
#[derive(Debug)]
pub(super) struct NewScopes {
    /// Compiled.
    pub(super) scopes: Scopes,
    /// The filter by them.
    pub(super) filter: Scope,
    /// From the present ones to them.
    pub(super) map: ScopeMap,
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
    /// Processes are tracked whatever the scopes are.
    follows_all: bool,
    own: Pid,
    /// The cgroup numbers last set in the filter; `None` for a cgroup that did not exist.
    cgroups: Vec<Option<u64>>,
    /// Processes that the filter lists.
    on_list: BTreeSet<Pid>,
    /// Processes that the filter leaves out.
    left_out: BTreeSet<Pid>,
    /// Processes that did not fit into the kernel's list: their faults are not seen.
    pub(super) unlisted: u64,
}

impl Managed {
    /// Creates the kernel's filter, and the state that keeps it in step.
    pub(super) fn new(root: &Root, scopes: &[config::Scope]) -> Result<(Scope, Managed), MachineError> {
        let prepared = Scopes::new(scopes)?;
        let filter = filter_by(root, &prepared)?;
        let cgroups = filter.cgroups.len() + filter.excluded_cgroups.len();
        let managed = Managed {
            root: root.clone(),
            members: prepared.are_any().then(|| Members::new(root, prepared.clone())),
            scopes: prepared,
            listed: filter.listed,
            follows_all: false,
            own: root.own_pid(),
            cgroups: vec![None; cgroups],
            on_list: BTreeSet::new(),
            left_out: BTreeSet::new(),
            unlisted: 0,
        };
        Ok((filter, managed))
    }

    /// Tracks all processes from now on, regardless of scopes.
    pub(super) fn follow_all(&mut self, root: &Root) -> Result<(), MachineError> {
        self.follows_all = true;
        if self.members.is_none() {
            self.members = Some(Members::new(root, Scopes::new(&[])?));
        }
        Ok(())
    }

    /// Prepares for other scopes than `before`.
    ///
    /// # Errors
    /// They cannot be used.
    pub(super) fn prepare(
        &self,
        before: &[config::Scope],
        after: &[config::Scope],
    ) -> Result<NewScopes, MachineError> {
        let scopes = Scopes::new(after)?;
        let filter = filter_by(&self.root, &scopes)?;
        Ok(NewScopes { scopes, filter, map: ScopeMap::new(before, after) })
    }

    /// Lets the filter go by the present scopes again.
    pub(super) fn keep_filter(&self, filter: &impl Filter) {
        if let Ok(by) = filter_by(&self.root, &self.scopes) {
            // Where it fails, the engine refuses what the filter passes.
            filter.set_filter(&by);
        }
    }

    /// Uses other scopes from now on; the filter already goes by them. The next look examines every
    /// process again.
    pub(super) fn set_scopes(&mut self, new: NewScopes, filter: Option<&impl Filter>) {
        let NewScopes { scopes, filter: by, map } = new;
        self.members = match (self.members.take(), self.follows_all || scopes.are_any()) {
            (_, false) => None,
            (None, true) => Some(Members::new(&self.root, scopes.clone())),
            (Some(mut members), true) => {
                members.set_scopes(scopes.clone(), &map);
                Some(members)
            }
        };
        (self.scopes, self.listed) = (scopes, by.listed);
        let before = std::mem::take(&mut self.cgroups).len();
        self.cgroups = vec![None; by.cgroups.len() + by.excluded_cgroups.len()];
        if let Some(filter) = filter {
            // The next look sets the cgroups that are there, and leaves none of the former ones.
            for (excluded, now) in [(false, &by.cgroups), (true, &by.excluded_cgroups)] {
                for place in now.len()..before {
                    filter.set_cgroup(place, excluded, None);
                }
                for (place, folder) in now.iter().enumerate() {
                    let there = Some(folder.clone()).filter(|folder| folder.is_dir());
                    filter.set_cgroup(place, excluded, there);
                }
            }
            self.list_anew(filter);
        }
    }

    /// Brings the filter's lists of processes to what is known.
    fn list_anew(&mut self, filter: &impl Filter) {
        let wanted: BTreeSet<Pid> = self.processes().filter(|_| self.listed).collect();
        for pid in self.on_list.difference(&wanted) {
            filter.include(*pid, false);
        }
        let listed = |pid: &Pid| self.on_list.contains(pid) || filter.include(*pid, true);
        let (on_list, unlisted): (BTreeSet<Pid>, BTreeSet<Pid>) = wanted.into_iter().partition(listed);
        self.on_list = on_list;
        self.unlisted += unlisted.len() as u64;
        if self.listed || self.members.is_none() {
            for pid in std::mem::take(&mut self.left_out) {
                filter.exclude(pid, false);
            }
        }
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
            if !managed {
                if self.on_list.remove(&change.pid) {
                    filter.include(change.pid, false);
                }
            } else if filter.include(change.pid, true) {
                self.on_list.insert(change.pid);
            } else {
                self.unlisted += 1;
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

/// The filter by which only faults of processes in these scopes are reported, as far as the kernel
/// can tell.
fn filter_by(root: &Root, scopes: &Scopes) -> Result<Scope, MachineError> {
    let all = scopes.only_exclude();
    let mut filter = Scope { all, listed: !all, exclusions: true, ..Scope::whole_machine() };
    for CgroupScope { folder, excluded, .. } in scopes.cgroups(root)? {
        let list = if excluded { &mut filter.excluded_cgroups } else { &mut filter.cgroups };
        list.push(folder);
    }
    Ok(filter)
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

    fn set_filter(&self, scope: &Scope) -> bool {
        self.set_filter(scope).is_ok()
    }
}

#[cfg(test)]
mod tests;
