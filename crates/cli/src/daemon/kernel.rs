//! Managers in the kernel: sets them up, watches them, reports, and restores every setting at the
//! end.

use std::time::Duration;

use anyhow::Context;
use serde_json::json;
use thermocline_core::config::Config;
use thermocline_core::engine::reloadable;
use thermocline_core::units::Nanos;
use thermocline_linux::actuator::Actuator;
use thermocline_linux::aside;
use thermocline_linux::damon::{Follower, Stats};
use thermocline_linux::finding::Demoting;
use thermocline_linux::kernel_moves::KernelMoves;
use thermocline_linux::kswapd::Kswapd;
use thermocline_linux::machine::now;
use thermocline_linux::manager::{KernelManager, offer};
use thermocline_linux::node_state::NodeStateReader;
use thermocline_linux::root::Root;
use thermocline_linux::scope::Missing;
use thermocline_linux::topology::Discovered;
use thermocline_linux::vmstat::Vmstat;

use super::findings::{Findings, Loop, say_changed, say_kswapd};
use super::line::Lines;
use super::reload::Wanted;
use super::session::{Ended, Session};
use super::socket::{Question, Request};
use super::{Mode, announce, announce_changes, live, put_back, refusal};
use crate::output::tell;
use crate::snapshot::{Fixed, Seen, Snapshot};

/// Time between two checks of which cgroups exist.
const CGROUPS_EVERY: Nanos = Nanos::from_s(1);
/// Time between two checks for signals.
const NAP: Duration = Duration::from_millis(50);

/// Runs the configured manager until the session is over or another manager is to take over. A dry
/// run only reports what it would do.
///
/// # Errors
/// The manager cannot work here, or a setting cannot be made. Everything that was changed is
/// restored first.
pub(super) fn run(
    root: &Root,
    config: &Config,
    found: &Discovered,
    mode: Mode,
    as_json: bool,
    session: &Session,
) -> anyhow::Result<Ended> {
    let name = config.manager.name;
    // Restore what a killed daemon left before anything else: it may be what prevents the manager
    // from working.
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
        session.listen(root, config, &found.topology)?;
        session.began(name);
        drive(
            watched,
            &mut actuator,
            config,
            &Fixed::new(mode.name(), config, &found.topology),
            found,
            as_json,
            session,
        )
    });
    put_back(&mut actuator, mode, driven)
}

/// What is watched.
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

    fn look(&mut self, fixed: &Fixed, actuator: &Actuator) -> anyhow::Result<Snapshot> {
        let damon = self.damon.as_mut().map(|stats| stats.read().clone());
        let seen = Seen {
            uptime: now().since(self.start),
            nodes: self.nodes.read()?.to_vec(),
            settings: actuator.settings_stats(),
            kswapd: self.kswapd.stats(),
            no_cgroup: self.missing.now(),
            kernel_moves: KernelMoves::since(&Vmstat::read(&self.root)?, &self.vmstat, 0),
        };
        Ok(Snapshot::of_kernel(fixed, seen, damon))
    }
}

fn drive(
    mut watched: Watched,
    actuator: &mut Actuator,
    config: &Config,
    fixed: &Fixed,
    found: &Discovered,
    as_json: bool,
    session: &Session,
) -> anyhow::Result<Ended> {
    let mut current = config.clone();
    let mut findings = Findings::new(&watched.root, config, found);
    let demoting = Demoting::new(config, None);
    let mut due = watched.start.plus(Nanos::from_ms(current.daemon.report_ms));
    let mut cgroups_due = watched.start;
    let mut running = usize::MAX;
    let mut lines = Lines::new(as_json, Mode::Run);
    let mut ended = Ended::Over;
    while matches!(ended, Ended::Over) && !session.is_over() {
        session.turns_by(now());
        std::thread::sleep(NAP);
        let mut reloads: Vec<Wanted> =
            session.is_reload_asked().then_some(Wanted::Files(None)).into_iter().collect();
        for Question { request, answer, .. } in session.questions() {
            match request {
                Request::Reload => reloads.push(Wanted::Files(Some(answer))),
                Request::Status { .. } => {}
                // A client that has gone away needs no answer.
                Request::Config => {
                    drop(answer.try_send(json!(session.of_files(current.manager.name))));
                }
                Request::Explain { .. }
                | Request::Pages { .. }
                | Request::Scope { .. }
                | Request::Decisions { .. } => {
                    let why = format!(
                        "manager {} keeps no record of pages; `thermocline switch thermocline` has one kept",
                        fixed.manager.text()
                    );
                    // A client that has gone away needs no answer.
                    let _ = answer.try_send(json!({ "error": why }));
                }
                Request::Switch { manager } => {
                    let refusal = |to| refusal(&watched.root, &current, actuator, to);
                    ended = session.switch(fixed.manager, manager, answer, refusal);
                }
            }
            if matches!(ended, Ended::Switch(..)) {
                break;
            }
        }
        for wanted in reloads {
            // Changes that concern the engine take effect when it takes over.
            let apply = |next: &Config| {
                let changes = reloadable(&current, next)?;
                anyhow::ensure!(
                    next.scope == current.scope,
                    "manager damon takes other scopes at its start alone; restart thermocline, or take them back to have \
                     the other changes applied"
                );
                Ok(changes)
            };
            if let Some(next) = session.reload(wanted, current.manager.name, apply) {
                findings.reload(&next);
                current = next;
            }
        }
        if let Some(follower) = watched.follower.as_mut().filter(|_| now() >= cgroups_due) {
            if let Some(told) = follower.look(&watched.root, actuator) {
                tell!("{told}");
            }
            cgroups_due = now().plus(CGROUPS_EVERY);
        }
        actuator.look_after(now(), current.kernel.when_changed).into_iter().for_each(say_changed);
        watched.kswapd.look(now(), &fixed.topology, actuator).into_iter().for_each(say_kswapd);
        for told in aside::news() {
            tell!("{told}");
        }
        if now() < due {
            continue;
        }
        watched.missing.look();
        let snapshot = watched.look(fixed, actuator)?;
        if let Some(damon) = snapshot.damon.as_ref().filter(|damon| damon.running < running) {
            if damon.running < damon.started {
                tell!("of {} kdamonds {} run: somebody has ended the others", damon.started, damon.running);
            }
            running = damon.running;
        }
        let figures = Loop {
            config: &current,
            demoting: &demoting,
            actuator,
            kswapd: &watched.kswapd,
            no_cgroup: watched.missing.now(),
            minute: None,
        };
        let snapshot = snapshot.with_findings(session.follow(findings.look(now(), &figures)));
        lines.print(&snapshot);
        session.publish(snapshot);
        due = due.plus(Nanos::from_ms(current.daemon.report_ms)).max(now());
    }
    session.is_between_managers();
    let last = watched.look(fixed, actuator)?;
    lines.summary(&last);
    Ok(ended)
}
