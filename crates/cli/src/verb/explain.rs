//! `thermocline explain`: why a page did or did not move, or which pages are worth asking about.

use std::path::Path;

use crate::daemon::socket::{Request, ask, ask_for_text};

/// There is no process of this number.
#[derive(Debug, thiserror::Error)]
#[error(
    "there is no process {0}; `ps -e` lists those that there are, `thermocline status` the largest in scope"
)]
pub struct NoProcess(u32);

/// Asks the daemon behind `socket`: about the page at `address`, or for pages to ask about. The
/// daemon renders the answer.
///
/// # Errors
/// There is no such process ([`NoProcess`]), no daemon answers, or its version does not render.
pub fn explain(socket: &Path, pid: u32, address: Option<u64>, json: bool) -> anyhow::Result<String> {
    // The daemon may still remember pages of a process that has ended, but nothing can be done for
    // them, and a wrong number would look like a process without evidence.
    if !Path::new("/proc").join(pid.to_string()).exists() {
        return Err(NoProcess(pid).into());
    }
    let as_text = !json;
    let request = match address {
        Some(address) => Request::Explain { pid, address, as_text },
        None => Request::Pages { pid, as_text },
    };
    match json {
        true => Ok(format!("{:#}\n", ask(socket, &request)?)),
        false => ask_for_text(socket, &request),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_that_there_is_not_is_an_error_of_its_own() {
        // Above the greatest number that the kernel gives (PID_MAX_LIMIT).
        let error = explain(Path::new("/nowhere"), 1 << 22, None, false).unwrap_err();
        assert!(error.is::<NoProcess>(), "{error}");
        let own = explain(Path::new("/nowhere"), std::process::id(), None, false).unwrap_err();
        assert!(!own.is::<NoProcess>() && own.to_string().contains("no daemon answers"), "{own}");
    }
}
