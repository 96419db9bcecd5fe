//! How cold pages are demoted: in a way that the kernel permits, and in another if that fails.

use anyhow::Context;
use thermocline_core::config::{Config, DemotionMode, DemotionWay, ManagerName};
use thermocline_core::topology::Topology;
use thermocline_linux::actuator::{Actuator, plan};
use thermocline_linux::demoter::{self, Demoter, NotDemoting, Offer, Way};
use thermocline_linux::finding::Demoting;
use thermocline_linux::machine::LiveMachine;
use thermocline_linux::root::Root;
use thermocline_linux::topology::Discovered;

use crate::output::tell;

/// Whose memory is demoted, or why none is. `None` if the verb never demotes.
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

/// Reports whether and how cold pages are demoted.
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

/// Starts the demoter, and replaces it if its way fails.
pub(super) struct Demotion<'a> {
    root: &'a Root,
    config: &'a Config,
    found: &'a Discovered,
    /// The way in use.
    way: Option<DemotionWay>,
    /// Ways that have failed.
    failed: Vec<DemotionWay>,
    /// What findings are judged by.
    demoting: Demoting,
}

impl<'a> Demotion<'a> {
    /// `demoting` as it was offered.
    pub(super) fn new(
        root: &'a Root,
        config: &'a Config,
        found: &'a Discovered,
        demoting: Demoting,
    ) -> Demotion<'a> {
        Demotion { root, config, found, way: None, failed: Vec::new(), demoting }
    }

    /// How cold pages go down now.
    pub(super) fn demoting(&self) -> &Demoting {
        &self.demoting
    }

    /// Starts the demoter if the actuator can send commands to the kernel. Its settings are already
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

    /// If the way in use has failed, tries another. Returns what to report.
    pub(super) fn look(
        &mut self,
        topology: &Topology,
        actuator: &mut Actuator,
        machine: &mut LiveMachine,
    ) -> Option<String> {
        let why = machine.end_failed_demoter()?;
        self.failed.extend(self.way.take());
        match self.start_another(topology, actuator, machine) {
            Ok(caveat) => {
                self.demoting = self.way.map_or(Demoting::NotWanted, Demoting::Ours);
                Some(format!("cold pages go down in another way, because of \"{why}\"{caveat}"))
            }
            Err(error) => {
                self.demoting = Demoting::No(format!("{why}; {error:#}"));
                Some(format!("nothing is demoted any more: {why}; {error:#}"))
            }
        }
    }

    fn start_another(
        &mut self,
        topology: &Topology,
        actuator: &mut Actuator,
        machine: &mut LiveMachine,
    ) -> anyhow::Result<String> {
        let offer = demoter::offer_but(self.root, self.config, self.found, &self.failed)?;
        let changes = plan(self.root, &demoter::settings(self.config, Some(&offer)))?;
        // A setting that the engine has already made and that others have changed since is left to
        // them.
        actuator.apply(&changes)?;
        let told = caveat(&offer.way);
        self.start(offer, topology, actuator, machine)?;
        Ok(told)
    }
}
