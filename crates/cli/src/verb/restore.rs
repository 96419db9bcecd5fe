//! `thermocline restore`: restores the settings that a killed daemon left changed.

use std::path::Path;
use std::process::ExitCode;

use thermocline_linux::actuator::log;
use thermocline_linux::actuator::restore as put_back;
use thermocline_linux::root::Root;

use crate::output::print;

/// Restores settings, or says which it would restore.
///
/// # Errors
/// A daemon is running, or the log cannot be used.
pub fn restore(state_dir: &Path, dry_run: bool) -> anyhow::Result<ExitCode> {
    if dry_run {
        let left = log::read(state_dir)?;
        for entry in &left.entries {
            print(format_args!("{}: {} -> {}\n", entry.path.display(), entry.ours, entry.old))?;
        }
        if left.entries.is_empty() {
            print("nothing to put back\n")?;
        }
        let Some(first) = left.damaged.first() else { return Ok(ExitCode::SUCCESS) };
        print(format_args!(
            "lines of the restore log are damaged, {} of them, the first is line {first}; what they recorded \
             is unknown\n",
            left.damaged.len()
        ))?;
        return Ok(ExitCode::FAILURE);
    }
    let report = put_back(&Root::default(), state_dir)?;
    if report.is_empty() {
        print("nothing to put back\n")?;
    } else {
        print(format_args!("{report}\n"))?;
    }
    Ok(if report.is_complete() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
