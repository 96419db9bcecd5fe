//! The streams of one mapping: several windows side by side, each with a direction.

use std::cmp::Ordering;

use crate::published::window::{GROW, OPEN};
use crate::rule::speculative::BLOCK_PAGES;
use crate::units::Nanos;

/// The direction of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Direction {
    /// To higher addresses.
    Up,
    /// To lower addresses.
    Down,
}

/// Pages to propose with a fault, as distances from it: from `nearest` to `farthest`, none where
/// that is less.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ahead {
    pub(super) direction: Direction,
    pub(super) nearest: u64,
    pub(super) farthest: u64,
}

/// One stream: its last fault, and the window beyond it.
#[derive(Clone, Copy, Debug)]
struct Stream {
    last: u64,
    direction: Direction,
    /// 0 while it is a single fault, whose direction is not known.
    pages: u64,
    /// How many of the pages beyond the last fault have been proposed.
    proposed: u64,
    used: Nanos,
}

impl Stream {
    /// The stream after `fault`, if it belongs to it. What was proposed longer than `life` ago may
    /// be proposed again.
    fn next(&self, fault: u64, hot: bool, now: Nanos, life: Nanos) -> Option<Stream> {
        let proposed = if now.since(self.used) > life { 0 } else { self.proposed };
        let direction = match fault.cmp(&self.last) {
            Ordering::Equal => return Some(Stream { proposed, used: now, ..*self }),
            Ordering::Greater => Direction::Up,
            Ordering::Less => Direction::Down,
        };
        let distance = fault.abs_diff(self.last);
        let pages = if self.pages == 0 {
            (distance <= 2).then_some(OPEN)
        } else if direction != self.direction {
            None
        } else {
            // Within the window it came before the move that was proposed, and one page beyond it,
            // or two, it went past: farther ahead is better in both cases.
            let grown = if hot { self.pages + GROW } else { self.pages };
            (distance <= self.pages + 2).then_some(grown.min(BLOCK_PAGES))
        };
        let proposed = proposed.saturating_sub(distance);
        pages.map(|pages| Stream { last: fault, direction, pages, proposed, used: now })
    }

    /// Pages to propose beyond the last fault, up to one more than the window has.
    fn ahead(&self) -> Ahead {
        let farthest = if self.pages == 0 { 0 } else { self.pages + 1 };
        Ahead { direction: self.direction, nearest: self.proposed + 1, farthest }
    }
}

/// The streams of a mapping.
#[derive(Clone, Debug)]
pub(super) struct Streams {
    streams: Vec<Stream>,
    /// The one that the last fault belongs to.
    latest: usize,
    limit: usize,
    life: Nanos,
}

impl Streams {
    /// At most `limit` streams; one that is unused for `life` is replaced first.
    pub(super) fn new(limit: u8, life: Nanos) -> Streams {
        Streams { streams: Vec::new(), latest: 0, limit: limit.into(), life }
    }

    /// Takes a fault; `hot` says whether the wrapped rule proposes its page. Returns the pages that
    /// are expected next.
    pub(super) fn fault(&mut self, fault: u64, now: Nanos, hot: bool) -> Ahead {
        // An established stream claims a fault before a single fault does.
        let claims = self
            .streams
            .iter()
            .enumerate()
            .filter_map(|(i, s)| s.next(fault, hot, now, self.life).map(|next| (i, s.pages, next)));
        if let Some((i, _, next)) = claims.max_by_key(|(_, pages, _)| *pages) {
            self.streams[i] = next;
            self.latest = i;
            return next.ahead();
        }
        let single = Stream { last: fault, direction: Direction::Up, pages: 0, proposed: 0, used: now };
        if self.streams.len() < self.limit {
            self.latest = self.streams.len();
            self.streams.push(single);
        } else {
            let life = self.life;
            let worth = |s: &Stream| (if now.since(s.used) > life { 0 } else { s.pages }, s.used);
            if let Some((i, victim)) = self.streams.iter_mut().enumerate().min_by_key(|(_, s)| worth(s)) {
                *victim = single;
                self.latest = i;
            }
        }
        single.ahead()
    }

    /// Of the pages that the last fault's stream expects, those up to this distance have been
    /// proposed.
    pub(super) fn proposed(&mut self, distance: u64) {
        if let Some(stream) = self.streams.get_mut(self.latest) {
            stream.proposed = distance;
        }
    }
}
