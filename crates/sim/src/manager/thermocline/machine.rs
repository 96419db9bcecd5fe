//! The machine as the engine's driver sees it during a step.

use std::convert::Infallible;

use thermocline_core::access::{Evidence, Programs};
use thermocline_core::demand::Demand;
use thermocline_core::machine::{Machine, Wishes};
use thermocline_core::moves::Batch;
use thermocline_core::pace::Pacing;
use thermocline_core::topology::NodeState;
use thermocline_core::units::Nanos;

use super::daemon::Daemon;
use super::demoter::Demoter;
use crate::system::System;

/// See the module's description.
pub(super) struct AtWork<'a> {
    pub(super) daemon: &'a mut Daemon,
    pub(super) system: &'a mut System,
}

impl Machine for AtWork<'_> {
    type Error = Infallible;

    fn poll(
        &mut self,
        _now: Nanos,
        due: bool,
        observe: &mut dyn FnMut(Evidence<'_>),
    ) -> Result<(), Infallible> {
        let AtWork { daemon, system } = self;
        daemon.mover.run(system, observe);
        while let Some(done) = daemon.demoter.as_mut().and_then(|d| d.run(system)) {
            observe(Evidence::Demoted(&done));
        }
        if let Some(lists) = &mut daemon.hot_lists {
            lists.run(system, &mut daemon.evidence);
        }
        if let Some(regions) = &mut daemon.regions {
            regions.run(system, observe);
        }
        if due {
            daemon.scopes.report(system, observe);
            daemon.show(system, observe);
            observe(Evidence::Scans(system.scans()));
            if system.now >= daemon.programs_due {
                daemon.programs_due = system.now.plus(Programs::EVERY);
                observe(Evidence::Programs(system.programs()));
            }
        }
        Ok(())
    }

    fn nodes(&mut self, observe: &mut dyn FnMut(Evidence<'_>)) -> Result<&[NodeState], Infallible> {
        let AtWork { daemon, system } = self;
        daemon.scopes.hold(system, observe);
        daemon.nodes.clear();
        daemon.nodes.extend((0..system.machine.nodes.len()).map(|n| system.node_state(n as u8)));
        daemon.nodes.sort_by_key(|s| s.node);
        Ok(&daemon.nodes)
    }

    fn pacing(&self) -> Pacing {
        self.daemon.pacing
    }

    fn wish(&mut self, wishes: Wishes) {
        if let Some(pace) = wishes.scans {
            self.system.kernel.follow(pace, self.daemon.pacing == Pacing::Renewals);
        }
    }

    fn submit(&mut self, batches: Vec<Batch>) {
        self.daemon.mover.submit(batches, self.system.now);
    }

    fn demotes(&self) -> bool {
        self.daemon.demotes.is_some()
    }

    fn demote(&mut self, demands: Vec<Demand>) {
        let Daemon { demoter, demotes, .. } = &mut *self.daemon;
        let Some(reach) = demotes else { return };
        let demoter = demoter.get_or_insert_with(|| Demoter::new(self.system, reach));
        for demand in demands {
            demoter.take(self.system, demand);
        }
    }
}
