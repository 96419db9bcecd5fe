//! Wrapper `speculative`: along with a hot page of a stream of hint faults, proposes the next
//! pages.
//!
//! The wrapped rule sees everything first. Then, for each hint fault on a base page below the top
//! tier:
//! 1. `windows = "published"`: the one window of the page's mapping is adjusted as S2 does: it
//!    opens at 2 pages, grows by 1 when the stream went past it, shrinks by 2 at a fault elsewhere.
//! 2. `windows = "streams"` (default): a mapping has up to `streams` (8) windows, each with a
//!    direction. A fault belongs to the stream that expects it; otherwise it starts a new one, in
//!    place of the one with the smallest window, oldest first. A window unused for `stream_ms`
//!    (1000) counts as none. A window opens at 2 pages when a second fault comes next to the first,
//!    and grows by 1 with each fault of the stream whose page the wrapped rule proposes. So a
//!    stream that is faster than the moves is followed farther ahead with each page, until they
//!    come before it.
//! 3. If the wrapped rule proposed the page, up to window + 1 pages in the stream's direction are
//!    proposed with it, with one point of score less for each page of distance, and none of them
//!    twice. They must lie in the same mapping and 2 MiB block, be marked by a scan and be below
//!    the top tier; the first page that fails this ends the series.
//!
//! Source: S2, "mm: Add speculative numa fault support" (2021-12). With its single window per
//! mapping, interleaved and descending streams look random; `streams` is ours. S2 goes on from page
//! to page while they migrate; here moves end later, so the proposal counts. S2 keeps a window as
//! it is at a fault within it, whose page could not be migrated; here it has mostly not been moved
//! yet.

mod streams;

use crate::access::{Access, Detail, RegionPage, RegionSnapshot};
use crate::candidate::{Candidate, Candidates, Reason};
use crate::config;
use crate::config::rule::Windows;
use crate::demand::Supply;
use crate::moves::{Move, Outcome};
use crate::published::window::{self, Window};
use crate::record::Record;
use crate::rule::{Context, Gauge, Rule};
use crate::topology::NodeState;
use crate::units::{Nanos, NodeId, Pid, VirtPage};
use streams::{Ahead, Direction, Streams};

/// Base pages in a block that one page-table page maps: speculation ends there, as in S2.
const BLOCK_PAGES: u64 = 512;

/// A mapping's windows.
#[derive(Clone, Debug)]
enum State {
    Published(Window),
    Streams(Streams),
}

/// A mapping that had a hint fault.
#[derive(Clone, Debug)]
struct Mapping {
    pid: Pid,
    start: u64,
    state: State,
}

/// See the module's description.
#[derive(Debug)]
pub struct Speculative {
    inner: Box<dyn Rule>,
    config: config::rule::Speculative,
    /// A hash table with one mapping per slot; a new mapping replaces another in its slot.
    mappings: Vec<Option<Mapping>>,
    proposed: u64,
}

impl Speculative {
    /// Wraps a rule.
    pub fn new(inner: Box<dyn Rule>, config: &config::rule::Speculative) -> Speculative {
        let slots = (config.mappings as usize).next_power_of_two();
        Speculative { inner, config: config.clone(), mappings: vec![None; slots], proposed: 0 }
    }

    /// Adjusts the windows of a mapping to a fault; returns the pages to propose.
    fn adjust(&mut self, access: &Access, page: VirtPage, start: u64, limits: &Limits, hot: bool) -> Ahead {
        let slot = slot(page.pid, start, self.mappings.len());
        let known = self.mappings[slot].take().filter(|m| m.pid == page.pid && m.start == start);
        let (state, found) = match self.config.windows {
            Windows::Published => {
                let previous = known.and_then(|m| match m.state {
                    State::Published(window) => Some(window),
                    State::Streams(_) => None,
                });
                let window = window::adjust(previous, page.vpn, limits.above);
                let ahead = window.ahead();
                let farthest = ahead.end - ahead.start;
                (State::Published(window), Ahead { direction: Direction::Up, nearest: 1, farthest })
            }
            Windows::Streams => {
                let mut streams = match known.map(|m| m.state) {
                    Some(State::Streams(streams)) => streams,
                    _ => Streams::new(self.config.streams, Nanos::from_ms(self.config.stream_ms)),
                };
                let found = streams.fault(page.vpn, access.time, hot);
                (State::Streams(streams), found)
            }
        };
        self.mappings[slot] = Some(Mapping { pid: page.pid, start, state });
        found
    }

    /// Proposes the next pages of a stream; returns the distance of the last one.
    fn neighbours(
        &mut self,
        first: &Candidate,
        page: VirtPage,
        ahead: Ahead,
        limits: &Limits,
        ctx: &Context<'_>,
        out: &mut Candidates,
    ) -> u64 {
        let last = ahead.farthest.min(limits.in_direction(ahead.direction));
        for distance in ahead.nearest..=last {
            let vpn = match ahead.direction {
                Direction::Up => page.vpn + distance,
                Direction::Down => page.vpn - distance,
            };
            let next = VirtPage { vpn, ..page };
            let Some(marked) = ctx.mappings.marked(next) else { return distance - 1 };
            let from = marked.node.unwrap_or(first.from);
            if !ctx.topology.is_lower(from) {
                return distance - 1;
            }
            self.proposed += 1;
            out.push(Candidate {
                page: Some(next),
                pfn: marked.pfn,
                order: 0,
                from,
                score: first.score.saturating_sub(distance as u16),
                reason: Reason::Neighbour,
                ..*first
            });
        }
        last.max(ahead.nearest - 1)
    }

    /// Notes how far the pages of the last fault's stream have been proposed.
    fn note(&mut self, page: VirtPage, start: u64, distance: u64) {
        let slot = slot(page.pid, start, self.mappings.len());
        if let Some(Mapping { state: State::Streams(streams), .. }) = &mut self.mappings[slot] {
            streams.proposed(distance);
        }
    }
}

/// The number of pages on either side of a page in its mapping and its block.
#[derive(Clone, Copy, Debug)]
struct Limits {
    above: u64,
    below: u64,
}

impl Limits {
    fn of(vpn: u64, bounds: &std::ops::Range<u64>) -> Limits {
        let block = vpn - vpn % BLOCK_PAGES;
        let end = bounds.end.min(block.saturating_add(BLOCK_PAGES));
        Limits {
            above: end.saturating_sub(vpn.saturating_add(1)),
            below: vpn.saturating_sub(bounds.start.max(block)),
        }
    }

    fn in_direction(&self, direction: Direction) -> u64 {
        match direction {
            Direction::Up => self.above,
            Direction::Down => self.below,
        }
    }
}

/// The slot of a mapping: the upper bits of a multiplication by 2^64 divided by the golden ratio.
fn slot(pid: Pid, start: u64, slots: usize) -> usize {
    let mixed = (start ^ u64::from(pid.0).rotate_left(40)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed >> 32) as usize & (slots - 1)
}

impl Rule for Speculative {
    fn name(&self) -> &'static str {
        self.inner.name()
    }

    fn window(&self) -> Nanos {
        self.inner.window()
    }

    fn restamp(&self) -> Option<bool> {
        self.inner.restamp()
    }

    fn on_access(&mut self, access: &Access, record: &mut Record, ctx: &Context<'_>, out: &mut Candidates) {
        let before = out.items().len();
        self.inner.on_access(access, record, ctx, out);
        let (Detail::HintFault { .. }, 0, Some(page)) = (access.detail, access.order, access.page) else {
            return;
        };
        if !ctx.topology.is_lower(access.node) {
            return;
        }
        let Some(bounds) = ctx.mappings.bounds(page).filter(|b| b.contains(&page.vpn)) else { return };
        let limits = Limits::of(page.vpn, &bounds);
        let first = out.items()[before..].iter().find(|c| c.page == Some(page)).copied();
        let ahead = self.adjust(access, page, bounds.start, &limits, first.is_some());
        if let Some(first) = first {
            let distance = self.neighbours(&first, page, ahead, &limits, ctx, out);
            self.note(page, bounds.start, distance);
        }
    }

    fn on_regions(&mut self, snapshot: &RegionSnapshot, ctx: &Context<'_>, out: &mut Candidates) {
        self.inner.on_regions(snapshot, ctx, out);
    }

    fn on_region_pages(&mut self, pages: &[RegionPage], ctx: &Context<'_>, out: &mut Candidates) {
        self.inner.on_region_pages(pages, ctx, out);
    }

    fn on_spare(&mut self, node: NodeId, pages: u64) {
        self.inner.on_spare(node, pages);
    }

    fn on_supply(&mut self, supply: &Supply) {
        self.inner.on_supply(supply);
    }

    fn on_exit(&mut self, pid: Pid) {
        self.inner.on_exit(pid);
    }

    fn on_tick(&mut self, now: Nanos, nodes: &[NodeState], out: &mut Candidates) {
        self.inner.on_tick(now, nodes, out);
    }

    fn on_outcome(&mut self, done: &Move, outcome: Outcome, out: &mut Candidates) {
        self.inner.on_outcome(done, outcome, out);
    }

    fn gauges(&self) -> Vec<Gauge> {
        let mut gauges = self.inner.gauges();
        gauges.push(Gauge { name: "neighbours_proposed", node: None, value: self.proposed });
        gauges
    }
}

#[cfg(test)]
mod tests;
