//! How work is done for Python: without the GIL, to an answer or an error, and never to a panic.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread::Builder;
use std::time::Duration;

use anyhow::{Context, anyhow};
use pyo3::exceptions::PyException;
use pyo3::prelude::*;
use serde_json::{Value, json};
use thermocline_front::words::whole;

pyo3::create_exception!(
    thermocline,
    Error,
    PyException,
    "What was asked for cannot be done; the message is the command's."
);

/// Time between two looks at Python's signals.
const LOOK: Duration = Duration::from_millis(50);
/// The stack of work: as large as a program's main thread has it.
const STACK_BYTES: usize = 8 << 20;

/// The error as Python sees it.
fn error(error: &anyhow::Error) -> PyErr {
    let text = whole(error);
    // Messages that point into a file already begin with the word.
    Error::new_err(text.strip_prefix("error: ").unwrap_or(&text).to_owned())
}

/// A panic is a defect, and the interpreter goes on.
fn caught<T>(work: impl FnOnce() -> anyhow::Result<T>) -> anyhow::Result<T> {
    let done = catch_unwind(AssertUnwindSafe(work));
    done.unwrap_or_else(|_| Err(anyhow!("this is a defect of thermocline; please report it")))
}

/// Does `work` without the GIL. Ctrl-C, and any other signal whose handler raises, sets the flag
/// that `work` gets.
pub fn answer<T: Send>(
    py: Python<'_>,
    work: impl FnOnce(&AtomicBool) -> anyhow::Result<T> + Send,
) -> PyResult<T> {
    let stop = AtomicBool::new(false);
    let (send, mut done) = channel();
    let work = || caught(|| work(&stop));
    std::thread::scope(|scope| {
        let thread = Builder::new().stack_size(STACK_BYTES).spawn_scoped(scope, move || {
            // Whoever asked waits until it comes.
            let _ = send.send(work());
        });
        thread.context("cannot begin a thread").map_err(|e| error(&e))?;
        let mut raised = None;
        loop {
            let looked;
            (looked, done) = py.detach(move || (done.recv_timeout(LOOK), done));
            match looked {
                Ok(Ok(answer)) => return raised.map_or(Ok(answer), Err),
                Ok(Err(e)) => return Err(raised.unwrap_or_else(|| error(&e))),
                Err(RecvTimeoutError::Disconnected) => return Err(Error::new_err("its thread has ended")),
                Err(RecvTimeoutError::Timeout) => {
                    if let Err(signal) = py.check_signals() {
                        raised.get_or_insert(signal);
                        stop.store(true, Ordering::Relaxed);
                    }
                }
            }
        }
    })
}

/// An answer, and what the command would tell beside it.
pub fn told(answer: Value, notes: Vec<String>) -> String {
    json!({ "answer": answer, "notes": notes }).to_string()
}
