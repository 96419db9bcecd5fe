//! `thermocline config import`: translates another program's configuration.

use std::path::Path;

use thermocline_front::config::{self, FileError};

use crate::import::{self, Format};
use crate::output::{print, tell};

/// Translates a file, prints the result, and reports how much was refused.
///
/// # Errors
/// The file cannot be read, is of no known kind, or results in a configuration that contradicts
/// itself.
pub fn import(file: &Path, from: Option<Format>, json: bool) -> anyhow::Result<()> {
    let name = file.display().to_string();
    let text = config::text(file)?;
    let format = from.or_else(|| Format::of(&text)).ok_or_else(|| {
        FileError::Invalid(format!(
            "{name} looks like no configuration of memtierd or damo, and like no settings of the kernel; \
             say what it is with --from"
        ))
    })?;
    let imported =
        import::import(&text, format).map_err(|why| FileError::Invalid(format!("{name} {why}")))?;
    let toml = imported.toml(&name, format);
    let sound = config::parse(&toml, "what it comes to", |_| {});
    if json {
        print(format_args!("{:#}\n", imported.json(&name, format)))?;
    } else {
        print(&toml)?;
    }
    let (translated, refused) = imported.counts();
    tell!("{name}: {translated} translated, {refused} refused");
    if let Err(why) = sound {
        anyhow::bail!("{why}\nwhat {name} comes to cannot be used as it is; correct it by hand");
    }
    Ok(())
}
