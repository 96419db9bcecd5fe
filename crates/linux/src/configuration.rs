//! Whether a configuration can be used on some machine: `config check`, `run`, `observe` and
//! `doctor` use the same checks.
//!
//! The doctor checks whether it can be used on this machine.

use std::path::Path;

use thermocline_core::config::schema::Violation;
use thermocline_core::config::{Config, ConfigError, Daemon};

use crate::actuator::{MACHINE_LOCK, STATE_NAMES};
use crate::root::Root;
use crate::scope::Scopes;

/// Performs all checks that need no machine.
///
/// # Errors
/// Every violation of ranges and between keys, and the first of scopes that cannot be used.
pub fn check(config: &Config) -> Result<(), ConfigError> {
    let mut violations = config.check().err().map_or_else(Vec::new, |error| error.0);
    violations.extend(socket_in_the_way(&config.daemon));
    if let Err(error) = Scopes::new(&config.scope) {
        let message = error.to_string().lines().map(str::trim).collect::<Vec<_>>().join(" ");
        violations.push(Violation { key: error.key().unwrap_or_default(), message });
    }
    if violations.is_empty() { Ok(()) } else { Err(ConfigError(violations)) }
}

/// The socket has the name of another file of ours, or of a folder that contains one.
fn socket_in_the_way(daemon: &Daemon) -> Option<Violation> {
    let (socket, state) = (Path::new(&daemon.socket), Path::new(&daemon.state_dir));
    let mut of_ours =
        STATE_NAMES.iter().map(|name| state.join(name)).chain([Root::default().run.join(MACHINE_LOCK)]);
    let taken = state.starts_with(socket) || of_ours.any(|file| file == socket);
    taken.then(|| Violation {
        key: "daemon.socket".to_owned(),
        message: format!(
            "{} is the place of other files of thermocline's; give the socket another",
            daemon.socket
        ),
    })
}
