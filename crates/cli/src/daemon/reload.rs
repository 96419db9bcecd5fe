//! The daemon's current configuration, and how it is read again.

use std::cell::{Cell, RefCell};
use std::fmt;

use serde_json::{Value, json};
use thermocline_core::config::{Config, Difference, ManagerName, difference_text};

use crate::config::FileError;

type Read = dyn Fn() -> Result<Config, FileError>;

/// See the module's description.
pub struct Configured {
    read: Box<Read>,
    /// The manager that the configuration named when it was last read. Another one may have taken
    /// over since.
    named: Cell<ManagerName>,
    now: RefCell<Config>,
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
        let config = read()?;
        let named = Cell::new(config.manager.name);
        Ok(Configured { read: Box::new(read), named, now: RefCell::new(config) })
    }

    /// The current configuration.
    pub fn now(&self) -> Config {
        self.now.borrow().clone()
    }

    /// Reads the configuration again and applies it; `manager` is at work. If it is refused,
    /// everything stays as it was.
    ///
    /// # Errors
    /// The configuration cannot be used, or `apply` refuses it.
    pub fn again(
        &self,
        manager: ManagerName,
        apply: impl FnOnce(&Config) -> anyhow::Result<Vec<Difference>>,
    ) -> anyhow::Result<(Config, Vec<Difference>)> {
        let mut config = (self.read)()?;
        let named = config.manager.name;
        if named == self.named.get() {
            config.manager.name = manager;
        }
        let changes = apply(&config)?;
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
        let done = configured.again(ManagerName::Thermocline, |config| Ok(differences(&before, config)));
        let (told, log) = answer(&done);
        assert_eq!(told["changes"][0]["key"], "admission.rate_limit_mbps");
        assert_eq!(log, "reloaded:\nadmission.rate_limit_mbps: 256 -> 7 MB/s");
        assert_eq!(configured.now(), next);
    }

    #[test]
    fn what_cannot_be_read_or_applied_changes_nothing() {
        let (source, configured) = configured();
        *source.borrow_mut() = Err("t.toml:3: no".to_owned());
        let done = configured.again(ManagerName::Thermocline, |_| panic!("nothing is applied"));
        let (told, _) = answer(&done);
        let told = told["error"].as_str().unwrap();
        assert!(told.starts_with("t.toml:3: no") && told.contains("stays as it is"), "{told}");
        let mut next = Config::default();
        next.queue.capacity = 64;
        *source.borrow_mut() = Ok(next);
        assert!(configured.again(ManagerName::Thermocline, |_| anyhow::bail!("no")).is_err());
        assert_eq!(configured.now(), Config::default());
    }

    #[test]
    fn who_has_taken_over_stays_unless_the_file_names_another_one() {
        let (source, configured) = configured();
        let seen = |configured: &Configured| {
            let mut name = None;
            let done = configured.again(ManagerName::Damon, |config| {
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
