//! The `thermocline` command.

mod args;
mod config_file;
mod verb;

use std::process::ExitCode;

use clap::Parser;

use crate::args::{Cli, Verb};

/// Exit status of a configuration that cannot be used, and of a wrong command line.
const EXIT_USAGE: u8 = 2;

fn main() -> ExitCode {
    match dispatch(Cli::parse()) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::from(if error.is::<config_file::FileError>() { EXIT_USAGE } else { 1 })
        }
    }
}

fn dispatch(cli: Cli) -> anyhow::Result<ExitCode> {
    match cli.verb {
        Verb::Config { check: Some(path), .. } => {
            config_file::load(&path)?;
            println!("{} is a valid configuration", path.display());
        }
        Verb::Config { markdown: true, .. } => print!("{}", verb::config::markdown()),
        Verb::Config { .. } => print!("{}", verb::config::annotated()),
        Verb::Generate { dir } => verb::generate::generate(&dir)?,
        _ => anyhow::bail!("this verb is being wired"),
    }
    Ok(ExitCode::SUCCESS)
}
