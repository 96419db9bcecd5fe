//! State that outlives a manager: the socket, the time at which the daemon ends, and the client
//! that waits for the next manager to start.

use std::cell::{OnceCell, RefCell, RefMut};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde_json::json;
use thermocline_core::config::{Config, Difference, ManagerName};
use thermocline_core::topology::Topology;
use thermocline_core::units::{Nanos, Pfn, VirtPage};
use thermocline_linux::aside::Aside;
use thermocline_linux::finding::Finding;
use thermocline_linux::machine::now;
use thermocline_linux::pagemap::Pagemap;
use thermocline_linux::residency::Residencies;
use thermocline_linux::root::Root;
use thermocline_linux::scope::Scopes;

use super::ending::Ending;
use super::findings::Following;
use super::http::MetricsServer;
use super::pulse::Pulse;
use super::recording::Recording;
use super::reload::{self, Configured, Wanted};
use super::socket::{Answer, Question, SWITCH_TIMEOUT, Server};
use super::supervisor::Supervisor;
use crate::output::{say, tell};
use crate::snapshot::{Latest, OpenFinding, Snapshot};

/// How long a process may delay the answer to `explain` for one of its pages.
const EXPLAIN_MAX: Duration = Duration::from_millis(500);

/// Why a manager has ended without an error.
#[derive(Debug)]
pub enum Ended {
    /// The duration is over, or a signal came.
    Over,
    /// Another manager is to take over. The client that asked waits for the answer.
    Switch(ManagerName, Answer),
}

/// A client that asked for a manager.
#[derive(Debug)]
struct Asker {
    answer: Answer,
    /// Why another manager starts instead.
    instead: Option<String>,
}

/// One run of the daemon, across all its managers.
#[derive(Debug)]
pub struct Session {
    configured: Configured,
    ending: Ending,
    pulse: Arc<Pulse>,
    supervisor: Supervisor,
    duration: Option<Duration>,
    /// When it ends: `duration` after the first manager began to work.
    end: OnceCell<Nanos>,
    latest: Latest,
    /// Scopes that a reload has brought, until `status` is asked for.
    other_scopes: Arc<Mutex<Option<Scopes>>>,
    server: OnceCell<Server>,
    metrics: OnceCell<MetricsServer>,
    asker: RefCell<Option<Asker>>,
    following: RefCell<Following>,
    recording: RefCell<Recording>,
    /// Managers may take over from each other.
    switches: bool,
}

impl Session {
    /// A run that ends `duration` after a manager began to work, if that is given, or when `ending`
    /// is asked to. Managers may take over from each other if it `switches`.
    pub fn new(
        configured: Configured,
        duration: Option<Duration>,
        ending: Ending,
        switches: bool,
        recording: Recording,
    ) -> Session {
        Session {
            configured,
            ending,
            pulse: Arc::default(),
            supervisor: Supervisor::of_environment(),
            duration,
            end: OnceCell::new(),
            latest: Latest::default(),
            other_scopes: Arc::default(),
            server: OnceCell::new(),
            metrics: OnceCell::new(),
            asker: RefCell::new(None),
            following: RefCell::default(),
            recording: RefCell::new(recording),
            switches,
        }
    }

    /// What is recorded.
    pub fn recording(&self) -> RefMut<'_, Recording> {
        self.recording.borrow_mut()
    }

    /// Whether the run is over.
    pub fn is_over(&self) -> bool {
        self.ending.is_asked() || self.end.get().is_some_and(|end| now() >= *end)
    }

    /// When the run ends, unless a signal ends it before.
    pub fn end(&self) -> Nanos {
        self.end.get().copied().unwrap_or(Nanos(u64::MAX))
    }

    /// Ends the daemon if the loop does not.
    pub fn ending(&self) -> &Ending {
        &self.ending
    }

    /// The loop runs; its next turn is due at `by`.
    pub fn turns_by(&self, by: Nanos) {
        self.pulse.promise(by);
        self.supervisor.turns();
    }

    /// A manager ends or begins: the loop may take as long as the client that asked for it waits.
    pub fn is_between_managers(&self) {
        let ns = u64::try_from(SWITCH_TIMEOUT.as_nanos()).unwrap_or(u64::MAX);
        self.pulse.promise(now().plus(Nanos(ns)));
        self.supervisor.turns();
    }

    /// Listens for questions, unless it already does. The daemon lock is held by then, so that
    /// another daemon's socket is not taken.
    ///
    /// # Errors
    /// As [`Server::listen`] and [`MetricsServer::listen`], or a scope that cannot be used.
    pub fn listen(&self, root: &Root, config: &Config, topology: &Topology) -> anyhow::Result<()> {
        if self.server.get().is_none() {
            let mut residencies = Residencies::new(root, topology.clone(), Scopes::new(&config.scope)?);
            let other_scopes = Arc::clone(&self.other_scopes);
            let residency = move || {
                let scopes = other_scopes.lock().unwrap_or_else(PoisonError::into_inner).take();
                scopes.into_iter().for_each(|scopes| residencies.set_scopes(scopes));
                residencies.look().map_err(|error| error.to_string())
            };
            let group = config.daemon.socket_group.as_deref();
            let (aside, proc) =
                (Aside::new(root, "one of its pages was explained", EXPLAIN_MAX), root.proc.clone());
            let frame = move |page| frame(&aside, &proc, page);
            let socket = Path::new(&config.daemon.socket);
            let server = Server::listen(
                socket,
                group,
                Arc::clone(&self.pulse),
                self.latest.clone(),
                frame,
                residency,
            )?;
            // It is empty, as checked above.
            let _ = self.server.set(server);
            if let Some(address) = &config.metrics.listen {
                let (latest, pulse) = (self.latest.clone(), Arc::clone(&self.pulse));
                let _ = self.metrics.set(MetricsServer::listen(address, group, latest, pulse)?);
            }
        }
        Ok(())
    }

    /// `status` shows the processes of these scopes from now on.
    pub fn rescope(&self, config: &Config) {
        // They were checked when they were applied.
        if let Ok(scopes) = Scopes::new(&config.scope) {
            *self.other_scopes.lock().unwrap_or_else(PoisonError::into_inner) = Some(scopes);
        }
    }

    /// Replaces the snapshot from which `status` is answered.
    pub fn publish(&self, snapshot: Snapshot) {
        self.latest.publish(snapshot);
    }

    /// Takes what the manager finds now, and tells what has begun and ended. Returns what is open.
    pub fn follow(&self, mut found: Vec<Finding>) -> Vec<OpenFinding> {
        found.extend(self.configured.findings());
        let (said, open) = self.following.borrow_mut().look(now(), found);
        said.into_iter().for_each(say);
        open
    }

    /// Questions received since the last call.
    pub fn questions(&self) -> impl Iterator<Item = Question> + '_ {
        self.server.get().into_iter().flat_map(Server::questions)
    }

    /// The current configuration.
    pub fn config(&self) -> Config {
        self.configured.now()
    }

    /// The current configuration as far as files, environment and options go; `manager` is at work.
    pub fn of_files(&self, manager: ManagerName) -> Config {
        self.configured.of_files(manager)
    }

    /// Whether a signal has asked for a reload since the last call.
    pub fn is_reload_asked(&self) -> bool {
        self.ending.is_reload_asked()
    }

    /// Whether pods have changed so that other scopes are due.
    pub fn are_pods_others(&self, at: Nanos) -> bool {
        self.configured.are_pods_others(at)
    }

    /// Reads the configuration again and applies it; `manager` is at work. The result goes to the
    /// log, and to the client that asked, if one did. Returns the new configuration if it was
    /// applied.
    pub fn reload(
        &self,
        wanted: Wanted,
        manager: ManagerName,
        apply: impl FnOnce(&Config) -> anyhow::Result<Vec<Difference>>,
    ) -> Option<Config> {
        let before = self.configured.now().scope;
        self.supervisor.reloads();
        let done = self.configured.again(&wanted, manager, apply);
        self.supervisor.reloaded();
        match wanted {
            Wanted::Pods => tell!("{}", reload::pods_told(&before, &done)),
            Wanted::Files(asked) => {
                let (answer, log) = reload::answer(&done);
                tell!("{log}");
                if let Some(asked) = asked {
                    // A client that has gone away needs no answer.
                    let _ = asked.try_send(answer);
                }
            }
        }
        done.ok().map(|(config, _)| config)
    }

    /// Whether `to` takes over from `from` as requested, unless `refusal` says why it cannot. If it
    /// does not, the client is told why.
    pub fn switch(
        &self,
        from: ManagerName,
        to: ManagerName,
        answer: Answer,
        refusal: impl FnOnce(ManagerName) -> Option<String>,
    ) -> Ended {
        let told = match (self.switches, from == to) {
            (true, false) => match refusal(to) {
                None => return Ended::Switch(to, answer),
                Some(why) => {
                    json!({ "error": goes_on(from, &format!("manager {} cannot work: {why}", to.text())) })
                }
            },
            (true, true) => json!({ "manager": to }),
            (false, _) => {
                json!({ "error": "to observe is the same under every manager; start `thermocline run`" })
            }
        };
        // A client that has gone away needs no answer.
        let _ = answer.try_send(told);
        Ended::Over
    }

    /// Sends `answer` once a manager works. If that is not the requested one, `instead` says why.
    pub fn tell(&self, answer: Answer, instead: Option<String>) {
        *self.asker.borrow_mut() = Some(Asker { answer, instead });
    }

    /// A manager works: tells the client that asked for one.
    pub fn began(&self, manager: ManagerName) {
        self.supervisor.works(manager.text());
        if let Some(duration) = self.duration {
            let ns = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
            self.ending.at(*self.end.get_or_init(|| now().plus(Nanos(ns))));
        }
        if let Some(Asker { answer, instead }) = self.asker.borrow_mut().take() {
            let told = match instead {
                None => json!({ "manager": manager }),
                Some(why) => json!({ "error": goes_on(manager, &why) }),
            };
            // A client that has gone away needs no answer.
            let _ = answer.try_send(told);
        }
    }

    /// The client that still waits, if the requested manager failed before it worked.
    pub fn still_waiting(&self) -> Option<(Answer, Option<String>)> {
        self.asker.borrow_mut().take().map(|asker| (asker.answer, asker.instead))
    }
}

/// Says why another manager does not take over.
fn goes_on(manager: ManagerName, why: &str) -> String {
    format!("{why}\nmanager {} goes on", manager.text())
}

/// The frame that a page has now, if pagemap shows it.
fn frame(aside: &Aside, proc: &Path, page: VirtPage) -> Option<Pfn> {
    let proc = proc.to_owned();
    let read = aside.ask(page.pid, move || Pagemap::open(&proc, page.pid)?.entry(page.vpn));
    read.ok()?.ok()??.pfn()
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Receiver, sync_channel};

    use super::*;

    fn asked() -> (Answer, Receiver<serde_json::Value>) {
        sync_channel(1)
    }

    fn configured() -> Configured {
        Configured::new(|| Ok(Config::default())).unwrap()
    }

    fn session(switches: bool) -> Session {
        Session::new(configured(), None, Ending::default(), switches, Recording::default())
    }

    #[test]
    fn another_manager_takes_over_but_not_where_pages_are_only_observed() {
        let (answer, told) = asked();
        let ended = session(true).switch(ManagerName::Thermocline, ManagerName::Damon, answer, |_| None);
        assert!(matches!(ended, Ended::Switch(ManagerName::Damon, _)));
        assert!(told.try_recv().is_err(), "who asked is told when it works");

        let (answer, told) = asked();
        let ended = session(true).switch(ManagerName::Damon, ManagerName::Damon, answer, |_| None);
        assert!(matches!(ended, Ended::Over) && told.try_recv().unwrap()["manager"] == "damon");

        let (answer, told) = asked();
        let ended = session(false).switch(ManagerName::Observe, ManagerName::Damon, answer, |_| None);
        assert!(matches!(ended, Ended::Over));
        assert!(told.try_recv().unwrap()["error"].as_str().unwrap().contains("thermocline run"));
    }

    #[test]
    fn a_manager_that_cannot_work_is_refused_while_the_one_at_work_goes_on() {
        let (answer, told) = asked();
        let no = |to: ManagerName| (to == ManagerName::Damon).then(|| "it is in use".to_owned());
        let ended = session(true).switch(ManagerName::Thermocline, ManagerName::Damon, answer, no);
        assert!(matches!(ended, Ended::Over));
        let told = told.try_recv().unwrap();
        assert_eq!(told["error"], "manager damon cannot work: it is in use\nmanager thermocline goes on");
    }

    #[test]
    fn who_asked_is_told_once_whoever_works_in_the_end() {
        let session = session(true);
        let (answer, told) = asked();
        session.tell(answer, None);
        session.began(ManagerName::Numab2);
        session.began(ManagerName::Numab2);
        assert_eq!(told.try_iter().collect::<Vec<_>>(), [json!({ "manager": "numab2" })]);

        let (answer, told) = asked();
        session.tell(answer, Some("manager damon cannot work: no".to_owned()));
        session.began(ManagerName::Numab2);
        assert_eq!(
            told.try_recv().unwrap()["error"],
            "manager damon cannot work: no\nmanager numab2 goes on"
        );
        assert!(session.still_waiting().is_none());
    }

    #[test]
    fn it_ends_when_its_time_is_over_or_a_signal_came() {
        let ending = Ending::default();
        let lasting =
            |duration, ending| Session::new(configured(), Some(duration), ending, true, Recording::default());
        let long = lasting(Duration::from_secs(1000), ending.clone());
        assert!(!long.is_over());
        ending.ask();
        assert!(long.is_over());
        // The time that a manager takes to begin does not count.
        let short = lasting(Duration::ZERO, Ending::default());
        assert!(!short.is_over());
        short.began(ManagerName::Thermocline);
        assert!(short.is_over());
    }
}
