//! The daemon: opens the machine, drives the engine, reports, and restores every setting.

mod demotion;
mod driver;
mod ending;
mod findings;
mod handlers;
mod heat;
mod http;
mod kernel;
mod line;
mod pods;
mod pulse;
mod recording;
mod reload;
mod session;
mod shelf;
pub mod socket;
mod supervisor;
#[cfg(test)]
mod tests;
mod trouble;
mod unix_socket;

use std::path::Path;

use anyhow::Context;
use serde_json::json;
use thermocline_core::config::{Config, Enabled, ManagerName, Scope};
use thermocline_core::engine::Engine;
use thermocline_front::config::{self, Asked, FileError};
use thermocline_linux::actuator::{Actuator, Change, Lock, Plan, plan};
use thermocline_linux::demoter::{self, NotDemoting, Offer, Way};
use thermocline_linux::descriptors;
use thermocline_linux::doctor::{self, Finding, overridden};
use thermocline_linux::finding::Demoting;
use thermocline_linux::manager;
use thermocline_linux::pace::Pace;
use thermocline_linux::root::Root;
use thermocline_linux::source::{ROWS, one_tier};
use thermocline_linux::topology::{Discovered, discover};

use crate::args::Watch;
use crate::output::{self, tell};
use ending::Ending;
use recording::Recording;
pub use recording::{For, RecordAsked};
use reload::Configured;
use session::{Ended, Session};

/// What the daemon does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Moves pages.
    Run,
    /// Decides, but changes and moves nothing.
    DryRun,
    /// Shows what is hot, and moves nothing.
    Observe,
}

impl Mode {
    /// The verb that starts it.
    pub fn name(self) -> &'static str {
        match self {
            Mode::Run => "run",
            Mode::DryRun => "run --dry-run",
            Mode::Observe => "observe",
        }
    }
}

/// Runs until the duration is over or a signal asks it to end. `manager` overrides the manager of
/// the configuration at the start; a client may later switch to another. `only` names the scopes
/// that are managed, if not all.
///
/// # Errors
/// The machine cannot be used, a kernel setting cannot be made, or it cannot be recorded.
/// Everything that was changed is restored first.
pub fn run(
    watch: &Watch,
    mode: Mode,
    manager: Option<ManagerName>,
    only: &[String],
    record: Option<RecordAsked>,
) -> anyhow::Result<()> {
    let configured = configured(watch, mode, manager, only)?;
    let mut config = configured.now();
    if record.is_some() && config.manager.name.is_of_kernel() {
        return Err(FileError::Invalid(format!(
            "manager {} is the kernel's, and what it decides cannot be recorded; \
             `thermocline observe --record DIR` records what is accessed",
            config.manager.name.text()
        ))
        .into());
    }
    let record = record.or_else(|| RecordAsked::configured(&config, mode));
    output::detach()?;
    let root = Root::default();
    let ending = Ending::watch()?;
    let session = Session::new(configured, watch.duration, ending, mode == Mode::Run, Recording::new(record));
    let mut manager = config.manager.name;
    let mut before = None;
    loop {
        let (mode, name) = what(mode, manager);
        config.manager.name = name;
        let ended = manage(&root, &config, mode, watch.json, &session);
        // If an answer is still pending, the requested manager has failed before it worked.
        match (ended, session.still_waiting(), before.take()) {
            (Ok(Ended::Over), ..) => return Ok(()),
            (Ok(Ended::Switch(next, answer)), ..) => {
                tell!("manager {} takes over from {}", next.text(), manager.text());
                session.tell(answer, None);
                config = session.config();
                (before, manager) = (Some(manager), next);
            }
            (Err(error), Some((answer, None)), Some(former)) => {
                let why = format!("manager {} cannot work: {error:#}", manager.text());
                tell!("{why}\nback to manager {}", former.text());
                session.tell(answer, Some(why));
                manager = former;
            }
            (Err(error), waiting, _) => {
                if let Some((answer, _)) = waiting {
                    let _ = answer.try_send(json!({ "error": format!("the daemon ends: {error:#}") }));
                }
                return Err(error);
            }
        }
    }
}

/// Runs the configured manager, on the machine as it is now.
fn manage(
    root: &Root,
    config: &Config,
    mode: Mode,
    as_json: bool,
    session: &Session,
) -> anyhow::Result<Ended> {
    session.is_between_managers();
    // The new manager may need keys that the previous one did not.
    thermocline_linux::configuration::check(config)?;
    let discovered = discover(root, &config.tiers)?;
    refuse(&doctor::blockers(root, config))?;
    let clients = config.metrics.listen.as_ref().map_or(0, |_| http::CLIENTS_MAX as u64);
    descriptors::ensure(descriptors::needed(root, config).saturating_add(clients))?;
    let run = if config.manager.name.is_of_kernel() { kernel::run } else { engine };
    run(root, config, &discovered, mode, as_json, session)
}

/// The mode and manager that a verb runs: observing is the same however it is asked for, and a dry
/// run stays one, since it must change no setting.
fn what(mode: Mode, manager: ManagerName) -> (Mode, ManagerName) {
    match (mode, manager) {
        (Mode::Observe, _) | (Mode::Run, ManagerName::Observe) => (Mode::Observe, ManagerName::Observe),
        (Mode::Run | Mode::DryRun, manager) => (mode, manager),
    }
}

/// Why `to` cannot take over, as far as this is known before the current manager has restored its
/// settings.
fn refusal(root: &Root, config: &Config, actuator: &Actuator, to: ManagerName) -> Option<String> {
    let mut config = config.clone();
    config.manager.name = what(Mode::Run, to).1;
    // The machine may have changed since the current manager began.
    match discover(root, &config.tiers) {
        Ok(found) => manager::refusal(root, &config, &found, actuator),
        Err(error) => Some(error.to_string()),
    }
}

/// What the engine will change, determined before anything is changed.
struct Ready {
    demotion: Option<Result<Offer, NotDemoting>>,
    changes: Plan,
}

impl Ready {
    fn new(root: &Root, config: &Config, discovered: &Discovered) -> anyhow::Result<Ready> {
        let demotion = demotion::offer(root, config, discovered)?;
        let offered = demotion.as_ref().and_then(|offered| offered.as_ref().ok());
        let changes = plan(root, &demoter::settings(config, offered))?;
        Ok(Ready { demotion, changes })
    }
}

/// Runs the engine.
fn engine(
    root: &Root,
    config: &Config,
    discovered: &Discovered,
    mode: Mode,
    as_json: bool,
    session: &Session,
) -> anyhow::Result<Ended> {
    let engine = Engine::new(config, discovered.topology.clone())?;
    session.recording().begin(config, &discovered.topology, mode)?;
    let mut ready = Ready::new(root, config, discovered)?;
    let mut actuator = match mode {
        Mode::DryRun => Actuator::dry_run(root),
        Mode::Run | Mode::Observe => live(root, config, session)?,
    };
    if mode != Mode::DryRun {
        // What an earlier daemon left may just have been restored: look again.
        ready = Ready::new(root, config, discovered)?;
    }
    let Ready { demotion, changes } = ready;
    announce(mode, discovered);
    if let Some(demotion) = &demotion {
        demotion::announce(demotion);
    }
    let mut all = changes.clone();
    all.changes.extend(of_sources(root, config, discovered)?);
    if let Some(Ok(Offer { way: Way::Regions(setup), .. })) = &demotion {
        all.changes.extend(setup.plan.changes.clone());
    }
    announce_changes(root, mode, &all);

    let applied = actuator.apply(&changes).context("nothing was changed");
    let driven = applied.and_then(|()| {
        let pace = match mode {
            Mode::Run => Pace::new(&changes),
            Mode::Observe => Pace::new(&changes).map(Pace::without_renewals),
            Mode::DryRun => None,
        };
        let demoting = Demoting::new(config, demotion.as_ref());
        let demotion = demotion.and_then(Result::ok);
        let kernel = driver::Kernel { root, pace, actuator: &mut actuator, demotion, demoting };
        driver::drive(engine, kernel, config, discovered, mode, as_json, session)
    });
    let ended = put_back(&mut actuator, mode, driven);
    // The disk may be slow: settings come first.
    let recorded = session.recording().end();
    ended.and_then(|ended| recorded.map(|()| ended))
}

/// The kernel settings that enabled sources make when they are opened.
fn of_sources(root: &Root, config: &Config, discovered: &Discovered) -> anyhow::Result<Vec<Change>> {
    let mut changes = Vec::new();
    for row in ROWS.iter().filter(|row| config.source.keys(row.source).enabled() != Enabled::No) {
        match (row.plan)(root, config, discovered) {
            Ok(plan) => changes.extend(plan.changes),
            Err(why) => anyhow::bail!("{}: {why}", row.cannot),
        }
    }
    Ok(changes)
}

/// The live actuator. Restores and reports what a killed daemon left.
fn live(root: &Root, config: &Config, session: &Session) -> anyhow::Result<Actuator> {
    let lock = Lock::acquire(root, Path::new(&config.daemon.state_dir))?;
    let (actuator, left) = Actuator::live(root, lock)?;
    session.ending().set_deputy(actuator.deputy());
    if !left.is_empty() {
        tell!("an earlier daemon was killed; its settings:\n{left}");
    }
    Ok(actuator)
}

/// Restores every setting, and reports it. It is an error if some cannot be restored.
fn put_back(actuator: &mut Actuator, mode: Mode, driven: anyhow::Result<Ended>) -> anyhow::Result<Ended> {
    let restored = actuator.end();
    if mode != Mode::DryRun && !restored.is_empty() {
        tell!("settings put back:\n{restored}");
    }
    let ended = driven?;
    let complete = restored.is_complete() || matches!(ended, Ended::Switch(..));
    anyhow::ensure!(complete, "not every setting is back; `thermocline restore` tries again");
    Ok(ended)
}

/// The configuration to use, and how to read it again.
fn configured(
    watch: &Watch,
    mode: Mode,
    manager: Option<ManagerName>,
    only: &[String],
) -> anyhow::Result<Configured> {
    let only = only.to_vec();
    let asked = Asked { file: watch.config.clone(), changes: watch.changes.clone() };
    let pids = watch.pid.clone();
    let read = move || {
        let mut missing = None;
        let loaded = config::load(&asked, |config| {
            if !only.is_empty() {
                missing = choose(config, &only);
            }
            if !pids.is_empty() {
                let pids = pids.clone();
                config.scope = vec![Scope { name: "pids".to_owned(), pids, ..Scope::default() }];
            }
            if !only.is_empty() || !pids.is_empty() {
                // Whoever names processes means no others.
                config.pods.file = None;
            }
            config.manager.name = what(mode, manager.unwrap_or(config.manager.name)).1;
            // Only who asks to watch: a service that observes has nothing to do there. Where tiers
            // cannot be read, nothing runs.
            if let (Mode::Observe, Ok(found)) = (mode, discover(&Root::default(), &config.tiers)) {
                one_tier::watch(config, &found.topology);
            }
        })?;
        match missing {
            Some(why) => Err(FileError::Invalid(why)),
            None => Ok(loaded.config),
        }
    };
    Ok(Configured::new(read)?)
}

/// Leaves only these scopes, by name, or cgroups by their path. Returns what is wrong with them.
fn choose(config: &mut Config, only: &[String]) -> Option<String> {
    let scopes = std::mem::take(&mut config.scope);
    for name in only {
        if let Some(scope) = scopes.iter().find(|scope| scope.name == *name) {
            config.scope.push(scope.clone());
        } else if name.starts_with('/') {
            let scope = Scope { name: name.clone(), cgroup: Some(name.clone()), ..Scope::default() };
            config.scope.push(scope);
        } else {
            let names: Vec<&str> =
                scopes.iter().map(|scope| scope.name.as_str()).filter(|name| !name.is_empty()).collect();
            let there = match names.is_empty() {
                true => "the configuration names none".to_owned(),
                false => format!("there are {}", names.join(", ")),
            };
            return Some(format!(
                "--only {name}: there is no scope of that name; {there}; a cgroup is named by its path, as in /app.slice"
            ));
        }
    }
    None
}

/// Fails, before anything is changed, with the doctor's blockers in the doctor's words.
fn refuse(blockers: &[Finding]) -> anyhow::Result<()> {
    let Some(first) = blockers.first() else { return Ok(()) };
    let remedies = first.remedies.iter().map(|remedy| match &remedy.command {
        Some(command) => format!("\n  {}: {command}", remedy.what),
        None => format!("\n  {}", remedy.what),
    });
    anyhow::bail!("{}{}", first.cause, remedies.collect::<String>())
}

fn announce(mode: Mode, discovered: &Discovered) {
    let nodes: Vec<String> = discovered
        .topology
        .nodes
        .iter()
        .map(|n| format!("node {} tier {} {} MiB", n.id.0, n.tier.0, n.capacity_pages >> 8))
        .collect();
    tell!("thermocline {}: {}", mode.name(), nodes.join(", "));
    if mode == Mode::Observe {
        tell!("no page will be moved");
    }
    if discovered.topology.tiers_with_memory() < 2 {
        tell!("all memory is in one tier, where there are no hint faults; other sources watch it");
    }
}

fn announce_changes(root: &Root, mode: Mode, changes: &Plan) {
    let balancing = changes.changes.iter().find(|change| change.name == "numa_balancing");
    if let Some(told) = overridden(root, balancing.and_then(|change| change.to.parse().ok())) {
        tell!("{told}");
    }
    let verb = if mode == Mode::DryRun { "would change" } else { "changes, put back at the end" };
    if changes.is_empty() {
        tell!("kernel settings are as needed: nothing to change");
    } else {
        tell!("{verb}:\n{changes}");
    }
}
