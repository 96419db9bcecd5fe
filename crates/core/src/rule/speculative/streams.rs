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

/// One stream: its last fault, and the window beyond it.
#[derive(Clone, Copy, Debug)]
struct Stream {
    last: u64,
    direction: Direction,
    /// 0 while it is a single fault, whose direction is not known.
    pages: u64,
    used: Nanos,
}

impl Stream {
    /// The stream after `fault`, if it belongs to it.
    fn next(&self, fault: u64, hot: bool, now: Nanos) -> Option<Stream> {
        let direction = match fault.cmp(&self.last) {
            Ordering::Equal => return Some(Stream { used: now, ..*self }),
            Ordering::Greater => Direction::Up,
            Ordering::Less => Direction::Down,
        };
        let distance = fault.abs_diff(self.last);
        let pages = if self.pages == 0 {
            (distance <= 2).then_some(OPEN)
        } else if direction != self.direction {
            None
        } else if distance <= self.pages {
            Some(self.pages)
        } else {
            // One page beyond the window, or two, went past it.
            let grown = if hot { self.pages + GROW } else { self.pages };
            (distance <= self.pages + 2).then_some(grown.min(BLOCK_PAGES))
        };
        pages.map(|pages| Stream { last: fault, direction, pages, used: now })
    }

    /// Pages to propose beyond the last fault, one more than the window has.
    fn expected(&self) -> (Direction, u64) {
        (self.direction, if self.pages == 0 { 0 } else { self.pages + 1 })
    }
}

/// The streams of a mapping.
#[derive(Clone, Debug)]
pub(super) struct Streams {
    streams: Vec<Stream>,
    limit: usize,
    life: Nanos,
}

impl Streams {
    /// At most `limit` streams; one that is unused for `life` is replaced first.
    pub(super) fn new(limit: u8, life: Nanos) -> Streams {
        Streams { streams: Vec::new(), limit: limit.into(), life }
    }

    /// Takes a fault; `hot` says whether the wrapped rule proposes its page. Returns how many pages
    /// are expected next, and in which direction.
    pub(super) fn fault(&mut self, fault: u64, now: Nanos, hot: bool) -> (Direction, u64) {
        // An established stream claims a fault before a single fault does.
        let claims = self
            .streams
            .iter()
            .enumerate()
            .filter_map(|(i, s)| s.next(fault, hot, now).map(|next| (i, s.pages, next)));
        if let Some((i, _, next)) = claims.max_by_key(|(_, pages, _)| *pages) {
            self.streams[i] = next;
            return next.expected();
        }
        let single = Stream { last: fault, direction: Direction::Up, pages: 0, used: now };
        if self.streams.len() < self.limit {
            self.streams.push(single);
        } else {
            let life = self.life;
            let worth = |s: &Stream| (if now.since(s.used) > life { 0 } else { s.pages }, s.used);
            if let Some(victim) = self.streams.iter_mut().min_by_key(|s| worth(s)) {
                *victim = single;
            }
        }
        single.expected()
    }
}
