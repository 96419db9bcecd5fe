//! When findings begin and end, and what of that is told.
//!
//! A finding that begins and ends again and again is told at most once a minute, with the number of
//! times that it began.

use std::collections::BTreeMap;
use std::time::SystemTime;

use thermocline_core::label::Label;
use thermocline_core::units::Nanos;

use super::{About, Finding, Kind};

/// Least time between two lines about the same finding.
const QUIET: Nanos = Nanos::from_s(60);
/// Findings that are followed; more are left out.
const FOLLOWED_MAX: usize = 256;

/// A finding, with what it is about. Where several are the same in both, they are numbered.
type Key = (Kind, About, usize);

/// An open finding.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Open {
    /// The finding as of the last look.
    pub finding: Finding,
    /// When it began.
    pub since: SystemTime,
    /// The same, of the monotonic clock.
    begin: Nanos,
}

/// What happened to a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// It began.
    Began,
    /// It ended, after this time.
    Ended(Nanos),
}

/// Something to tell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Told {
    /// The finding; if it has ended, as it was when it was seen last.
    pub finding: Finding,
    /// What happened.
    pub change: Change,
    /// How often it began since it was told of last, if it came and went in between; else 0.
    pub times: u32,
}

impl Told {
    /// The line for people.
    pub fn line(&self) -> String {
        let Finding { id, severity, cause, remedies, .. } = &self.finding;
        let name = id.name();
        let again = match self.times {
            0 => String::new(),
            times => format!(" (it came {times} times since it was told of last)"),
        };
        match self.change {
            Change::Began => {
                let remedies: Vec<String> = remedies.iter().map(|remedy| remedy.line()).collect();
                let remedies =
                    if remedies.is_empty() { String::new() } else { format!("; {}", remedies.join("; ")) };
                format!("{}: {cause} [{name}]{remedies}{again}", severity.name())
            }
            Change::Ended(after) => {
                format!("over after {} s: {cause} [{name}]{again}", after.0 / 1_000_000_000)
            }
        }
    }
}

#[derive(Debug)]
struct State {
    finding: Finding,
    /// When it began, and by the wall clock; `None` if it is over.
    open: Option<(Nanos, SystemTime)>,
    /// How long it was open, if it is over.
    lasted: Nanos,
    /// Whether the last line said that it is open.
    told_open: bool,
    told_at: Option<Nanos>,
    /// Times that it began since then.
    began: u32,
}

/// Follows findings.
#[derive(Debug, Default)]
pub struct Follower {
    states: BTreeMap<Key, State>,
}

impl Follower {
    /// Takes what is found `now`. Returns what to tell.
    pub fn look(&mut self, now: Nanos, wall: SystemTime, found: Vec<Finding>) -> Vec<Told> {
        let mut seen: BTreeMap<Key, Finding> = BTreeMap::new();
        for finding in found {
            let key = |number| (finding.id, finding.about.clone(), number);
            let number = seen.range(key(0)..=key(usize::MAX)).count();
            seen.insert(key(number), finding);
        }
        for (key, state) in &mut self.states {
            match (seen.remove(key), state.open) {
                (Some(finding), Some(_)) => state.finding = finding,
                (Some(finding), None) => {
                    state.finding = finding;
                    state.open = Some((now, wall));
                    state.began = state.began.saturating_add(1);
                }
                (None, Some((begin, _))) => {
                    state.open = None;
                    state.lasted = now.since(begin);
                }
                (None, None) => {}
            }
        }
        let room = FOLLOWED_MAX.saturating_sub(self.states.len());
        let new = seen.into_iter().take(room).map(|(key, finding)| {
            let open = Some((now, wall));
            let state = State { finding, open, lasted: Nanos(0), told_open: false, told_at: None, began: 1 };
            (key, state)
        });
        self.states.extend(new);
        let told = self.states.values_mut().filter_map(|state| state.tell(now)).collect();
        self.states.retain(|_, state| !state.is_settled(now));
        told
    }

    /// The open findings, the worst first.
    pub fn open(&self) -> Vec<Open> {
        let open = self.states.values().filter_map(|state| {
            let (begin, since) = state.open?;
            Some(Open { finding: state.finding.clone(), since, begin })
        });
        let mut open: Vec<Open> = open.collect();
        open.sort_by_key(|open| (std::cmp::Reverse(open.finding.severity), open.begin));
        open
    }
}

impl State {
    /// Whether it is over, and nothing of it has to be told or remembered.
    fn is_settled(&self, now: Nanos) -> bool {
        self.open.is_none() && !self.told_open && self.began == 0 && self.is_quiet(now)
    }

    /// Whether a line about it may be written.
    fn is_quiet(&self, now: Nanos) -> bool {
        self.told_at.is_none_or(|at| now.since(at) >= QUIET)
    }

    fn tell(&mut self, now: Nanos) -> Option<Told> {
        let began = self.open.is_some() && !self.told_open && self.began == 1;
        let ended = self.open.is_none() && self.told_open && self.began == 0;
        if !(began || ended || self.began > 0) || !self.is_quiet(now) {
            return None;
        }
        let change = match self.open {
            Some(_) => Change::Began,
            None => Change::Ended(self.lasted),
        };
        (self.told_open, self.told_at) = (self.open.is_some(), Some(now));
        let came = std::mem::take(&mut self.began);
        let times = if began { 0 } else { came };
        Some(Told { finding: self.finding.clone(), change, times })
    }
}
