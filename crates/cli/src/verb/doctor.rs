//! `thermocline doctor`: can this machine be tiered, and what would change that?

use std::io::IsTerminal;
use std::path::Path;
use std::process::ExitCode;

use thermocline_core::config::Config;
use thermocline_linux::doctor::{Severity, examine};
use thermocline_linux::root::Root;

use crate::config_file;
use crate::output::{print, print_painted};

/// Examines the machine and prints the report; the verdict is the exit status.
///
/// # Errors
/// When the configuration file cannot be used.
pub fn doctor(config: Option<&Path>, json: bool) -> anyhow::Result<ExitCode> {
    let config = config.map_or_else(|| Ok(Config::default()), config_file::load)?;
    let report = examine(&Root::default(), &config);
    if json {
        print(format_args!("{}\n", serde_json::to_string_pretty(&report)?))?;
    } else {
        let colour = std::io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none();
        let plain = report.text(|_, words| words.to_owned()) + "\n";
        let painted = if colour { report.text(paint) + "\n" } else { plain.clone() };
        print_painted(&plain, &painted)?;
    }
    Ok(ExitCode::from(report.verdict.exit_status()))
}

/// Words in the colour of a severity: green, none, yellow, red.
fn paint(severity: Severity, words: &str) -> String {
    let code = match severity {
        Severity::Ok => "32",
        Severity::Note => return words.to_owned(),
        Severity::Problem => "33",
        Severity::Blocker => "31",
    };
    format!("\x1b[{code}m{words}\x1b[0m")
}
