//! Which faults happen: drawn from a seed, taken away one by one while the failure stays.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};

use rand_pcg::Pcg64Mcg;
use rand_pcg::rand_core::Rng;

/// What may be done to a machine, at each opportunity of its kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// The outcome of a batch never comes.
    OutcomeLost,
    /// It comes some polls later, perhaps long after the engine gave the batch up.
    OutcomeLate,
    /// It comes twice.
    OutcomeTwice,
    /// It comes after those that follow it.
    OutcomeReordered,
    /// It has too few or too many entries.
    OutcomeMalformed,
    /// A batch fails as a whole or in part; which reason is drawn.
    BatchFails,
    /// The mover takes a batch some polls later.
    BatchHeld,
    /// Accesses, regions or pages of arbitrary numbers.
    Nonsense,
    /// One page is reported on two nodes at once.
    Contradiction,
    /// A process exits or calls exec, whatever is under way.
    ProcessGone,
    /// A node's memory goes, or comes back.
    NodeChanges,
    /// A node has nothing free, for some readings.
    NodeFull,
    /// What became of a demand never comes, or comes twice.
    DemandEnds,
    /// Outcomes, demands, holdings and pressures of nothing that there is.
    Unknown,
    /// The clock stands still or jumps, back or ahead.
    Clock,
}

impl Kind {
    /// All of them.
    pub const ALL: [Kind; 15] = [
        Kind::OutcomeLost,
        Kind::OutcomeLate,
        Kind::OutcomeTwice,
        Kind::OutcomeReordered,
        Kind::OutcomeMalformed,
        Kind::BatchFails,
        Kind::BatchHeld,
        Kind::Nonsense,
        Kind::Contradiction,
        Kind::ProcessGone,
        Kind::NodeChanges,
        Kind::NodeFull,
        Kind::DemandEnds,
        Kind::Unknown,
        Kind::Clock,
    ];
}

/// Faults by their kind and its opportunity, counted from 0, each with a number that says the rest.
#[derive(Clone, Debug, Default)]
pub struct Plan(BTreeMap<(Kind, u32), u64>);

impl Plan {
    /// `per_kind` faults of each kind, at random among the first `opportunities` of it.
    pub fn draw(random: &mut Pcg64Mcg, per_kind: u32, opportunities: u32) -> Plan {
        let one =
            |kind, random: &mut Pcg64Mcg| ((kind, random.next_u32() % opportunities), random.next_u64());
        let kinds = Kind::ALL.iter().flat_map(|kind| (0..per_kind).map(move |_| *kind));
        Plan(kinds.map(|kind| one(kind, random)).collect())
    }

    /// Faults of one kind alone.
    pub fn of_kind(random: &mut Pcg64Mcg, kind: Kind, count: u32, opportunities: u32) -> Plan {
        let one = |_| ((kind, random.next_u32() % opportunities), random.next_u64());
        Plan((0..count).map(one).collect())
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// An opportunity at which a fault of this kind is planned.
    pub fn at_some(&self, kind: Kind) -> u32 {
        let found = self.0.keys().find(|(of, _)| *of == kind);
        found.expect("there is one of this kind").1
    }

    /// What happens at this opportunity.
    pub fn at(&self, kind: Kind, opportunity: u32) -> Option<u64> {
        self.0.get(&(kind, opportunity)).copied()
    }

    /// Fewer faults that still fail: halves, quarters and so on are left out while `fails`.
    pub fn shrink(&self, fails: impl Fn(&Plan) -> bool) -> Plan {
        let mut all: Vec<_> = self.0.iter().map(|(at, word)| (*at, *word)).collect();
        let mut size = all.len().div_ceil(2);
        while size > 0 {
            let mut from = 0;
            while from < all.len() {
                let mut fewer = all.clone();
                fewer.drain(from..(from + size).min(all.len()));
                if fails(&Plan(fewer.iter().copied().collect())) { all = fewer } else { from += size }
            }
            size = if size == 1 { 0 } else { size.div_ceil(2) };
        }
        Plan(all.into_iter().collect())
    }
}

/// Runs `course` with a plan. Where that panics, the fewest faults that still make it panic are
/// told, with the seed, the commit and the command that runs them again.
pub fn hold(plan: &Plan, replay: &str, course: impl Fn(&Plan) -> u64) -> u64 {
    let run = |plan: &Plan| catch_unwind(AssertUnwindSafe(|| course(plan)));
    let Err(panic) = run(plan) else { return course_result(run(plan)) };
    let hook = std::panic::take_hook();
    // Each try would print what it broke.
    std::panic::set_hook(Box::new(|_| {}));
    let least = plan.shrink(|plan| run(plan).is_err());
    std::panic::set_hook(hook);
    let said = |panic: Box<dyn std::any::Any + Send>| match panic.downcast::<String>() {
        Ok(text) => *text,
        Err(other) => {
            other.downcast::<&str>().map_or_else(|_| "a panic".to_owned(), |text| (*text).to_owned())
        }
    };
    panic!(
        "{}\n{} of {} faults are enough: {:?}\ncommit {}; again with: {replay}",
        said(run(&least).err().unwrap_or(panic)),
        least.0.len(),
        plan.0.len(),
        least.0,
        commit()
    );
}

fn course_result(result: std::thread::Result<u64>) -> u64 {
    result.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

/// The commit that is checked out, where that can be found out.
fn commit() -> String {
    let asked = std::process::Command::new("git").args(["rev-parse", "--short", "HEAD"]).output();
    let text = asked.ok().filter(|output| output.status.success());
    text.map_or_else(
        || "unknown".to_owned(),
        |output| String::from_utf8_lossy(&output.stdout).trim().to_owned(),
    )
}
