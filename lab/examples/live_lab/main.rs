//! Checks of this crate on the real kernel of a lab guest, which it changes: never run it
//! elsewhere.
//!
//! `live_lab check tiers|one-tier|single` prints a line `ok NAME` for each check that holds and
//! ends with status 1 where one does not. `live_lab hold FOLDER` is the daemon that the checks
//! kill.

#![allow(clippy::unwrap_used)]

mod checks;
mod crash;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use thermocline_core::config::Kernel;
use thermocline_linux::actuator::{Actuator, Lock, plan};
use thermocline_linux::root::Root;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words[..] {
        ["check", shape] => checks::all(shape),
        ["hold", state_dir] => hold(Path::new(state_dir)),
        _ => {
            eprintln!("usage: live_lab check tiers|one-tier|single | live_lab hold FOLDER");
            ExitCode::from(2)
        }
    }
}

/// What the daemon of these checks sets.
fn settings() -> Kernel {
    Kernel { scan_size_mb: Some(512), demotion_enabled: Some(true), ..Kernel::default() }
}

/// Sets and restores the kernel's settings for ever, saying `set` each time that all are set.
fn hold(state_dir: &Path) -> ExitCode {
    let root = Root::default();
    let lock = match Lock::acquire(&root, state_dir) {
        Ok(lock) => lock,
        Err(error) => {
            eprintln!("{error}");
            return ExitCode::from(3);
        }
    };
    let (mut actuator, report) = Actuator::live(&root, lock).unwrap();
    if !report.is_empty() {
        println!("{report}");
    }
    loop {
        actuator.apply(&plan(&root, &settings()).unwrap()).unwrap();
        println!("set");
        std::thread::sleep(Duration::from_millis(10));
        assert!(actuator.restore().is_complete());
    }
}

/// This program.
fn myself() -> PathBuf {
    std::env::current_exe().unwrap()
}
