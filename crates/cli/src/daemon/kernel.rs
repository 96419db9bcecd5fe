//! Managers of the kernel's: set up, watched and reported, and everything put back at the end.

use std::time::Duration;

use anyhow::Context;
use serde::Serialize;
use serde_json::json;
use thermocline_core::config::Config;
use thermocline_core::topology::NodeState;
use thermocline_core::units::Nanos;
use thermocline_linux::actuator::{Actuator, SettingsStats};
use thermocline_linux::aside;
use thermocline_linux::damon::{Action, DamonStats, Follower, Stats};
use thermocline_linux::kernel_moves::{KernelMoves, Moved, MovedBy};
use thermocline_linux::kswapd::{Kswapd, KswapdStats};
use thermocline_linux::machine::{cpu_time, now};
use thermocline_linux::manager::{KernelManager, offer};
use thermocline_linux::node_state::NodeStateReader;
use thermocline_linux::root::Root;
use thermocline_linux::scope::Missing;
use thermocline_linux::topology::Discovered;
use thermocline_linux::vmstat::Vmstat;

use super::session::{Ended, Session};
use super::snapshot::Fixed;
use super::socket::{Question, Request};
use super::{Mode, announce, announce_changes, live, put_back, refusal};
use crate::output::{print_line, tell, tell_text};
use crate::text::{by_damon, by_kernel, mib};

/// Time between two looks which cgroups there are.
const CGROUPS_EVERY: Nanos = Nanos::from_s(1);
/// How soon a signal is seen.
const NAP: Duration = Duration::from_millis(50);

/// Runs the manager that the configuration names until the session is over or another one is to
/// take over. A dry run only tells what would be done.
///
/// # Errors
/// When the manager cannot work here, or a setting cannot be made; everything that was changed is
/// put back first.
pub(super) fn run(
    root: &Root,
    config: &Config,
    found: &Discovered,
    mode: Mode,
    as_json: bool,
    session: &Session,
) -> anyhow::Result<Ended> {
    let name = config.manager.name;
    // First of all what a killed daemon left is put back: it may be what is in the way.
    let actuator = if mode == Mode::DryRun { None } else { Some(live(root, config, session)?) };
    let manager = offer(root, config, name, found)?
        .with_context(|| format!("{} is no manager of the kernel's", name.text()))?;
    announce(mode, found);
    tell!("manager {}: the kernel decides which pages move", name.text());
    if let KernelManager::Damon(setup) = &manager {
        setup.told().iter().for_each(|line| tell!("{line}"));
        setup.caveats().for_each(|line| tell!("{line}"));
    }
    announce_changes(root, mode, manager.plan());
    let Some(mut actuator) = actuator else { return Ok(Ended::Over) };

    let watched = Watched::new(root, config).and_then(|mut watched| {
        match &manager {
            KernelManager::Numab2(plan) => actuator.apply(plan).context("nothing was changed")?,
            KernelManager::Damon(setup) => {
                setup.start(root, &mut actuator).context("nothing was changed")?;
                let commands = actuator.commands().context("nothing reaches the kernel")?;
                watched.damon = Some(Stats::new(root, setup, commands));
                watched.follower = setup.follower();
            }
        }
        Ok(watched)
    });
    let driven = watched.and_then(|watched| {
        session.listen(root, config)?;
        session.began(name);
        drive(watched, &mut actuator, config, &Fixed::new(mode, config, &found.topology), as_json, session)
    });
    put_back(&mut actuator, mode, driven)
}

/// The machine under a manager of the kernel's at one moment.
#[derive(Clone, Debug, Serialize)]
pub struct KernelSnapshot {
    /// What does not change.
    #[serde(flatten)]
    pub fixed: Fixed,
    /// Time since the start, ns.
    pub uptime_ns: Nanos,
    /// CPU time of the daemon, ns.
    pub cpu_time_ns: Nanos,
    /// The nodes with memory.
    pub nodes: Vec<NodeState>,
    /// Settings that others have changed.
    pub settings: SettingsStats,
    /// Where kswapd has given up, and what came of bringing it back.
    pub kswapd: KswapdStats,
    /// Scopes whose cgroup is not there, a sentence each.
    pub no_cgroup: Vec<String>,
    /// What the kernel has moved by itself since the start; what DAMON has moved is not in it.
    pub kernel_moves: KernelMoves,
    /// What DAMON's schemes did, where DAMON manages.
    pub damon: Option<DamonStats>,
    /// Who has moved what since the start.
    pub moved: Moved,
}

/// What is looked at.
struct Watched {
    root: Root,
    start: Nanos,
    vmstat: Vmstat,
    nodes: NodeStateReader,
    damon: Option<Stats>,
    kswapd: Kswapd,
    missing: Missing,
    /// Keeps the filters of DAMON's schemes in step with the cgroups.
    follower: Option<Follower>,
}

impl Watched {
    fn new(root: &Root, config: &Config) -> anyhow::Result<Watched> {
        Ok(Watched {
            root: root.clone(),
            start: now(),
            vmstat: Vmstat::read(root)?,
            nodes: NodeStateReader::new(root),
            damon: None,
            kswapd: Kswapd::new(root, config, true),
            missing: Missing::new(root, &config.scope),
            follower: None,
        })
    }

    fn look(&mut self, fixed: &Fixed, actuator: &Actuator) -> anyhow::Result<KernelSnapshot> {
        let damon = self.damon.as_mut().map(|stats| stats.read().clone());
        let kernel_moves = KernelMoves::since(&Vmstat::read(&self.root)?, &self.vmstat, 0);
        let by_damon = |action| damon.as_ref().map_or(0, |stats| stats.moved(action));
        let by = |kernel, damon| MovedBy { thermocline: 0, kernel, damon };
        Ok(KernelSnapshot {
            fixed: fixed.clone(),
            uptime_ns: now().since(self.start),
            cpu_time_ns: cpu_time(),
            nodes: self.nodes.read()?.to_vec(),
            settings: actuator.settings_stats(),
            kswapd: self.kswapd.stats(),
            no_cgroup: self.missing.now().to_vec(),
            kernel_moves,
            moved: Moved {
                promoted: by(kernel_moves.pgpromote_success, by_damon(Action::MigrateHot)),
                demoted: by(kernel_moves.demoted(), by_damon(Action::MigrateCold)),
            },
            damon,
        })
    }
}

fn drive(
    mut watched: Watched,
    actuator: &mut Actuator,
    config: &Config,
    fixed: &Fixed,
    as_json: bool,
    session: &Session,
) -> anyhow::Result<Ended> {
    let every = Nanos::from_ms(config.daemon.report_ms);
    let mut due = watched.start.plus(every);
    let mut cgroups_due = watched.start;
    let mut running = usize::MAX;
    let mut ended = Ended::Over;
    while matches!(ended, Ended::Over) && !session.is_over() {
        session.turns_by(now());
        std::thread::sleep(NAP);
        for Question { request, answer, .. } in session.questions() {
            match request {
                Request::Status => {}
                Request::Explain { .. } => {
                    let why = format!(
                        "manager {} keeps no record of pages; `thermocline switch thermocline` has one kept",
                        fixed.manager.text()
                    );
                    // A client that has gone away needs no answer.
                    let _ = answer.try_send(json!({ "error": why }));
                }
                Request::Switch { manager } => {
                    let refusal = |to| refusal(&watched.root, config, actuator, to);
                    ended = session.switch(fixed.manager, manager, answer, refusal);
                }
            }
            if matches!(ended, Ended::Switch(..)) {
                break;
            }
        }
        if let Some(follower) = watched.follower.as_mut().filter(|_| now() >= cgroups_due) {
            if let Some(told) = follower.look(&watched.root, actuator) {
                tell!("{told}");
            }
            cgroups_due = now().plus(CGROUPS_EVERY);
        }
        actuator.look_after(now(), config.kernel.when_changed).iter().for_each(|told| tell!("{told}"));
        if let Some(told) = watched.kswapd.look(now(), &fixed.topology, actuator) {
            tell!("{told}");
        }
        for told in aside::news() {
            tell!("{told}");
        }
        if now() < due {
            continue;
        }
        watched.missing.look().iter().for_each(|told| tell!("{told}"));
        let snapshot = watched.look(fixed, actuator)?;
        if let Some(damon) = snapshot.damon.as_ref().filter(|damon| damon.running < running) {
            if damon.running < damon.started {
                tell!("of {} kdamonds {} run: somebody has ended the others", damon.started, damon.running);
            }
            running = damon.running;
        }
        print(&snapshot, as_json);
        session.publish(&snapshot);
        due = due.plus(every).max(now());
    }
    session.is_between_managers();
    let last = watched.look(fixed, actuator)?;
    if as_json {
        print(&last, true);
    } else {
        tell_text(format_args!("{}", summary(&last)));
    }
    Ok(ended)
}

fn print(snapshot: &KernelSnapshot, as_json: bool) {
    let line = if as_json { serde_json::to_string(snapshot).unwrap_or_default() } else { text(snapshot) };
    // A reader that has gone away does not stop the daemon.
    print_line(&line);
}

fn text(now: &KernelSnapshot) -> String {
    let Moved { promoted, demoted } = now.moved;
    let mut line = format!(
        "{:>5.0}s  promoted {:>7.1} MiB  demoted {:>7.1} MiB",
        now.uptime_ns.0 as f64 / 1e9,
        mib(promoted.kernel + promoted.damon),
        mib(demoted.kernel + demoted.damon)
    );
    if now.kernel_moves.pgdemote_direct > 0 {
        line.push_str(&format!("  direct demotions {}", now.kernel_moves.pgdemote_direct));
    }
    for node in &now.nodes {
        line.push_str(&format!("  node {} free {:.0} MiB", node.node.0, mib(node.free_pages)));
    }
    line
}

fn summary(end: &KernelSnapshot) -> String {
    let mut out = format!("after {:.1} s\n", end.uptime_ns.0 as f64 / 1e9);
    out.push_str(&by_kernel(&end.kernel_moves));
    if let Some(damon) = &end.damon {
        out.push_str(&by_damon(damon));
    }
    out
}
