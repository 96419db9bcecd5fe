//! The daemon's current configuration, and how it is read again.
//!
//! It has two origins: the operator's files, which are read when somebody asks for it, and the
//! node's pods, which are followed. Pods are put into the files' configuration as it was last
//! applied, so that a file that is being edited is not taken because a pod has come.

use std::cell::{Cell, RefCell};
use std::fmt;

use serde_json::{Value, json};
use thermocline_core::config::{Config, Difference, ManagerName, Scope, difference_text};
use thermocline_core::units::Nanos;
use thermocline_front::config::FileError;
use thermocline_linux::finding::Finding;
use thermocline_linux::root::Root;

use super::pods::{self, PodScopes};
use super::socket::Answer;

/// Time after which scopes of pods that were refused are tried again.
const TRY_AGAIN: Nanos = Nanos::from_s(60);

type Read = dyn Fn() -> Result<Config, FileError>;

/// See the module's description.
pub struct Configured {
    read: Box<Read>,
    /// The manager that the configuration named when it was last read. Another one may have taken
    /// over since.
    named: Cell<ManagerName>,
    /// What the files say, without pods.
    base: RefCell<Config>,
    now: RefCell<Config>,
    pods: RefCell<PodScopes>,
    /// When pods are looked at next.
    pods_due: Cell<Nanos>,
    /// Scopes that were tried last because of pods, and when: those that were refused are tried
    /// again after a while.
    tried: RefCell<Option<(Nanos, Vec<Scope>)>>,
}

/// Why the configuration is applied again.
#[derive(Debug)]
pub enum Wanted {
    /// Somebody asks for the files to be read: a signal, or a client that waits for the answer.
    Files(Option<Answer>),
    /// Pods have come, gone or changed.
    Pods,
}

impl fmt::Debug for Configured {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Configured").field("now", &self.now).finish_non_exhaustive()
    }
}

impl Configured {
    /// Reads the configuration by `read`, now and at each reload.
    ///
    /// # Errors
    /// The configuration cannot be used.
    pub fn new(read: impl Fn() -> Result<Config, FileError> + 'static) -> Result<Configured, FileError> {
        Configured::at(&Root::default(), read)
    }

    fn at(
        root: &Root,
        read: impl Fn() -> Result<Config, FileError> + 'static,
    ) -> Result<Configured, FileError> {
        let base = read()?;
        let named = Cell::new(base.manager.name);
        let mut pods = PodScopes::new(root);
        let now = RefCell::new(pods.compose(&base)?);
        Ok(Configured {
            read: Box::new(read),
            named,
            base: RefCell::new(base),
            now,
            pods: RefCell::new(pods),
            pods_due: Cell::default(),
            tried: RefCell::default(),
        })
    }

    /// What the files say of it, without pods; `manager` is at work.
    pub fn of_files(&self, manager: ManagerName) -> Config {
        let mut base = self.base.borrow().clone();
        base.manager.name = manager;
        base
    }

    /// Whether pods have changed so that other scopes are due; looks at most once in
    /// `pods.look_ms`.
    pub fn are_pods_others(&self, at: Nanos) -> bool {
        let keys = self.base.borrow().pods.clone();
        if keys.file.is_none() || at < self.pods_due.get() {
            return false;
        }
        self.pods_due.set(at.plus(Nanos::from_ms(keys.look_ms)));
        let Ok(Config { scope, .. }) = self.pods.borrow_mut().compose(&self.base.borrow()) else {
            return false;
        };
        let is_tried = |(when, tried): &(Nanos, Vec<Scope>)| *tried == scope && at.since(*when) < TRY_AGAIN;
        let mut tried = self.tried.borrow_mut();
        let is_other = scope != self.now.borrow().scope && !tried.as_ref().is_some_and(is_tried);
        if is_other {
            *tried = Some((at, scope));
        }
        is_other
    }

    /// What is wrong with pods.
    pub fn findings(&self) -> Vec<Finding> {
        self.pods.borrow().findings()
    }

    /// The current configuration.
    pub fn now(&self) -> Config {
        self.now.borrow().clone()
    }

    /// Reads the files or the pods again and applies the configuration; `manager` is at work. If it
    /// is refused, everything stays as it was.
    ///
    /// # Errors
    /// The configuration cannot be used, or `apply` refuses it.
    pub fn again(
        &self,
        wanted: &Wanted,
        manager: ManagerName,
        apply: impl FnOnce(&Config) -> anyhow::Result<Vec<Difference>>,
    ) -> anyhow::Result<(Config, Vec<Difference>)> {
        let mut base = match wanted {
            Wanted::Files(_) => (self.read)()?,
            Wanted::Pods => self.base.borrow().clone(),
        };
        if matches!(wanted, Wanted::Pods) || base.manager.name == self.named.get() {
            base.manager.name = manager;
        }
        let config = self.pods.borrow_mut().compose(&base)?;
        let changes = apply(&config)?;
        *self.base.borrow_mut() = base;
        *self.now.borrow_mut() = config.clone();
        Ok((config, changes))
    }
}

/// The answer to a client that asked for a reload, and the text for the log.
pub fn answer(done: &anyhow::Result<(Config, Vec<Difference>)>) -> (Value, String) {
    match done {
        Ok((_, changes)) if changes.is_empty() => {
            let text = "the configuration is as it was: nothing is changed\n";
            (json!({ "changes": changes, "text": text }), text.trim_end().to_owned())
        }
        Ok((_, changes)) => {
            let text = format!("reloaded:\n{}", difference_text(changes));
            let log = text.trim_end().to_owned();
            (json!({ "changes": changes, "text": text }), log)
        }
        Err(error) => {
            let why = format!("{error:#}\nnot reloaded: the configuration before stays as it is");
            (json!({ "error": why }), why)
        }
    }
}

/// What the log says of pods that came and went; `before` are the scopes until then.
pub fn pods_told(before: &[Scope], done: &anyhow::Result<(Config, Vec<Difference>)>) -> String {
    match done {
        Ok((config, _)) => pods::changes(before, &config.scope),
        Err(error) => format!("{error:#}\npods have changed, and the scopes stay as they are"),
    }
}

#[cfg(test)]
mod tests {
    use std::rc::Rc;

    use thermocline_core::config::differences;

    use super::*;

    /// A configuration whose source a test changes.
    fn configured() -> (Rc<RefCell<Result<Config, String>>>, Configured) {
        let source = Rc::new(RefCell::new(Ok(Config::default())));
        let theirs = Rc::clone(&source);
        let read = move || theirs.borrow().clone().map_err(FileError::Invalid);
        (source, Configured::new(read).unwrap())
    }

    #[test]
    fn what_is_applied_is_what_the_daemon_goes_by() {
        let (source, configured) = configured();
        let mut next = Config::default();
        next.admission.rate_limit_mbps = 7;
        *source.borrow_mut() = Ok(next.clone());
        let before = configured.now();
        let done = configured
            .again(&Wanted::Files(None), ManagerName::Thermocline, |config| Ok(differences(&before, config)));
        let (told, log) = answer(&done);
        assert_eq!(told["changes"][0]["key"], "admission.rate_limit_mbps");
        assert_eq!(log, "reloaded:\nadmission.rate_limit_mbps: 256 -> 7 MB/s");
        assert_eq!(configured.now(), next);
    }

    #[test]
    fn what_cannot_be_read_or_applied_changes_nothing() {
        let (source, configured) = configured();
        *source.borrow_mut() = Err("t.toml:3: no".to_owned());
        let done = configured
            .again(&Wanted::Files(None), ManagerName::Thermocline, |_| panic!("nothing is applied"));
        let (told, _) = answer(&done);
        let told = told["error"].as_str().unwrap();
        assert!(told.starts_with("t.toml:3: no") && told.contains("stays as it is"), "{told}");
        let mut next = Config::default();
        next.queue.capacity = 64;
        *source.borrow_mut() = Ok(next);
        assert!(
            configured
                .again(&Wanted::Files(None), ManagerName::Thermocline, |_| anyhow::bail!("no"))
                .is_err()
        );
        assert_eq!(configured.now(), Config::default());
    }

    #[test]
    fn pods_are_followed_and_files_are_not_read_because_of_them() {
        let dir = tempfile::tempdir().unwrap();
        let root = Root::at(dir.path());
        let make = |path: &str| std::fs::create_dir_all(dir.path().join(path)).unwrap();
        make("proc/self");
        std::fs::write(root.proc.join("self/mounts"), "cgroup2 /sys/fs/cgroup cgroup2 rw 0 0\n").unwrap();
        make("sys/fs/cgroup/kubepods/podu");
        let file = dir.path().join("pods.json");
        let write = |annotations: Value| {
            let pod = json!({
                "kind": "Pod",
                "metadata": { "name": "a", "namespace": "ns", "uid": "u", "annotations": annotations },
            });
            std::fs::write(dir.path().join("new"), pod.to_string()).unwrap();
            std::fs::rename(dir.path().join("new"), &file).unwrap();
        };
        let mut config = Config::default();
        config.pods.file = Some(file.display().to_string());
        config.manager.name = ManagerName::Observe;
        let source = Rc::new(RefCell::new(Ok(config.clone())));
        let theirs = Rc::clone(&source);
        let read = move || theirs.borrow().clone().map_err(FileError::Invalid);
        let configured = Configured::at(&root, read).unwrap();
        let names = || configured.now().scope.into_iter().map(|scope| scope.name).collect::<Vec<_>>();
        assert_eq!((names(), configured.findings().len()), (vec!["no pods".to_owned()], 1));
        let second = |s| Nanos::from_s(s);
        assert!(!configured.are_pods_others(second(1)));

        write(json!({ "thermocline.dev/manage": "true" }));
        assert!(!configured.are_pods_others(second(2)), "it was looked at a second ago");
        assert!(configured.are_pods_others(second(6)));
        // An operator has begun to edit the file.
        *source.borrow_mut() = Err("t.toml:3: no".to_owned());
        let refuse = |_: &Config| anyhow::bail!("not now");
        let done = configured.again(&Wanted::Pods, ManagerName::Observe, refuse);
        assert!(pods_told(&[], &done).starts_with("not now\npods have changed, and the scopes stay"));
        assert_eq!(names(), ["no pods"]);
        assert!(!configured.are_pods_others(second(12)), "it was refused");
        assert!(configured.are_pods_others(second(70)), "that may have been for the moment");
        let before = configured.now();
        let done =
            configured.again(&Wanted::Pods, ManagerName::Observe, |config| Ok(differences(&before, config)));
        assert_eq!(pods_told(&before.scope, &done), "pods: 1 scope now, new: ns/a, gone: no pods");
        assert_eq!((names(), configured.findings().len()), (vec!["ns/a".to_owned()], 0));
        assert!(!configured.are_pods_others(second(80)), "nothing has changed");

        // What the operator asks for is taken with the pods of now, or not at all.
        let files = Wanted::Files(None);
        assert!(configured.again(&files, ManagerName::Observe, |_| panic!("nothing is applied")).is_err());
        config.admission.rate_limit_mbps = 7;
        *source.borrow_mut() = Ok(config);
        configured.again(&files, ManagerName::Observe, |_| Ok(Vec::new())).unwrap();
        assert!(configured.of_files(ManagerName::Observe).scope.is_empty(), "pods are in no file");
        assert_eq!((names(), configured.now().admission.rate_limit_mbps), (vec!["ns/a".to_owned()], 7));
        write(json!({}));
        assert!(configured.are_pods_others(second(90)));
        configured.again(&Wanted::Pods, ManagerName::Observe, |_| Ok(Vec::new())).unwrap();
        assert_eq!((names(), configured.now().admission.rate_limit_mbps), (vec!["no pods".to_owned()], 7));
    }

    #[test]
    fn who_has_taken_over_stays_unless_the_file_names_another_one() {
        let (source, configured) = configured();
        let seen = |configured: &Configured| {
            let mut name = None;
            let done = configured.again(&Wanted::Files(None), ManagerName::Damon, |config| {
                name = Some(config.manager.name);
                Ok(Vec::new())
            });
            (done.is_ok(), name)
        };
        assert_eq!(seen(&configured), (true, Some(ManagerName::Damon)));
        let mut next = Config::default();
        next.manager.name = ManagerName::Observe;
        *source.borrow_mut() = Ok(next);
        assert_eq!(seen(&configured), (true, Some(ManagerName::Observe)));
    }
}
