//! The state of kswapd, which [`crate::kernel::reclaim`] runs, and the request that wakes it.

use thermocline_core::units::Nanos;

use super::{NEVER, System};
use crate::machine::NodeIndex;

/// kswapd works in steps of this time.
pub(crate) const STEP: Nanos = Nanos::from_ms(1);

/// kswapd of a node.
#[derive(Clone, Copy, Debug)]
pub struct Kswapd {
    /// When it runs next; [`NEVER`] while it sleeps.
    pub(crate) due: Nanos,
    /// CPU time that it has used of the current step beyond its end, in ns.
    pub(crate) ahead_ns: f64,
    /// Pages examined since it last demoted one.
    pub(crate) fruitless: u64,
    /// Time that it has worked, in ns.
    pub(crate) worked_ns: f64,
}

impl Default for Kswapd {
    fn default() -> Kswapd {
        Kswapd { due: NEVER, ahead_ns: 0.0, fruitless: 0, worked_ns: 0.0 }
    }
}

impl System {
    /// Wakes kswapd of a node, if the node has a demotion target and demotion is on.
    pub fn wake_kswapd(&mut self, node: NodeIndex) {
        let i = usize::from(node);
        let may = self.kernel.demotion_enabled && self.memory.nodes[i].lists.is_some();
        if self.kswapd[i].due == NEVER && may {
            self.kswapd[i].due = self.now.plus(STEP);
        }
    }
}
