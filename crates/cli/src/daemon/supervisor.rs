//! Tells the service manager that a manager works, and that the loop runs.
//!
//! The protocol is sd_notify(3): datagrams to the socket that `NOTIFY_SOCKET` names. Without it, as
//! in a terminal, nothing is sent. A datagram that cannot be sent is dropped; the service manager
//! then treats the daemon as hanging.

use std::cell::Cell;
use std::time::Duration;

use sd_notify::NotifyState;
use thermocline_core::units::Nanos;
use thermocline_linux::machine::now;

/// The service manager, as the daemon's loop sees it.
#[derive(Debug, Default)]
pub struct Supervisor {
    /// Time between two watchdog notifications: half of what the service manager allows. `None` if
    /// it does not watch.
    every: Option<Duration>,
    /// When the next watchdog notification is due.
    due: Cell<Nanos>,
    ready: Cell<bool>,
}

impl Supervisor {
    /// Reads the service manager's settings from the environment.
    pub fn of_environment() -> Supervisor {
        Supervisor {
            every: sd_notify::watchdog_enabled().map(|allowed| allowed / 2),
            ..Supervisor::default()
        }
    }

    /// A manager works. The first call also starts units that wait for this one.
    pub fn works(&self, manager: &str) {
        if !self.ready.replace(true) {
            send(&[NotifyState::Ready]);
        }
        send(&[NotifyState::Status(&format!("manager {manager}"))]);
    }

    /// A reload begins; [`Supervisor::reloaded`] ends it.
    pub fn reloads(&self) {
        if let (true, Ok(at)) = (self.ready.get(), NotifyState::monotonic_usec_now()) {
            send(&[NotifyState::Reloading, at]);
        }
    }

    /// The reload is over, whether or not it was applied.
    pub fn reloaded(&self) {
        if self.ready.get() {
            send(&[NotifyState::Ready]);
        }
    }

    /// The loop runs.
    pub fn turns(&self) {
        let Some(every) = self.every else { return };
        let at = now();
        if at >= self.due.get() {
            self.due.set(at.plus(Nanos(u64::try_from(every.as_nanos()).unwrap_or(u64::MAX))));
            send(&[NotifyState::Watchdog]);
        }
    }
}

fn send(states: &[NotifyState<'_>]) {
    let _ = sd_notify::notify(states);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signs_of_life_come_at_half_the_time_that_is_allowed() {
        let supervisor = Supervisor { every: Some(Duration::from_secs(3600)), ..Supervisor::default() };
        supervisor.turns();
        let due = supervisor.due.get();
        assert!(due > now().plus(Nanos::from_s(3500)));
        supervisor.turns();
        assert_eq!(supervisor.due.get(), due, "it is not due yet");
        Supervisor::default().turns();
    }
}
