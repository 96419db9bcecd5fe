//! A machine worked by hand: a test puts in what it reports, and looks at what it was asked for.

use thermocline_core::access::Evidence;
use thermocline_core::demand::Demand;
use thermocline_core::machine::{Machine, Wishes};
use thermocline_core::moves::Batch;
use thermocline_core::topology::NodeState;
use thermocline_core::units::Nanos;

/// Reports something.
type Report = Box<dyn FnOnce(&mut dyn FnMut(Evidence<'_>))>;

/// One call of the driver's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Call {
    /// [`Machine::poll`], and whether a tick was due.
    Poll(bool),
    /// [`Machine::nodes`].
    Nodes,
    /// [`Machine::wish`].
    Wish,
    /// [`Machine::submit`].
    Submit,
    /// [`Machine::demote`].
    Demote,
}

/// See the module's description.
#[derive(Default)]
pub struct Hand {
    reports: Vec<Report>,
    /// The nodes' state; without it, reading fails.
    pub nodes: Vec<NodeState>,
    /// Whether demands lead to anything.
    pub demotes: bool,
    /// Whether it has more to look for.
    pub looking: bool,
    /// Batches submitted and not taken out yet.
    pub batches: Vec<Batch>,
    /// Demands made and not taken out yet.
    pub demands: Vec<Demand>,
    /// The calls so far.
    pub calls: Vec<Call>,
}

impl Hand {
    /// Has the next poll report something.
    pub fn report(&mut self, report: impl FnOnce(&mut dyn FnMut(Evidence<'_>)) + 'static) {
        self.reports.push(Box::new(report));
    }
}

impl Machine for Hand {
    type Error = &'static str;

    fn poll(
        &mut self,
        _now: Nanos,
        due: bool,
        observe: &mut dyn FnMut(Evidence<'_>),
    ) -> Result<(), Self::Error> {
        self.calls.push(Call::Poll(due));
        self.reports.drain(..).for_each(|report| report(observe));
        Ok(())
    }

    fn nodes(&mut self, _observe: &mut dyn FnMut(Evidence<'_>)) -> Result<&[NodeState], Self::Error> {
        self.calls.push(Call::Nodes);
        if self.nodes.is_empty() { Err("no nodes") } else { Ok(&self.nodes) }
    }

    fn wish(&mut self, _wishes: Wishes) {
        self.calls.push(Call::Wish);
    }

    fn submit(&mut self, batches: Vec<Batch>) {
        self.calls.push(Call::Submit);
        self.batches.extend(batches);
    }

    fn demotes(&self) -> bool {
        self.demotes
    }

    fn demote(&mut self, demands: Vec<Demand>) {
        self.calls.push(Call::Demote);
        self.demands.extend(demands);
    }

    fn is_looking(&self) -> bool {
        self.looking
    }
}
