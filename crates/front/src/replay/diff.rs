//! What became of each page, as it was recorded and as it was replayed.
//!
//! A page is *moved* if it was asked to move: how that ended depends on the machine, and a replay
//! moves nothing. Of any other page the last word counts: refused, held or expired with its reason,
//! evicted, or still waiting. Pages count once for each direction.

use std::collections::BTreeMap;

use serde::Serialize;
use thermocline_core::hash::FixedMap;
use thermocline_core::journal::{Decision, What};
use thermocline_core::label::Label;
use thermocline_core::moves::Direction;
use thermocline_core::units::{Nanos, VirtPage};

/// What became of a page on one side.
#[derive(Clone, Copy, Debug)]
struct Fate {
    /// When it was first named.
    first: Nanos,
    /// The last word, or that it was asked to move.
    word: What,
    /// When that was.
    at: Nanos,
    moved: bool,
}

impl Fate {
    fn add(of: &mut Option<Fate>, decision: &Decision) {
        let (word, at) = (decision.what, decision.time);
        let moves = matches!(word, What::Issued { .. });
        match of {
            None => *of = Some(Fate { first: at, word, at, moved: moves }),
            Some(fate) if !fate.moved => (fate.word, fate.at, fate.moved) = (word, at, moves),
            Some(_) => {}
        }
    }

    /// In words.
    fn text(of: Option<Fate>) -> String {
        let because = |word: &str, reason: &str| format!("{word}: {reason}");
        match of.map(|fate| fate.word) {
            None => "never proposed".to_owned(),
            Some(What::Proposed) => "waits".to_owned(),
            Some(What::Refused { reason }) => because("refused", reason.name()),
            Some(What::Held { reason }) => because("held", reason.name()),
            Some(What::Expired { held: Some(reason) }) => because("expired", reason.name()),
            Some(What::Expired { held: None }) => "expired".to_owned(),
            Some(What::Evicted) => "evicted".to_owned(),
            Some(What::Exited) => "exited".to_owned(),
            Some(What::Issued { .. } | What::Moved { .. } | What::Failed { .. } | What::Lost { .. }) => {
                "moved".to_owned()
            }
        }
    }
}

/// The fates of all pages.
#[derive(Debug, Default)]
pub struct Fates(FixedMap<(VirtPage, usize), [Option<Fate>; 2]>);

/// Pages of one direction. The four that neither moved are part of `pages` too.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Counts {
    /// Pages of which one of the journals, or both, has a decision.
    pub pages: u64,
    /// Pages in the recorded journal, and in the replayed one.
    pub journals: [u64; 2],
    /// Moved in both.
    pub moved_in_both: u64,
    /// Moved only as recorded.
    pub moved_only_recorded: u64,
    /// Moved only in the replay.
    pub moved_only_replayed: u64,
    /// Moved in neither, with the same last word.
    pub same_reason: u64,
    /// Moved in neither, with another last word.
    pub another_reason: u64,
    /// Moved in neither, and proposed only as recorded.
    pub only_recorded: u64,
    /// Moved in neither, and proposed only in the replay.
    pub only_replayed: u64,
}

/// Pages with the same two fates.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Pair {
    /// The direction.
    pub direction: &'static str,
    /// What became of them as recorded.
    pub recorded: String,
    /// What became of them in the replay.
    pub replayed: String,
    /// How many.
    pub pages: u64,
}

/// A page whose fates differ.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Example {
    /// The page.
    pub page: VirtPage,
    /// The direction.
    pub direction: &'static str,
    /// What became of it as recorded, and when.
    pub recorded: String,
    /// When, in the engine's time.
    pub recorded_at: Option<Nanos>,
    /// What became of it in the replay.
    pub replayed: String,
    /// When, in the engine's time.
    pub replayed_at: Option<Nanos>,
}

/// Where the fates of pages differ.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Diff {
    /// Counts by direction.
    pub counts: BTreeMap<&'static str, Counts>,
    /// Pages by their two fates, the most frequent first; those with the same fate too.
    pub pairs: Vec<Pair>,
    /// The first pages whose fates differ.
    pub first: Vec<Example>,
}

impl Fates {
    /// Adds decisions of both journals.
    pub fn add(&mut self, recorded: &[Decision], replayed: &[Decision]) {
        for (side, decisions) in [recorded, replayed].into_iter().enumerate() {
            for decision in decisions {
                let key = (decision.page, decision.direction.index());
                Fate::add(&mut self.0.entry(key).or_default()[side], decision);
            }
        }
    }

    /// The result, with at most `most` pages.
    pub fn diff(self, most: usize) -> Diff {
        let mut counts: BTreeMap<&'static str, Counts> = BTreeMap::new();
        let mut pairs: BTreeMap<(usize, String, String), u64> = BTreeMap::new();
        let mut differ = Vec::new();
        for ((page, direction), fates) in self.0 {
            let texts = fates.map(Fate::text);
            let of = counts.entry(Direction::ALL[direction].name()).or_default();
            of.count(fates, texts[0] == texts[1]);
            if texts[0] != texts[1] {
                let first = fates.iter().flatten().map(|fate| fate.first).min().unwrap_or_default();
                differ.push((first, page.pid.0, page.vpn, direction, fates));
            }
            let [recorded, replayed] = texts;
            *pairs.entry((direction, recorded, replayed)).or_default() += 1;
        }
        differ.sort_by_key(|(first, pid, vpn, direction, _)| (*first, *pid, *vpn, *direction));
        let mut pairs: Vec<Pair> = pairs
            .into_iter()
            .map(|((direction, recorded, replayed), pages)| Pair {
                direction: Direction::ALL[direction].name(),
                recorded,
                replayed,
                pages,
            })
            .collect();
        // Equal ones stay in the order of the map.
        pairs.sort_by_key(|pair| std::cmp::Reverse(pair.pages));
        let example =
            |(_, pid, vpn, direction, fates): (Nanos, u32, u64, usize, [Option<Fate>; 2])| Example {
                page: VirtPage { pid: thermocline_core::units::Pid(pid), vpn },
                direction: Direction::ALL[direction].name(),
                recorded: Fate::text(fates[0]),
                recorded_at: fates[0].map(|fate| fate.at),
                replayed: Fate::text(fates[1]),
                replayed_at: fates[1].map(|fate| fate.at),
            };
        Diff { counts, pairs, first: differ.into_iter().take(most).map(example).collect() }
    }
}

impl Counts {
    fn count(&mut self, [recorded, replayed]: [Option<Fate>; 2], same: bool) {
        self.pages += 1;
        self.journals[0] += u64::from(recorded.is_some());
        self.journals[1] += u64::from(replayed.is_some());
        let moved = |fate: Option<Fate>| fate.is_some_and(|fate| fate.moved);
        let place = match (moved(recorded), moved(replayed)) {
            (true, true) => &mut self.moved_in_both,
            (true, false) => &mut self.moved_only_recorded,
            (false, true) => &mut self.moved_only_replayed,
            (false, false) if replayed.is_none() => &mut self.only_recorded,
            (false, false) if recorded.is_none() => &mut self.only_replayed,
            (false, false) if same => &mut self.same_reason,
            (false, false) => &mut self.another_reason,
        };
        *place += 1;
    }
}

#[cfg(test)]
pub(super) mod tests {
    use thermocline_core::candidate::Reason;
    use thermocline_core::moves::BatchId;
    use thermocline_core::refusal::RefusalReason;
    use thermocline_core::units::{NodeId, Pid};
    use thermocline_core::weigh::Sources;

    use super::*;

    /// A decision on the page of that number.
    pub fn decision(vpn: u64, what: What) -> Decision {
        Decision {
            time: Nanos(vpn),
            what,
            page: VirtPage { pid: Pid(1), vpn },
            pfn: None,
            pages: 1,
            direction: Direction::Promote,
            from: NodeId(1),
            to: None,
            score: 1,
            why: Reason::ALL[0],
            sources: Sources::default(),
        }
    }

    #[test]
    fn each_page_is_in_one_class_and_the_sums_balance() {
        let issued = What::Issued { batch: BatchId(1) };
        let refused = |n: usize| What::Refused { reason: RefusalReason::ALL[n] };
        let of = |all: &[(u64, What)]| all.iter().map(|(n, what)| decision(*n, *what)).collect::<Vec<_>>();
        let recorded = of(&[
            (1, What::Proposed),
            (1, issued),
            (1, What::Moved { batch: BatchId(1) }),
            (2, issued),
            (2, What::Proposed),
            (4, refused(0)),
            (5, refused(0)),
            (6, What::Proposed),
        ]);
        let replayed = of(&[
            (1, issued),
            (2, refused(1)),
            (3, issued),
            (4, refused(0)),
            (5, refused(1)),
            (7, What::Evicted),
        ]);
        let mut fates = Fates::default();
        fates.add(&recorded[..4], &[]);
        fates.add(&recorded[4..], &replayed);
        let diff = fates.diff(3);
        let counts = diff.counts["promote"];
        assert_eq!(
            counts,
            Counts {
                pages: 7,
                journals: [5, 6],
                moved_in_both: 1,
                moved_only_recorded: 1,
                moved_only_replayed: 1,
                same_reason: 1,
                another_reason: 1,
                only_recorded: 1,
                only_replayed: 1,
            }
        );
        assert_eq!(diff.pairs.iter().map(|pair| pair.pages).sum::<u64>(), counts.pages);
        let pages: Vec<u64> = diff.first.iter().map(|example| example.page.vpn).collect();
        assert_eq!(pages, [2, 3, 5]);
        assert_eq!(diff.first[1].recorded, "never proposed");
        assert_eq!(diff.first[0].recorded, "moved", "what follows a move does not undo it");
    }
}
