//! `thermocline config`: prints, checks, shows, compares and explains configurations.

mod diff;
mod explain;
mod import;
mod keys;
mod show;

use std::process::ExitCode;

use thermocline_core::config::json_schema;
use thermocline_front::config::{self, Asked};
use thermocline_linux::root::Root;
use thermocline_linux::topology::discover;

use crate::args::{ConfigArgs, ConfigVerb, Files};
use crate::output::print;

#[cfg(test)]
pub use keys::annotated;

/// Runs the subcommand.
///
/// # Errors
/// A configuration that cannot be used, an unknown key, or a daemon that does not answer.
pub fn config(args: ConfigArgs) -> anyhow::Result<ExitCode> {
    match args.verb {
        None if args.markdown => print(keys::markdown())?,
        None => print(keys::annotated())?,
        Some(ConfigVerb::Check(files)) => print(check(files)?)?,
        Some(ConfigVerb::Show { files, json }) => {
            let loaded = config::load(&asked(files), |_| {})?;
            print(if json { show::json(&loaded) } else { show::text(&loaded) })?;
        }
        Some(ConfigVerb::Diff { files, json, socket }) => print(diff::diff(files, json, socket)?)?,
        Some(ConfigVerb::Explain { key }) => print(explain::explain(&key)?)?,
        Some(ConfigVerb::Schema) => print(schema()?)?,
        Some(ConfigVerb::Import { file, from, json }) => import::import(&file, from, json)?,
    }
    Ok(ExitCode::SUCCESS)
}

fn asked(files: Files) -> Asked {
    Asked { file: files.file, changes: files.changes }
}

fn check(files: Files) -> anyhow::Result<String> {
    let name = files.file.as_ref().map_or_else(
        || format!("{} with what belongs to it", config::DEFAULT_FILE),
        |file| file.display().to_string(),
    );
    let config = config::load(&asked(files), |_| {})?.config;
    // A machine of one tier has none that the shares could be meant for.
    if let Ok(found) = discover(&Root::default(), &config.tiers)
        && found.topology.tiers_with_memory() > 1
    {
        config.check_shares_fit(found.topology.top_mib())?;
    }
    Ok(format!("{name} is a valid configuration\n"))
}

fn schema() -> anyhow::Result<String> {
    Ok(serde_json::to_string_pretty(&json_schema())? + "\n")
}

#[cfg(test)]
mod contradictions;
#[cfg(test)]
mod tests;
