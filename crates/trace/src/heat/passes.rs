//! When scans have come by, from the marks of the pages that faulted afterwards.
//!
//! The kernel scans the memory of a process in steps of ascending addresses, and begins anew at its
//! end. So marks in the order of time have ascending addresses until a pass begins anew. A pass
//! shows only where pages that it marked faulted later; in between, its time is that of the next
//! step that shows.

use std::collections::BTreeMap;

use thermocline_core::units::{Nanos, Pid, VirtPage};

use super::collect::Fault;

/// A step of a scan, as far as it shows: the first and the last virtual page, and its time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Step {
    first: u64,
    last: u64,
    time: Nanos,
}

/// The passes of each process, in order; each has steps of ascending addresses.
#[derive(Clone, Debug, Default)]
pub struct Passes {
    of: BTreeMap<Pid, Vec<Vec<Step>>>,
}

impl Passes {
    /// The passes that these faults show.
    pub fn of(faults: &[Fault]) -> Passes {
        let mut steps: BTreeMap<(Pid, Nanos), Step> = BTreeMap::new();
        for fault in faults {
            let vpn = fault.page.vpn;
            let step = Step { first: vpn, last: vpn, time: fault.marked };
            let step = steps.entry((fault.page.pid, fault.marked)).or_insert(step);
            (step.first, step.last) = (step.first.min(vpn), step.last.max(vpn));
        }
        let mut of: BTreeMap<Pid, Vec<Vec<Step>>> = BTreeMap::new();
        for ((pid, _), step) in steps {
            let passes = of.entry(pid).or_default();
            match passes.last_mut() {
                Some(pass) if pass.last().is_none_or(|before| before.last < step.first) => pass.push(step),
                _ => passes.push(vec![step]),
            }
        }
        Passes { of }
    }

    /// When a page was marked for the first time after `time`, in a pass after the one that marked
    /// it at `marked`; in any pass, if that is not given. `None` if no pass shows that it did.
    pub fn next(&self, page: VirtPage, marked: Option<Nanos>, time: Nanos) -> Option<Nanos> {
        let passes = self.of.get(&page.pid)?;
        let begins = |pass: &Vec<Step>| pass.first().map_or(Nanos(0), |step| step.time);
        let first = marked.map_or(0, |marked| passes.partition_point(|pass| begins(pass) <= marked));
        (first..passes.len()).find_map(|number| {
            let pass = &passes[number];
            let step = pass.get(pass.partition_point(|step| step.last < page.vpn));
            // A pass that does not show so far up has come there before the next one began.
            let at = step.map(|step| step.time).or_else(|| passes.get(number + 1).map(begins));
            at.filter(|at| *at > time)
        })
    }

    /// The first mark of any page.
    pub fn first(&self) -> Option<Nanos> {
        self.of.values().filter_map(|passes| passes.first()?.first()).map(|step| step.time).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_is_marked_again_when_the_next_pass_comes_by() {
        let fault = |vpn, marked| Fault {
            page: VirtPage { pid: Pid(1), vpn },
            order: 0,
            marked: Nanos(marked),
            time: Nanos(marked + 1),
        };
        // Three passes: over pages 1, 5 and 9; over 2 to 3 in one step, and 6; over 1.
        let marks = [(1, 100), (5, 110), (9, 120), (2, 200), (3, 200), (6, 210), (1, 300)];
        let passes = Passes::of(&marks.map(|(vpn, marked)| fault(vpn, marked)));
        let next = |vpn, marked: Option<u64>, time| {
            let page = VirtPage { pid: Pid(1), vpn };
            passes.next(page, marked.map(Nanos), Nanos(time)).map(|at| at.0)
        };
        assert_eq!(next(1, Some(100), 105), Some(200), "not at 110, which is the same pass");
        assert_eq!(next(3, Some(100), 105), Some(200));
        assert_eq!(next(5, Some(110), 115), Some(210));
        assert_eq!(next(9, Some(120), 125), Some(300), "the second pass does not show so far up");
        assert_eq!(next(1, Some(100), 250), Some(300), "the second pass came before it faulted");
        assert_eq!(next(2, Some(200), 205), None, "the third pass is not seen to come so far");
        assert_eq!((next(1, None, 50), next(4, None, 50)), (Some(100), Some(110)));
        assert_eq!(passes.first(), Some(Nanos(100)));
    }
}
