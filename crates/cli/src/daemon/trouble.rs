//! Whether the daemon does its job. If it achieved nothing in a minute, one sentence says why and
//! what to do.
//!
//! It says nothing if a page moved, if there was nothing to do, or if candidates were held back as
//! configured.

use thermocline_core::counters::Counters;
use thermocline_core::label::{By, Label};
use thermocline_core::moves::Outcome;
use thermocline_core::refusal::RefusalReason;
use thermocline_core::topology::Topology;
use thermocline_core::units::Nanos;

use crate::snapshot::{Deciding, Snapshot, Trouble};

/// Time between two assessments, and so between two sentences.
const EVERY: Nanos = Nanos::from_s(60);
/// With fewer candidates, moves or faults than this, nothing is said: all of them may have failed
/// by chance.
const ENOUGH: u64 = 64;
/// With less memory in use on lower tiers than this, in MiB, a lack of evidence is normal.
const LOWER_MIB_MIN: u64 = 64;

/// Counts since the start, and some current states.
#[derive(Clone, Debug, Default)]
pub struct Tally {
    counters: Counters,
    /// Hint faults seen, and how many of them were out of scope.
    faults: (u64, u64),
    /// MiB in use on lower tiers now.
    lower_mib: u64,
    /// Whether pages are demoted from the top tier now.
    demotes: bool,
    /// Whether kswapd has given up on any node.
    given_up: bool,
}

impl Tally {
    /// Takes the figures from `snapshot` and its `engine`.
    pub fn new(snapshot: &Snapshot, engine: &Deciding, topology: &Topology, demotes: bool) -> Tally {
        let lower = snapshot.nodes.iter().filter(|node| topology.is_lower(node.node));
        let used_pages = lower.map(|node| node.managed_pages.saturating_sub(node.free_pages)).sum();
        Tally {
            counters: engine.counters.clone(),
            faults: (engine.source.seen, engine.source.filtered),
            lower_mib: topology.page_bytes.mib(used_pages),
            demotes,
            given_up: !snapshot.kswapd.given_up.is_empty(),
        }
    }
}

/// Why nothing was achieved between two tallies. `None` if something was, or if that is no fault.
fn judge(before: &Tally, now: &Tally) -> Option<Trouble> {
    let grown = |count: fn(&Counters) -> u64| count(&now.counters).saturating_sub(count(&before.counters));
    if grown(|c| c.moved) > 0 {
        return None;
    }
    let evidence = grown(|c| c.evidence.sum() + c.region_pages);
    let issued = grown(|c| c.issued);
    let proposed = grown(|c| c.proposed);
    if issued >= ENOUGH {
        let (outcome, of) = most(&[(&before.counters.failed, &now.counters.failed)])?;
        let remedy = outcome_remedy(outcome)?;
        let name = outcome.name();
        let sentence = format!(
            "none of {issued} moves that were tried put a page on its target, {of} ended as {name}: {remedy}"
        );
        return Some(Trouble { reason: name, sentence });
    }
    if issued == 0 && proposed >= ENOUGH {
        let (was, is) = (&before.counters, &now.counters);
        // A candidate is counted as held at every check, so `held` is used only if no other reason
        // is known.
        let (reason, _) = most(&[(&was.refused, &is.refused), (&was.expired, &is.expired)])
            .or_else(|| most(&[(&was.held, &is.held)]))?;
        let remedy = refusal_remedy(reason, now)?;
        let name = reason.name();
        let sentence =
            format!("none of {proposed} candidates was moved, nearly all because of {name}: {remedy}");
        return Some(Trouble { reason: name, sentence });
    }
    let (seen, filtered) = (now.faults.0 - before.faults.0, now.faults.1 - before.faults.1);
    if evidence == 0 && seen >= ENOUGH && seen == filtered {
        let sentence = format!(
            "all {seen} hint faults were of programs out of scope: let [[scope]] name the programs that are to be managed, \
             or leave it out for all"
        );
        return Some(Trouble { reason: "out_of_scope", sentence });
    }
    (evidence == 0 && seen == 0 && now.lower_mib >= LOWER_MIB_MIN).then(|| {
        let sentence = format!(
            "no access to lower tiers was seen, though {} MiB are in use there: either their programs are idle, or no source sees \
             them, which `thermocline doctor` would tell",
            now.lower_mib
        );
        Trouble { reason: "no_evidence", sentence }
    })
}

/// The label that has at least nine tenths of the increase between the tallies of all pairs, and
/// its increase.
fn most<L: Label>(pairs: &[(&By<L>, &By<L>)]) -> Option<(L, u64)> {
    let grown = |label: L| pairs.iter().map(|(was, is)| is.get(label).saturating_sub(was.get(label))).sum();
    let counts: Vec<(L, u64)> = L::ALL.iter().map(|label| (*label, grown(*label))).collect();
    let all: u64 = counts.iter().map(|(_, n)| n).sum();
    counts.into_iter().find(|(_, n)| *n > 0 && n.saturating_mul(10) >= all.saturating_mul(9))
}

/// What helps if all moves end with `outcome`. `None` if that depends on the programs, or passes.
fn outcome_remedy(outcome: Outcome) -> Option<&'static str> {
    Some(match outcome {
        Outcome::NoPermission => {
            "the kernel refuses move_pages(2) for them; give thermocline CAP_SYS_NICE and CAP_SYS_PTRACE, let its seccomp filter \
             pass move_pages, and their cpusets the nodes of the top tier"
        }
        Outcome::NodeFull => "the top tier has no room; see what `thermocline status` tells of demotion",
        Outcome::NotTried => {
            "the mover cannot work; what it said of that stands above, `thermocline doctor` tries a move"
        }
        _ => return None,
    })
}

/// What helps if all candidates are refused for `reason`. `None` if it was configured, or passes.
fn refusal_remedy(reason: RefusalReason, now: &Tally) -> Option<&'static str> {
    Some(match reason {
        RefusalReason::NodeFull | RefusalReason::BelowGoal if now.given_up => {
            "the top tier is full and kswapd has given up on it (node_unreclaimable in /proc/zoneinfo); what was tried stands in \
             `thermocline status`"
        }
        // A top tier full of hot pages is as it should be.
        RefusalReason::NodeFull | RefusalReason::BelowGoal if now.demotes => return None,
        RefusalReason::NodeFull | RefusalReason::BelowGoal => {
            "the top tier is full and nothing is demoted; `thermocline doctor` tells what keeps cold pages from going down"
        }
        RefusalReason::NoPermission => {
            "the kernel refuses to move their pages; look whether their cpusets have the nodes of the top tier, and whether a \
             seccomp filter refuses move_pages(2)"
        }
        RefusalReason::NotMovable => "no process is known for their frames; [reverse] has frames looked up",
        RefusalReason::NoTarget => "no node of the top tier has memory; `thermocline doctor` shows the tiers",
        RefusalReason::NodeUnknown => {
            "free memory cannot be read from /proc/zoneinfo; let thermocline read it"
        }
        RefusalReason::ScopeUnknown => {
            "what their scopes hold of the top tier cannot be read; without floors and caps it need not be known"
        }
        RefusalReason::Unexamined => {
            "their processes cannot be looked at; let thermocline read /proc of all users"
        }
        _ => return None,
    })
}

/// Makes an assessment once a minute.
#[derive(Debug)]
pub struct Watch {
    begin: Nanos,
    before: Tally,
    found: Option<Trouble>,
}

impl Watch {
    /// Starts at `now`.
    pub fn new(now: Nanos) -> Watch {
        Watch { begin: now, before: Tally::default(), found: None }
    }

    /// Assesses the time since the last assessment, if that was at least a minute ago. Returns what
    /// to report.
    pub fn look(&mut self, now: Nanos, tally: impl FnOnce() -> Tally) -> Option<String> {
        if now.since(self.begin) < EVERY {
            return None;
        }
        let tally = tally();
        self.found = judge(&self.before, &tally);
        (self.begin, self.before) = (now, tally);
        self.found.as_ref().map(|found| format!("for a minute nothing has moved: {}", found.sentence))
    }

    /// The trouble that the last assessment found.
    pub fn found(&self) -> Option<&Trouble> {
        self.found.as_ref()
    }
}

#[cfg(test)]
mod tests {
    use thermocline_core::access::Source;

    use super::*;

    /// The assessment of a minute in which hint faults arrived and `change` was applied.
    fn minute(change: impl FnOnce(&mut Tally)) -> Option<Trouble> {
        let before = Tally { lower_mib: 500, ..Tally::default() };
        let mut now = before.clone();
        now.faults = (475_333, 0);
        now.counters.evidence.add(Source::HintFault, 475_333);
        change(&mut now);
        judge(&before, &now)
    }

    #[test]
    fn a_minute_that_came_to_nothing_has_a_sentence_with_the_remedy() {
        let refused = |reason, demotes| {
            minute(move |now| {
                now.counters.proposed = 87_501;
                now.counters.expired.add(reason, 87_000);
                now.counters.refused.add(RefusalReason::Resident, 501);
                now.demotes = demotes;
            })
        };
        let failed = |outcome| {
            minute(move |now| {
                (now.counters.proposed, now.counters.issued) = (12_291, 12_291);
                now.counters.failed.add(outcome, 12_291);
            })
        };
        let silent = |change: fn(&mut Tally)| {
            minute(|now| {
                (now.faults, now.counters) = ((0, 0), Counters::default());
                change(now);
            })
        };
        let held = minute(|now| {
            now.counters.proposed = 100;
            now.counters.held.add(RefusalReason::NodeFull, 1200);
        });
        let given_up = minute(|now| {
            now.counters.proposed = 100;
            now.counters.refused.add(RefusalReason::BelowGoal, 100);
            (now.demotes, now.given_up) = (true, true);
        });
        let cases = [
            (refused(RefusalReason::NodeFull, false), Some("nothing is demoted")),
            (refused(RefusalReason::NodeFull, true), None),
            (held, Some("node_full")),
            (given_up, Some("kswapd has given up")),
            (refused(RefusalReason::NoPermission, true), Some("cpusets")),
            (refused(RefusalReason::Unexamined, true), Some("/proc")),
            (refused(RefusalReason::ScopeCap, true), None),
            (refused(RefusalReason::Braked, true), None),
            (
                failed(Outcome::NoPermission),
                Some("12291 ended as no_permission: the kernel refuses move_pages(2)"),
            ),
            (failed(Outcome::Pinned), None),
            (
                silent(|now| now.faults = (900, 900)),
                Some("all 900 hint faults were of programs out of scope"),
            ),
            (silent(|_| {}), Some("500 MiB are in use there")),
            (silent(|now| now.lower_mib = 3), None),
            (minute(|_| {}), None),
        ];
        for (i, (found, said)) in cases.iter().enumerate() {
            match said {
                Some(said) => {
                    assert!(found.as_ref().is_some_and(|f| f.sentence.contains(said)), "{i}: {found:?}")
                }
                None => assert_eq!(*found, None, "case {i}"),
            }
        }
    }

    #[test]
    fn one_page_that_moved_is_work_done() {
        let told = minute(|now| {
            (now.counters.proposed, now.counters.issued, now.counters.moved) = (10_000, 10_000, 1);
            now.counters.failed.add(Outcome::NoPermission, 9_999);
        });
        assert_eq!(told, None);
    }

    #[test]
    fn it_is_said_once_a_minute_and_no_more_when_work_is_done_again() {
        let mut watch = Watch::new(Nanos(0));
        let idle = |lower_mib| Tally { lower_mib, ..Tally::default() };
        let told = |watch: &mut Watch, lower_mib| {
            let mut second = |s| watch.look(Nanos::from_s(s), || idle(lower_mib)).is_some();
            (1..=180).filter(|s| second(*s)).collect::<Vec<u64>>()
        };
        assert_eq!(told(&mut watch, 500), [60, 120, 180]);
        assert!(watch.found().is_some());
        assert_eq!(watch.look(Nanos::from_s(240), || idle(0)), None);
        assert_eq!(watch.found(), None);
    }
}
