//! Where memory is. A separate thread looks it up: a process that hangs may block that thread, but
//! nothing else.

use std::sync::mpsc::{SyncSender, TrySendError, sync_channel};
use std::time::Duration;

use thermocline_linux::residency;

/// How long a client waits for the result.
const WAIT: Duration = Duration::from_secs(2);
/// Maximum number of clients that wait for it.
const WAITING_MAX: usize = 32;

/// The residency, or why it could not be determined.
pub(super) type Looked = Result<residency::Residency, String>;

/// A handle to the thread.
#[derive(Clone, Debug)]
pub(super) struct Residency {
    ask: SyncSender<SyncSender<Looked>>,
}

impl Residency {
    /// Starts the thread, which calls `look` at each request.
    pub(super) fn start(mut look: impl FnMut() -> Looked + Send + 'static) -> std::io::Result<Residency> {
        let (ask, asked) = sync_channel::<SyncSender<Looked>>(WAITING_MAX);
        std::thread::Builder::new().name("residency".to_owned()).spawn(move || {
            while let Ok(first) = asked.recv() {
                let found = look();
                // All waiting clients get the same result. One that has gone away needs none.
                for answer in std::iter::once(first).chain(asked.try_iter()) {
                    let _ = answer.try_send(found.clone());
                }
            }
        })?;
        Ok(Residency { ask })
    }

    /// Where memory is, if the thread finds out in time.
    pub(super) fn now(&self) -> Looked {
        let (answer, answers) = sync_channel(1);
        match self.ask.try_send(answer) {
            Err(TrySendError::Disconnected(_)) => Err("the look at processes has failed".to_owned()),
            _ => answers.recv_timeout(WAIT).unwrap_or_else(|_| {
                Err("a process keeps its memory from being looked at; it is not known where memory is"
                    .to_owned())
            }),
        }
    }
}
