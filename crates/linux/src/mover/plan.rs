//! What is mapped at the pages of a batch, and which addresses to pass to the kernel.

use std::ops::Range;

use thermocline_core::config::SharedPages;
use thermocline_core::moves::{Batch, Move, Outcome};
use thermocline_core::units::{PAGE_SHIFT, Pfn, Pid, VirtPage};

use super::kernel::Kernel;
use crate::pagemap::{Entry, PagemapError};

/// log2 of the largest folio whose pages are examined individually: 2 MiB, the largest that the
/// kernel splits when the target has no block of its size. Larger ones are hugetlb pages, which are
/// never split.
const SPLIT_ORDER_MAX: u8 = 9;
/// log2 of the largest folio there is, in base pages (1 GiB).
const FOLIO_ORDER_MAX: u8 = 18;
/// Virtual page numbers end here (57-bit addresses).
const VPN_END: u64 = 1 << (57 - PAGE_SHIFT);

/// One address for the kernel: a folio, or a page of a folio that has been split since the
/// evidence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Item {
    /// Index of the move in the batch.
    pub(super) of: usize,
    /// The page by which the kernel is given the folio.
    pub(super) page: VirtPage,
    /// The frame at that page, where the kernel shows it.
    pub(super) pfn: Option<Pfn>,
    /// It is another frame than the evidence's: its node is queried, because that refines the
    /// outcome, but it is not moved.
    pub(super) stale: bool,
    /// The virtual pages that the folio is mapped at, as far as they are checked after a failure.
    pub(super) vpns: Range<u64>,
    /// Base pages that move with it.
    pub(super) pages: u64,
}

/// The items of a batch, and the moves that ended before any.
#[derive(Debug, Default)]
pub(super) struct Plan {
    pub(super) items: Vec<Item>,
    /// Move and outcome.
    pub(super) ended: Vec<(usize, Outcome)>,
    /// Pages whose frame the kernel did not show.
    pub(super) frames_hidden: u64,
}

/// Looks up every move of a batch in the pagemap of its process.
///
/// # Errors
/// The error of the process's pagemap; it applies to every move.
pub(super) fn plan(
    kernel: &impl Kernel,
    batch: &Batch,
    shared_pages: SharedPages,
) -> Result<Plan, PagemapError> {
    let mut plan = Plan::default();
    let view = View::read(kernel, batch)?;
    for (of, m) in batch.moves.iter().enumerate() {
        if !sound(batch.pid, m) {
            plan.ended.push((of, Outcome::NotTried));
            continue;
        }
        let entry = view.entry(m.page.vpn);
        match judge(entry, shared_pages) {
            Some(outcome) => plan.ended.push((of, outcome)),
            None => {
                plan.frames_hidden += u64::from(entry.pfn().is_none());
                resolve(kernel, &view, of, m, &mut plan.items);
            }
        }
    }
    Ok(plan)
}

/// Whether a move is about this process and within the address space.
fn sound(pid: Pid, m: &Move) -> bool {
    m.page.pid == pid
        && m.order <= FOLIO_ORDER_MAX
        && m.page.vpn.checked_add(m.pages()).is_some_and(|end| end <= VPN_END)
}

/// The outcome of a move that needs no call.
fn judge(entry: Entry, shared_pages: SharedPages) -> Option<Outcome> {
    if entry.in_transit() {
        return Some(Outcome::Busy);
    }
    if !entry.present() {
        return Some(Outcome::Gone);
    }
    if shared_pages == SharedPages::Leave && !entry.exclusive() {
        return Some(Outcome::Shared);
    }
    None
}

/// Finds the addresses for a move: one for a whole folio, or one per page if it has been split.
fn resolve(kernel: &impl Kernel, view: &View, of: usize, m: &Move, items: &mut Vec<Item>) {
    let pfn = view.entry(m.page.vpn).pfn();
    let first = m.page.vpn;
    let head = |pfn: Pfn| pfn.0 >> m.order;
    let stale = matches!((pfn, m.pfn), (Some(now), Some(then)) if head(now) != head(then));
    let whole =
        |vpns: Range<u64>, pfn: Option<Pfn>| Item { of, page: m.page, pfn, stale, vpns, pages: m.pages() };
    let starts_folio = pfn.is_none_or(|p| p.0 & (m.pages() - 1) == 0);
    if stale || m.order == 0 || m.order > SPLIT_ORDER_MAX || !starts_folio {
        // The kernel takes the whole folio along from any of its pages.
        items.push(whole(first..first + 1, pfn));
        return;
    }
    let vpns = first..first + m.pages();
    let Some(head) = pfn else {
        items.push(whole(vpns, pfn));
        return;
    };
    // Pages after the first that do not belong to this folio: it has been split, or something else
    // is mapped there now.
    let strangers =
        vpns.clone().find(|&vpn| view.entry(vpn).pfn().is_some_and(|p| p.0 != head.0 + (vpn - first)));
    let is_folio = kernel.flags(head).map_or(strangers.is_none(), |flags| flags.compound_head());
    if is_folio {
        items.push(whole(first..strangers.unwrap_or(vpns.end), pfn));
        return;
    }
    for vpn in vpns {
        if let Some(pfn) = view.entry(vpn).pfn() {
            let page = VirtPage { pid: m.page.pid, vpn };
            items.push(Item { of, page, pfn: Some(pfn), stale, vpns: vpn..vpn + 1, pages: 1 });
        }
    }
}

/// Pagemap entries of all pages that the batch touches.
struct View {
    vpns: Vec<u64>,
    entries: Vec<Entry>,
}

impl View {
    fn read(kernel: &impl Kernel, batch: &Batch) -> Result<View, PagemapError> {
        let mut vpns = Vec::new();
        for m in batch.moves.iter().filter(|m| sound(batch.pid, m)) {
            let pages = if m.order <= SPLIT_ORDER_MAX { m.pages() } else { 1 };
            vpns.extend(m.page.vpn..m.page.vpn + pages);
        }
        vpns.sort_unstable();
        vpns.dedup();
        let mut entries = vec![Entry::default(); vpns.len()];
        kernel.entries(batch.pid, &vpns, &mut entries)?;
        Ok(View { vpns, entries })
    }

    /// The entry of a page; one that was not read is not mapped.
    fn entry(&self, vpn: u64) -> Entry {
        self.vpns.binary_search(&vpn).map(|i| self.entries[i]).unwrap_or_default()
    }
}
