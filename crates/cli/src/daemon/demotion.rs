//! How cold pages are demoted: in a way that the kernel permits, and in another if that fails.

use anyhow::Context;
use thermocline_core::config::{Config, DemotionMode, DemotionWay, ManagerName};
use thermocline_core::demotion::Reach;
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

/// What another configuration changes of demotion.
#[derive(Debug)]
pub(super) enum Next {
    /// Nothing.
    Same,
    /// Other memory goes down.
    Of(Reach),
    /// Nothing went down, and from now on it does.
    Begins(Offer),
    /// Nothing goes down, as before.
    Nothing(Demoting),
}

/// Starts the demoter, and replaces it if its way fails.
pub(super) struct Demotion<'a> {
    root: &'a Root,
    config: Config,
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
        config: &Config,
        found: &'a Discovered,
        demoting: Demoting,
    ) -> Demotion<'a> {
        let config = config.clone();
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

    /// What other scopes change: whose memory goes down, as far as that can change without a
    /// restart.
    ///
    /// # Errors
    /// Cold pages would no longer go down, or in another way.
    pub(super) fn prepare(&self, next: &Config, actuator: &Actuator) -> anyhow::Result<Next> {
        let nothing = next.manager.name == ManagerName::Observe || actuator.commands().is_none();
        if nothing || next.scope == self.config.scope { Ok(Next::Same) } else { self.judge(next) }
    }

    fn judge(&self, next: &Config) -> anyhow::Result<Next> {
        let offered = demoter::offer_but(self.root, next, self.found, &self.failed);
        let refused = "these scopes need a restart";
        match (self.way, offered) {
            (None, Ok(offer)) => Ok(Next::Begins(offer)),
            (None, Err(why)) => Ok(Next::Nothing(Demoting::new(next, Some(&Err(why))))),
            (Some(way), Ok(offer)) if offer.way.name() == way => Ok(Next::Of(offer.reach)),
            (Some(_), Ok(_)) => anyhow::bail!("{refused}: cold pages would go down in another way"),
            (Some(_), Err(why)) => {
                anyhow::bail!("{refused}: cold pages would no longer go down, because {why}")
            }
        }
    }

    /// Starts the demoter where there was none and other scopes allow it.
    ///
    /// # Errors
    /// A setting cannot be made, or the demoter cannot be started.
    pub(super) fn begin(
        &mut self,
        next: &Next,
        config: &Config,
        topology: &Topology,
        actuator: &mut Actuator,
        machine: &mut LiveMachine,
    ) -> anyhow::Result<()> {
        let Next::Begins(offer) = next else { return Ok(()) };
        actuator.apply(&plan(self.root, &demoter::settings(config, Some(offer)))?)?;
        self.start(offer.clone(), topology, actuator, machine)
    }

    /// Takes another configuration, for which it was prepared and has begun.
    pub(super) fn reload(&mut self, next: Next, config: &Config, machine: &LiveMachine) {
        match next {
            Next::Same => {}
            Next::Of(reach) => machine.set_reach(reach),
            Next::Begins(offer) => {
                self.demoting = Demoting::Ours(offer.way.name());
                announce(&Ok(offer));
            }
            Next::Nothing(demoting) => self.demoting = demoting,
        }
        self.config = config.clone();
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
        let offer = demoter::offer_but(self.root, &self.config, self.found, &self.failed)?;
        let changes = plan(self.root, &demoter::settings(&self.config, Some(&offer)))?;
        // A setting that the engine has already made and that others have changed since is left to
        // them.
        actuator.apply(&changes)?;
        let told = caveat(&offer.way);
        self.start(offer, topology, actuator, machine)?;
        Ok(told)
    }
}

#[cfg(test)]
mod tests {
    use thermocline_core::config::Scope;
    use thermocline_linux::topology::discover;

    use super::super::tests::machine;
    use super::*;

    #[test]
    fn other_scopes_go_down_at_once_unless_demotion_would_end_or_change_its_way() {
        let machine = machine();
        let config = Config::default();
        let found = discover(&machine.root, &config.tiers).unwrap();
        let mut demotion = Demotion::new(&machine.root, &config, &found, Demoting::NotWanted);
        let with = |scope: Scope| Config { scope: vec![scope], ..Config::default() };
        let cgroup = with(Scope { cgroup: Some("/app.slice".to_owned()), ..Scope::default() });
        let command = with(Scope { command: Some("db".to_owned()), ..Scope::default() });
        assert!(matches!(demotion.judge(&cgroup), Ok(Next::Begins(_))), "{:?}", demotion.judge(&cgroup));
        assert!(matches!(demotion.judge(&command), Ok(Next::Nothing(Demoting::No(_)))));

        demotion.way = Some(DemotionWay::Generations);
        let Ok(Next::Of(reach)) = demotion.judge(&cgroup) else { panic!("{:?}", demotion.judge(&cgroup)) };
        assert!(reach.covers("/app.slice/x") && !reach.covers("/other"));
        let error = demotion.judge(&command).unwrap_err().to_string();
        assert!(error.starts_with("these scopes need a restart: cold pages would no longer"), "{error}");
        demotion.way = Some(DemotionWay::Node);
        let error = demotion.judge(&cgroup).unwrap_err().to_string();
        assert!(error.contains("in another way"), "{error}");
    }
}
