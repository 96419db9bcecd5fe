//! How cold pages go down: the way that the kernel lets be used, and another where it fails.

use anyhow::Context;
use thermocline_core::config::{Config, DemotionMode, DemotionWay, ManagerName};
use thermocline_core::topology::Topology;
use thermocline_linux::actuator::{Actuator, plan};
use thermocline_linux::demoter::{self, Demoter, NotDemoting, Offer, Way};
use thermocline_linux::machine::LiveMachine;
use thermocline_linux::root::Root;
use thermocline_linux::topology::Discovered;

use crate::output::tell;

/// Whose memory is demoted, or why nobody's; nothing where the verb never demotes.
pub(super) fn offer(
    root: &Root,
    config: &Config,
    found: &Discovered,
) -> anyhow::Result<Option<Result<Offer, NotDemoting>>> {
    if config.manager.name == ManagerName::Observe {
        return Ok(None);
    }
    let demotion = demoter::offer(root, config, found);
    if let (Err(why), DemotionMode::On) = (&demotion, config.demotion.mode) {
        anyhow::bail!("demotion.mode is \"on\", but nothing could be demoted: {why}");
    }
    Ok(Some(demotion))
}

/// Says what becomes of cold pages.
pub(super) fn announce(demotion: &Result<Offer, NotDemoting>) {
    match demotion {
        Ok(offer) => {
            tell!("cold pages of the top tier go down where it runs out of free memory{}", caveat(&offer.way))
        }
        Err(why) => tell!("nothing is demoted: {why}"),
    }
}

fn caveat(way: &Way) -> String {
    way.caveat().map(|caveat| format!(", {caveat}")).unwrap_or_default()
}

/// What demotes, and what takes its place.
pub(super) struct Demotion<'a> {
    root: &'a Root,
    config: &'a Config,
    found: &'a Discovered,
    /// The way in use.
    way: Option<DemotionWay>,
    /// Ways that have failed.
    failed: Vec<DemotionWay>,
}

impl<'a> Demotion<'a> {
    pub(super) fn new(root: &'a Root, config: &'a Config, found: &'a Discovered) -> Demotion<'a> {
        Demotion { root, config, found, way: None, failed: Vec::new() }
    }

    /// Starts what demotes, where the door for commands reaches the kernel. Settings have been
    /// made.
    pub(super) fn start(
        &mut self,
        offer: Offer,
        topology: &Topology,
        actuator: &mut Actuator,
        machine: &mut LiveMachine,
    ) -> anyhow::Result<()> {
        let Some(commands) = actuator.commands() else { return Ok(()) };
        if let Way::Regions(setup) = &offer.way {
            setup.start(self.root, actuator).context("DAMON was not started")?;
        }
        self.way = Some(offer.way.name());
        let with_memory = topology.nodes.iter().filter(|n| n.capacity_pages > 0);
        let lower = with_memory.map(|n| n.id).filter(|id| topology.is_lower(*id)).collect();
        let demoter =
            Demoter::start(self.root, offer, lower, commands).context("cannot start the demoter")?;
        machine.set_demoter(demoter);
        Ok(())
    }

    /// Has another way tried where the one in use has failed; returns what there is to say.
    pub(super) fn look(
        &mut self,
        topology: &Topology,
        actuator: &mut Actuator,
        machine: &mut LiveMachine,
    ) -> Option<String> {
        let why = machine.end_failed_demoter()?;
        self.failed.extend(self.way.take());
        Some(match self.start_another(topology, actuator, machine) {
            Ok(caveat) => format!("cold pages go down in another way, because of \"{why}\"{caveat}"),
            Err(error) => format!("nothing is demoted any more: {why}; {error:#}"),
        })
    }

    fn start_another(
        &mut self,
        topology: &Topology,
        actuator: &mut Actuator,
        machine: &mut LiveMachine,
    ) -> anyhow::Result<String> {
        let offer = demoter::offer_but(self.root, self.config, self.found, &self.failed)?;
        let changes = plan(self.root, &demoter::settings(self.config, Some(&offer)))?;
        // What the engine has set already and others have changed since is theirs.
        actuator.apply(&changes)?;
        let told = caveat(&offer.way);
        self.start(offer, topology, actuator, machine)?;
        Ok(told)
    }
}
