//! What the daemon did in a minute, and whether that is its job. If it achieved nothing, one
//! sentence says why and what to do.
//!
//! It says nothing if a page moved, if there was nothing to do, or if candidates were held back as
//! configured.

use thermocline_core::config::Source;
use thermocline_core::counters::Counters;
use thermocline_core::label::{By, Label};
use thermocline_core::moves::Outcome;
use thermocline_core::refusal::RefusalReason;
use thermocline_core::topology::Topology;
use thermocline_core::units::Nanos;
use thermocline_linux::finding::{LOWER_MIB_MIN, Minute, NO_EVIDENCE, SourceMinute, Stuck};
use thermocline_linux::source::Rate;

use crate::snapshot::{Deciding, Snapshot};

/// Time between two assessments.
const EVERY: Nanos = Nanos::from_s(60);
/// With fewer candidates, moves or faults than this, nothing is said: all of them may have failed
/// by chance.
const ENOUGH: u64 = 64;

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
    /// What each source has given and lost, by its name.
    sources: Vec<(&'static str, Rate)>,
    /// Records of the kernel's scans.
    scans: u64,
    /// CPU time of all programs, the daemon among them, if it is known.
    programs_cpu: Option<Nanos>,
    /// CPU time of the daemon.
    own_cpu: Nanos,
}

impl Tally {
    /// Takes the figures from `snapshot` and its `engine`. Programs have used `programs_cpu` since
    /// boot.
    pub fn new(
        snapshot: &Snapshot,
        engine: &Deciding,
        topology: &Topology,
        demotes: bool,
        programs_cpu: Option<Nanos>,
    ) -> Tally {
        let lower = snapshot.nodes.iter().filter(|node| topology.is_lower(node.node));
        let used_pages = lower.map(|node| node.managed_pages.saturating_sub(node.free_pages)).sum();
        Tally {
            counters: engine.counters.clone(),
            faults: (engine.source.seen, engine.source.filtered),
            lower_mib: topology.page_bytes.mib(used_pages),
            demotes,
            given_up: !snapshot.kswapd.given_up.is_empty(),
            sources: engine.given.clone(),
            scans: engine.source.scans,
            programs_cpu,
            own_cpu: snapshot.cpu_time_ns,
        }
    }

    /// The time from `before` to this tally.
    fn since(&self, before: &Tally, stuck: Option<Stuck>) -> Minute {
        let source = |(name, rate): &(&'static str, Rate)| {
            let was = before.sources.iter().find(|(earlier, _)| earlier == name).map(|(_, rate)| *rate);
            let grown = |of: fn(&Rate) -> u64| of(rate).saturating_sub(was.as_ref().map_or(0, of));
            let hint_faults = *name == Source::HintFault.key();
            SourceMinute {
                name,
                came: grown(|rate| rate.count),
                lost: grown(|rate| rate.lost),
                scans: hint_faults.then(|| self.scans.saturating_sub(before.scans)),
            }
        };
        let no_room = |tally: &Tally| {
            let counts = [&tally.counters.refused, &tally.counters.expired];
            let of =
                |by: &By<RefusalReason>| by.get(RefusalReason::NodeFull) + by.get(RefusalReason::BelowGoal);
            counts.into_iter().map(of).sum::<u64>()
        };
        let own = self.own_cpu.since(before.own_cpu);
        let programs = self.programs_cpu.zip(before.programs_cpu);
        Minute {
            sources: self.sources.iter().map(source).collect(),
            lower_mib: self.lower_mib,
            programs_cpu: programs.map(|(is, was)| Nanos(is.since(was).0.saturating_sub(own.0))),
            no_room: no_room(self).saturating_sub(no_room(before)),
            stuck,
        }
    }
}

/// Why nothing was achieved between two tallies. `None` if something was, or if that is no fault.
fn judge(before: &Tally, now: &Tally) -> Option<Stuck> {
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
        return Some(Stuck { reason: name, sentence });
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
        return Some(Stuck { reason: name, sentence });
    }
    let (seen, filtered) = (now.faults.0 - before.faults.0, now.faults.1 - before.faults.1);
    if evidence == 0 && seen >= ENOUGH && seen == filtered {
        let sentence = format!(
            "all {seen} hint faults were of programs out of scope: let [[scope]] name the programs that are to be managed, \
             or leave it out for all"
        );
        return Some(Stuck { reason: "out_of_scope", sentence });
    }
    (evidence == 0 && seen == 0 && now.lower_mib >= LOWER_MIB_MIN).then(|| {
        let sentence = format!(
            "no access to lower tiers was seen, though {} MiB are in use there: either their programs are idle, or no source sees \
             them, which `thermocline doctor` would tell",
            now.lower_mib
        );
        Stuck { reason: NO_EVIDENCE, sentence }
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
    minute: Option<Minute>,
    /// Pages are moved, so that a minute may come to nothing.
    moves: bool,
}

impl Watch {
    /// Starts at `now`; unless the daemon `moves` pages, none are missed.
    pub fn new(now: Nanos, moves: bool) -> Watch {
        Watch { begin: now, before: Tally::default(), minute: None, moves }
    }

    /// Assesses the time since the last assessment, if that was at least a minute ago.
    pub fn look(&mut self, now: Nanos, tally: impl FnOnce() -> Tally) {
        if now.since(self.begin) < EVERY {
            return;
        }
        let tally = tally();
        let stuck = judge(&self.before, &tally).filter(|_| self.moves);
        self.minute = Some(tally.since(&self.before, stuck));
        (self.begin, self.before) = (now, tally);
    }

    /// The last full minute.
    pub fn minute(&self) -> Option<&Minute> {
        self.minute.as_ref()
    }

    /// Why the last minute came to nothing.
    pub fn stuck(&self) -> Option<&Stuck> {
        self.minute.as_ref()?.stuck.as_ref()
    }
}

#[cfg(test)]
mod tests {
    use thermocline_core::access::Source as Access;

    use super::*;

    /// The assessment of a minute in which hint faults arrived and `change` was applied.
    fn minute(change: impl FnOnce(&mut Tally)) -> Option<Stuck> {
        let before = Tally { lower_mib: 500, ..Tally::default() };
        let mut now = before.clone();
        now.faults = (475_333, 0);
        now.counters.evidence.add(Access::HintFault, 475_333);
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
    fn a_minute_is_assessed_when_it_is_over() {
        let mut watch = Watch::new(Nanos(0), true);
        let rate = |count, lost| vec![("hintfault", Rate { what: "faults", count, lost })];
        let tally = |seconds, count, lost, lower_mib| Tally {
            lower_mib,
            sources: rate(count, lost),
            scans: count / 10,
            programs_cpu: Some(Nanos::from_s(1000 + 3 * seconds)),
            own_cpu: Nanos::from_s(seconds),
            ..Tally::default()
        };
        watch.look(Nanos::from_s(59), || unreachable!());
        assert_eq!(watch.minute(), None);
        watch.look(Nanos::from_s(60), || tally(60, 0, 0, 500));
        assert_eq!(watch.stuck().map(|stuck| stuck.reason), Some("no_evidence"));
        assert_eq!(watch.minute().unwrap().programs_cpu, None, "it is not known what was used before");
        watch.look(Nanos::from_s(120), || tally(120, 700, 7, 0));
        let minute = watch.minute().unwrap();
        assert_eq!(minute.stuck, None);
        let source = SourceMinute { name: "hintfault", came: 700, lost: 7, scans: Some(70) };
        assert_eq!(minute.sources, [source]);
        assert_eq!(minute.programs_cpu, Some(Nanos::from_s(120)), "180 s, 60 of them the daemon's");
        let mut observes = Watch::new(Nanos(0), false);
        observes.look(Nanos::from_s(60), || tally(60, 0, 0, 500));
        assert_eq!(observes.stuck(), None, "it is not to move anything");
    }
}
