//! `thermocline explain`: why a page did or did not move, which pages are worth asking about, or
//! why a scope has what it has.

use std::path::Path;

use crate::daemon::socket::{Request, ask, ask_for_text};

/// There is no process of this number.
#[derive(Debug, thiserror::Error)]
#[error(
    "there is no process {0}; `ps -e` lists those that there are, `thermocline status` the largest in scope"
)]
pub struct NoProcess(u32);

/// Asks the daemon behind `socket`: about the page at `address` of a process, for pages of it to
/// ask about, or about a scope, which is whatever is not a number. The daemon renders the answer.
///
/// # Errors
/// There is no such process ([`NoProcess`]), no daemon answers, or its version does not render.
pub fn explain(socket: &Path, of: String, address: Option<u64>, json: bool) -> anyhow::Result<String> {
    let request = request(of, address, !json)?;
    match json {
        true => Ok(format!("{:#}\n", ask(socket, &request)?)),
        false => ask_for_text(socket, &request),
    }
}

fn request(of: String, address: Option<u64>, as_text: bool) -> anyhow::Result<Request> {
    let Ok(pid) = of.parse::<u32>() else {
        anyhow::ensure!(address.is_none(), "a scope has no addresses; give the pid of one of its processes");
        return Ok(Request::Scope { name: of, as_text });
    };
    // The daemon may still remember pages of a process that has ended, but nothing can be done for
    // them, and a wrong number would look like a process without evidence.
    if !Path::new("/proc").join(pid.to_string()).exists() {
        return Err(NoProcess(pid).into());
    }
    Ok(match address {
        Some(address) => Request::Explain { pid, address, as_text },
        None => Request::Pages { pid, as_text },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_number_is_a_scope() {
        let scope = request("/db.slice".to_owned(), None, true).unwrap();
        assert_eq!(scope, Request::Scope { name: "/db.slice".to_owned(), as_text: true });
        let error = request("db".to_owned(), Some(4096), true).unwrap_err().to_string();
        assert!(error.contains("a scope has no addresses"), "{error}");
    }

    #[test]
    fn a_process_that_there_is_not_is_an_error_of_its_own() {
        // Above the greatest number that the kernel gives (PID_MAX_LIMIT).
        let of = |pid: u32| explain(Path::new("/nowhere"), pid.to_string(), None, false);
        let error = of(1 << 22).unwrap_err();
        assert!(error.is::<NoProcess>(), "{error}");
        let own = of(std::process::id()).unwrap_err();
        assert!(!own.is::<NoProcess>() && own.to_string().contains("no daemon answers"), "{own}");
    }
}
