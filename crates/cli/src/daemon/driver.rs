//! The live loop: waits, lets core's driver step the machine, answers questions and reports.

use std::time::{Duration, Instant};

use anyhow::Context;
use serde_json::json;
use thermocline_core::access::Evidence;
use thermocline_core::admission::Cause;
use thermocline_core::config::Config;
use thermocline_core::driver::Driver;
use thermocline_core::engine::{Engine, reloadable};
use thermocline_core::machine::Machine as _;
use thermocline_core::topology::NodeState;
use thermocline_core::units::{Nanos, Pid, VirtPage};
use thermocline_linux::actuator::{Actuator, ActuatorError};
use thermocline_linux::aside;
use thermocline_linux::demoter::Offer;
use thermocline_linux::finding::Demoting;
use thermocline_linux::kswapd::Kswapd;
use thermocline_linux::machine::{LiveMachine, Moving, now};
use thermocline_linux::pace::{Pace, Paced};
use thermocline_linux::root::Root;
use thermocline_linux::scope::Missing;
use thermocline_linux::topology::Discovered;

use super::demotion::Demotion;
use super::findings::{Findings, Loop, say_changed, say_kswapd};
use super::heat::{Felt, Heat};
use super::line::Lines;
use super::reload::Wanted;
use super::session::{Ended, Session};
use super::socket::{Question, Request, text_answer};
use super::trouble::{self, Tally};
use super::{Mode, refusal};
use crate::escape;
use crate::output::{Said, say, tell, tell_text};
use crate::snapshot::{Askable, Deciding, Explained, ExplainedScope, Fixed, Recent, Seen, Snapshot};
use crate::text;

/// How long the mover may take for its current batch and the demoter for its command at shutdown,
/// both together.
const CLOSE_BOUND: Duration = Duration::from_millis(2500);
/// Maximum wait for evidence at a time, so that signals are seen soon.
const WAIT_MAX: Nanos = Nanos::from_ms(500);
/// Rows of the table of processes that `observe` prints at the end.
const HEAT_ROWS: usize = 20;

/// What the loop reads and sets in the kernel.
pub(super) struct Kernel<'a> {
    /// Where the kernel's files are.
    pub(super) root: &'a Root,
    /// How scans are paced, if they are.
    pub(super) pace: Option<Pace>,
    /// Writes to the kernel.
    pub(super) actuator: &'a mut Actuator,
    /// Whose memory is demoted; `None` if nothing is.
    pub(super) demotion: Option<Offer>,
    /// The same, as findings are judged by it.
    pub(super) demoting: Demoting,
}

/// Drives the engine until the session is over or another manager is to take over.
pub(super) fn drive(
    engine: Engine,
    mut kernel: Kernel<'_>,
    config: &Config,
    found: &Discovered,
    mode: Mode,
    as_json: bool,
    session: &Session,
) -> anyhow::Result<Ended> {
    let root = kernel.root;
    let topology = found.topology.clone();
    let moving = if mode == Mode::Run { Moving::Live } else { Moving::Off };
    let sets = (mode != Mode::DryRun).then_some(&mut *kernel.actuator);
    let mut machine = LiveMachine::open(root, config, moving, sets)?;
    if let Some(pace) = kernel.pace.take() {
        machine.set_pace(pace);
    }
    tell!("evidence: {}", machine.sources());
    let mut demotion = Demotion::new(root, config, found, kernel.demoting);
    if let Some(offer) = kernel.demotion.take() {
        demotion.start(offer, &topology, kernel.actuator, &mut machine)?;
    }
    if mode != Mode::DryRun {
        session.listen(root, config, &topology)?;
    }
    session.began(config.manager.name);

    let mut fixed = Fixed::new(mode.name(), config, &topology);
    let mut heat = (mode == Mode::Observe).then(Heat::default);
    let mut lines = Lines::new(as_json, mode);
    let mut current = config.clone();
    let start = now();
    let mut driver = Driver::new(engine, config);
    let mut report_due = start.plus(Nanos::from_ms(current.daemon.report_ms));
    let mut brake_changes = 0;
    let mut watch = trouble::Watch::new(start, mode == Mode::Run);
    let mut findings = Findings::new(root, config, found);
    let mut kswapd = Kswapd::new(root, config, mode == Mode::Run);
    let mut missing = Missing::new(root, &config.scope);
    missing.look();

    let mut recording = session.recording();
    let mut ended = Ended::Over;
    while matches!(ended, Ended::Over) && !session.is_over() && !recording.is_all_over() {
        let at = now();
        let due = driver.next_due().min(session.end()).min(at.plus(WAIT_MAX));
        session.turns_by(due);
        machine.wait(Duration::from_nanos(due.since(at).0)).context("cannot wait for evidence")?;
        let at = now();
        let mut felt = Felt { machine: &mut machine, heat: heat.as_mut() };
        if !recording.step(&mut driver, at, &mut felt)? {
            continue;
        }
        let engine = driver.engine();
        machine.take_news().iter().chain(&recording.news()).for_each(|told| tell!("{told}"));
        if let Some(failure) = machine.mover_failure() {
            anyhow::bail!("the mover failed: {failure}; settings are put back, please report this");
        }
        kernel.actuator.look_after(at, current.kernel.when_changed).into_iter().for_each(say_changed);
        machine.follow_processes(kernel.actuator).iter().for_each(|told| tell!("{told}"));
        for told in aside::news() {
            tell!("{told}");
        }
        if let Some(told) = paced(machine.pace_scans(kernel.actuator), machine.scan_interval()) {
            tell!("{told}");
        }
        let (changes, next) = engine.brake_changes(brake_changes);
        brake_changes = next;
        for braking in changes {
            let braking = fixed.name(braking.scope, braking);
            let reason = braking.standing.by.map_or("none", |cause| match cause {
                Cause::Pressure => "pressure",
                Cause::PingPong => "ping_pong",
            });
            let told = Said::new(text::brakes(std::slice::from_ref(&braking), true).trim_end().to_owned());
            say(told.with("THERMOCLINE_SCOPE", &braking.name).with("THERMOCLINE_REASON", reason));
        }
        if let Some(told) = demotion.look(engine.topology(), kernel.actuator, &mut machine) {
            tell!("{told}");
        }
        kswapd.look(at, engine.topology(), kernel.actuator).into_iter().for_each(say_kswapd);
        let mut reloads: Vec<Wanted> =
            session.is_reload_asked().then_some(Wanted::Files(None)).into_iter().collect();
        for Question { request, frame, answer, .. } in session.questions() {
            match request {
                Request::Reload => reloads.push(Wanted::Files(Some(answer))),
                Request::Status { .. } => {}
                // A client that has gone away needs no answer.
                Request::Config => {
                    drop(answer.try_send(json!(session.of_files(current.manager.name))));
                }
                Request::Explain { pid, address, as_text } => {
                    let page = VirtPage::of_address(Pid(pid), address);
                    let explained = Explained::new(engine.explain_at(page, frame), &fixed);
                    // A client that has gone away needs no answer.
                    let _ = answer.try_send(match as_text {
                        true => text_answer(text::explained(&explained)),
                        false => json!(explained),
                    });
                }
                Request::Pages { pid, as_text } => {
                    let found = Askable::new(pid, engine.worth_asking(Pid(pid)));
                    // A client that has gone away needs no answer.
                    let _ = answer.try_send(match as_text {
                        true => text_answer(text::worth(pid, &found.pages)),
                        false => json!(found),
                    });
                }
                // A client that has gone away needs no answer.
                Request::Scope { name, as_text } => {
                    let found = ExplainedScope::new(&name, engine, &fixed);
                    drop(answer.try_send(match found {
                        Ok(found) if as_text => text_answer(text::explained_scope(&found)),
                        Ok(found) => json!(found),
                        Err(why) => json!({ "error": why }),
                    }));
                }
                // A client that has gone away needs no answer.
                Request::Decisions { since } => {
                    drop(answer.try_send(json!(Recent::new(engine.journal(), since))));
                }
                Request::Switch { manager } => {
                    let refusal = |to| refusal(root, &current, kernel.actuator, to);
                    ended = session.switch(current.manager.name, manager, answer, refusal);
                }
            }
            if matches!(ended, Ended::Switch(..)) {
                break;
            }
        }
        if at >= report_due {
            machine.check_sources().iter().for_each(|told| tell!("{told}"));
            missing.look();
            report_due = report_due.plus(Nanos::from_ms(current.daemon.report_ms)).max(at);
            // `status` and every line show the current topology.
            fixed.topology.clone_from(engine.topology());
            let deciding = Deciding::new(&fixed, engine, &machine);
            let seen = seen(&mut machine, at.since(start), kernel.actuator, &kswapd, missing.now());
            let snapshot = Snapshot::of_engine(&fixed, seen, deciding);
            if let Some(engine) = &snapshot.engine {
                let cpu = findings.programs_cpu();
                watch.look(at, || Tally::new(&snapshot, engine, &fixed.topology, machine.demotes(), cpu));
            }
            let figures = Loop {
                config: &current,
                demoting: demotion.demoting(),
                actuator: kernel.actuator,
                kswapd: &kswapd,
                no_cgroup: missing.now(),
                minute: watch.minute(),
            };
            let open = session.follow(findings.look(at, &figures));
            let snapshot = snapshot.with_trouble(watch.stuck()).with_findings(open);
            let snapshot = snapshot.with_recording(recording.stats());
            lines.print(&snapshot);
            session.publish(snapshot);
        }
        if matches!(ended, Ended::Over) && session.are_pods_others(at) {
            reloads.push(Wanted::Pods);
        }
        for wanted in reloads {
            let apply = |next: &Config| {
                reloadable(&current, next)?;
                let prepared = machine.prepare(next)?;
                let demoted = demotion.prepare(next, kernel.actuator)?;
                machine.set_filter(&prepared)?;
                let topology = driver.engine().topology().clone();
                let begun = demotion.begin(&demoted, next, &topology, kernel.actuator, &mut machine);
                let changes = begun.and_then(|()| Ok(driver.reload(next)?));
                let changes = changes.inspect_err(|_| machine.keep_filter())?;
                machine.reload(next, prepared);
                demotion.reload(demoted, next, &machine);
                Ok(changes)
            };
            if let Some(next) = session.reload(wanted, current.manager.name, apply) {
                session.rescope(&next);
                kswapd.reload(&next);
                missing = Missing::new(root, &next.scope);
                missing.look();
                fixed = Fixed::new(mode.name(), &next, driver.engine().topology());
                findings.reload(&next);
                recording.reloaded(&next);
                current = next;
            }
        }
    }

    session.is_between_managers();
    let close_by = Instant::now() + CLOSE_BOUND;
    machine.end_demoter(CLOSE_BOUND);
    recording.drain(&mut driver, now(), &mut Felt { machine: &mut machine, heat: heat.as_mut() })?;
    let deciding = Deciding::new(&fixed, driver.engine(), &machine);
    let seen = seen(&mut machine, now().since(start), kernel.actuator, &kswapd, missing.now());
    let last = Snapshot::of_engine(&fixed, seen, deciding).with_trouble(watch.stuck());
    let outcomes = machine.close(close_by.saturating_duration_since(Instant::now()));
    recording.at_close(&mut driver, outcomes.iter().map(Evidence::Outcome));
    lines.summary(&last.with_engine(|deciding| deciding.update(driver.engine())));
    if let Some(heat) = heat {
        tell_text(format_args!("{}", heat.table(HEAT_ROWS, |pid| command(root, pid))));
    }
    Ok(ended)
}

/// Figures that do not come from the engine.
fn seen<'a>(
    machine: &mut LiveMachine,
    uptime: Nanos,
    actuator: &Actuator,
    kswapd: &Kswapd,
    no_cgroup: &'a [String],
) -> Seen<'a> {
    Seen {
        uptime,
        nodes: machine.node_states().map(<[NodeState]>::to_vec).unwrap_or_default(),
        settings: actuator.settings_stats(),
        kswapd: kswapd.stats(),
        no_cgroup,
        kernel_moves: machine.kernel_moves(),
    }
}

/// Reports what the pacing of scans did. If pacing fails, the scans keep their last pace: hot pages
/// are found later, but they are found.
fn paced(paced: Result<Option<Paced>, ActuatorError>, interval: Option<Nanos>) -> Option<String> {
    let told = match paced {
        Ok(None) => return None,
        Ok(Some(Paced::Step(mb))) => {
            format!("scan_size_mb: {mb}, for what lower tiers hold now and how often the kernel scans")
        }
        Ok(Some(Paced::Renewing)) => format!(
            "numa_balancing_promote_rate_limit_MBps: 1 for some steps, which come once in {} ms, \
             so that tasks take up scan_period_min_ms",
            interval.unwrap_or_default().ms()
        ),
        Ok(Some(Paced::Renewed)) => "numa_balancing_promote_rate_limit_MBps: 0 again".to_owned(),
        Err(error) => format!(
            "scans are paced no more, scan_size_mb, scan_period_*_ms and \
             numa_balancing_promote_rate_limit_MBps stay as they are until thermocline ends; start it \
             again to have them paced: {error}"
        ),
    };
    Some(told)
}

/// The command name of a process, or `?` if it is gone.
fn command(root: &Root, pid: Pid) -> String {
    std::fs::read_to_string(root.proc.join(pid.0.to_string()).join("comm"))
        .map_or_else(|_| "?".to_owned(), |text| escape::name(text.trim_end_matches('\n')).into_owned())
}
