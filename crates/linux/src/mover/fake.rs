//! A kernel of one process, for tests: it keeps pages on nodes and moves them the way move_pages
//! does, sub-batches and unwritten statuses included.

use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};

use rustix::io::Errno;
use thermocline_core::access::Membership;
use thermocline_core::units::{Nanos, NodeId, Pfn, Pid, ScopeId};

use super::kernel::Kernel;
use crate::numa_maps::Policy;
use crate::pagemap::{Entry, FrameFlags, PagemapError};
use crate::root::KernelFileError;
use crate::scope::{Scopes, Traits};
use crate::sys::{MovePagesError, MoveWhat};

/// A page of the process.
#[derive(Clone, Copy, Debug)]
pub(super) struct FakePage {
    pub(super) pfn: u64,
    pub(super) node: u16,
    /// Other processes map it, too.
    pub(super) shared: bool,
    /// It can be isolated but not migrated.
    pub(super) pinned: bool,
    /// It cannot be isolated.
    pub(super) off_lru: bool,
    /// Bits of /proc/kpageflags.
    pub(super) flags: u64,
}

/// The state of the fake.
#[derive(Debug)]
pub(super) struct State {
    /// Start time; `None` when the process has ended.
    pub(super) start: Option<u64>,
    pub(super) pages: BTreeMap<u64, FakePage>,
    /// Pagemap entries that are not present pages.
    pub(super) special: BTreeMap<u64, u64>,
    /// Whether its memory may move.
    pub(super) membership: Membership,
    /// The memory policies.
    pub(super) policies: Vec<(u64, Policy)>,
    /// How often they were read.
    pub(super) policy_looks: u32,
    /// Pages that the target can still take before a call ends with ENOMEM.
    pub(super) free: u64,
    /// Fails the next call that moves, before it has moved anything.
    pub(super) error: Option<MovePagesError>,
    /// Fails queries from the nth on.
    pub(super) query_error: Option<(u32, MovePagesError)>,
    /// Fails the opening of pagemap.
    pub(super) pagemap_error: Option<i32>,
    /// Moving panics.
    pub(super) panics: bool,
    /// Frame numbers read 0, as without CAP_SYS_ADMIN.
    pub(super) hide_frames: bool,
    pub(super) may_move_shared: bool,
    /// Addresses of each call that moves.
    pub(super) calls: Vec<Vec<u64>>,
    pub(super) queries: u32,
    now: u64,
    next_pfn: u64,
}

#[derive(Clone)]
pub(super) struct Fake {
    state: Arc<Mutex<State>>,
    gate: Arc<(Mutex<bool>, Condvar)>,
}

impl Fake {
    /// A process that started at 100, without pages.
    pub(super) fn new() -> Fake {
        let state = State {
            start: Some(100),
            pages: BTreeMap::new(),
            special: BTreeMap::new(),
            membership: Membership::Managed(ScopeId::DEFAULT),
            policies: Vec::new(),
            policy_looks: 0,
            free: u64::MAX,
            error: None,
            query_error: None,
            pagemap_error: None,
            panics: false,
            hide_frames: false,
            may_move_shared: true,
            calls: Vec::new(),
            queries: 0,
            now: 0,
            next_pfn: 1 << 30,
        };
        Fake { state: Arc::new(Mutex::new(state)), gate: Arc::new((Mutex::new(true), Condvar::new())) }
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// Maps a page on a node; its frame is its virtual page number plus 0x100000.
    pub(super) fn map(&self, vpn: u64, node: u16) {
        let page =
            FakePage { pfn: vpn + 0x10_0000, node, shared: false, pinned: false, off_lru: false, flags: 0 };
        self.state().pages.insert(vpn, page);
    }

    /// Maps a folio of `pages` pages.
    pub(super) fn map_folio(&self, vpn: u64, pages: u64, node: u16) {
        for i in 0..pages {
            self.map(vpn + i, node);
            self.change(vpn + i, |p| p.flags = if i == 0 { HEAD } else { TAIL });
        }
    }

    pub(super) fn change(&self, vpn: u64, change: impl FnOnce(&mut FakePage)) {
        change(self.state().pages.get_mut(&vpn).unwrap());
    }

    /// Blocks calls that move until the gate opens.
    pub(super) fn gate(&self, open: bool) {
        *self.gate.0.lock().unwrap() = open;
        self.gate.1.notify_all();
    }
}

/// Bits of /proc/kpageflags.
pub(super) const LOCKED: u64 = 1;
pub(super) const HEAD: u64 = 1 << 15;
pub(super) const TAIL: u64 = 1 << 16;

impl State {
    /// The virtual pages of the folio at `vpn`.
    fn folio(&self, vpn: u64) -> Vec<u64> {
        let page = self.pages[&vpn];
        let head = if page.flags & TAIL != 0 {
            *self
                .pages
                .range(..vpn)
                .rev()
                .find(|(_, p)| p.flags & HEAD != 0)
                .expect("a tail follows a head")
                .0
        } else {
            vpn
        };
        let tails = self.pages.range(head + 1..).take_while(|(_, p)| p.flags & TAIL != 0);
        std::iter::once(head).chain(tails.map(|(&vpn, _)| vpn)).collect()
    }

    /// Migrates isolated folios; the number that stayed, or ENOMEM.
    fn migrate(&mut self, folios: &[Vec<u64>], target: u16) -> Result<u64, MovePagesError> {
        let mut stayed = 0;
        for folio in folios {
            if self.pages[&folio[0]].pinned {
                stayed += 1;
                continue;
            }
            for vpn in folio {
                // A folio for which there is no room is split; what fits of it moves.
                if self.free == 0 {
                    return Err(MovePagesError::NodeFull(NodeId(target)));
                }
                self.free -= 1;
                self.next_pfn += 1;
                let next = self.next_pfn;
                let page = self.pages.get_mut(vpn).expect("it is mapped");
                (page.node, page.pfn) = (target, next);
            }
        }
        Ok(stayed)
    }
}

impl Kernel for Fake {
    fn start_time(&self, _pid: Pid) -> Result<Option<u64>, KernelFileError> {
        Ok(self.state().start)
    }

    fn membership(&self, _pid: Pid) -> Result<Membership, KernelFileError> {
        Ok(self.state().membership)
    }

    /// With a scope that names nobody, nobody's memory moves.
    fn set_scopes(&mut self, scopes: Scopes) {
        let nobody = Traits { pid: Pid(u32::MAX), ..Traits::default() };
        self.state().membership = scopes.membership(nobody);
    }

    fn entries(&self, pid: Pid, vpns: &[u64], entries: &mut [Entry]) -> Result<(), PagemapError> {
        let state = self.state();
        if let Some(errno) = state.pagemap_error {
            let path = PathBuf::from(format!("/proc/{}/pagemap", pid.0));
            return Err(PagemapError::new(&path, io::Error::from_raw_os_error(errno)));
        }
        assert!(vpns.is_sorted() && vpns.len() == entries.len());
        for (vpn, entry) in vpns.iter().zip(entries) {
            let present = state.pages.get(vpn).map(|p| {
                let pfn = if state.hide_frames { 0 } else { p.pfn };
                1 << 63 | u64::from(!p.shared) << 56 | pfn
            });
            *entry = Entry(present.or_else(|| state.special.get(vpn).copied()).unwrap_or(0));
        }
        Ok(())
    }

    fn policies(&self, _pid: Pid) -> Result<Vec<(u64, Policy)>, KernelFileError> {
        let mut state = self.state();
        state.policy_looks += 1;
        Ok(state.policies.clone())
    }

    fn flags(&self, pfn: Pfn) -> Option<FrameFlags> {
        let state = self.state();
        let page = state.pages.values().find(|p| p.pfn == pfn.0)?;
        Some(FrameFlags(page.flags))
    }

    fn query(&self, _pid: Pid, addresses: &[u64], status: &mut [i32]) -> Result<(), MovePagesError> {
        let mut state = self.state();
        state.queries += 1;
        match state.query_error {
            Some((from, error)) if state.queries >= from => return Err(error),
            _ => {}
        }
        for (address, status) in addresses.iter().zip(status) {
            *status = state.pages.get(&(address >> 12)).map_or(-libc::ENOENT, |p| i32::from(p.node));
        }
        Ok(())
    }

    fn move_pages(
        &self,
        _pid: Pid,
        addresses: &[u64],
        target: NodeId,
        what: MoveWhat,
        status: &mut [i32],
    ) -> Result<u64, MovePagesError> {
        let open = self.gate.0.lock().unwrap();
        drop(self.gate.1.wait_while(open, |open| !*open).unwrap());
        let mut state = self.state();
        state.now += 1000;
        assert!(!state.panics, "the fake was told to panic");
        state.calls.push(addresses.to_vec());
        if let Some(error) = state.error {
            return Err(error);
        }
        let count = addresses.len();
        let (mut first, mut isolated, mut taken) = (0, Vec::new(), Vec::new());
        for (i, address) in addresses.iter().enumerate() {
            let answer = match state.pages.get(&(address >> 12)).copied() {
                None => -libc::ENOENT,
                Some(p) if p.node == target.0 => p.node.into(),
                Some(p) if p.shared && what == MoveWhat::Own => -libc::EACCES,
                Some(p) if p.off_lru || taken.contains(&p.pfn) => -libc::EBUSY,
                Some(_) => {
                    let folio = state.folio(address >> 12);
                    taken.extend(folio.iter().map(|vpn| state.pages[vpn].pfn));
                    isolated.push(folio);
                    continue;
                }
            };
            status[i] = answer;
            let stayed = state.migrate(&isolated, target.0)?;
            if stayed > 0 {
                return Ok(stayed + (count - i - 1) as u64);
            }
            status[first..i].fill(target.0.into());
            (first, isolated) = (i + 1, Vec::new());
        }
        let stayed = state.migrate(&isolated, target.0)?;
        if stayed == 0 {
            status[first..].fill(target.0.into());
        }
        Ok(stayed)
    }

    fn may_move_shared(&self) -> bool {
        self.state().may_move_shared
    }

    fn now(&self) -> Nanos {
        let mut state = self.state();
        state.now += 1;
        Nanos(state.now)
    }
}

/// Every error that a call can end with.
pub(super) fn errors(pid: Pid, node: NodeId) -> [MovePagesError; 8] {
    [
        MovePagesError::NoProcess(pid),
        MovePagesError::NoMemoryMap(pid),
        MovePagesError::NotPermitted(pid),
        MovePagesError::NodeForbidden(pid, node),
        MovePagesError::NodeAbsent(node),
        MovePagesError::NodeFull(node),
        MovePagesError::NotOffered,
        MovePagesError::Other(pid, Errno::IO),
    ]
}
