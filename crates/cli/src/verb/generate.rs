//! `thermocline generate`: man pages and shell completions.

use std::path::Path;

use anyhow::Context;
use clap::CommandFactory;
use clap_complete::Shell;

use crate::args::Cli;

/// Writes `man/*.1` and `completions/*` below `dir`.
///
/// # Errors
/// A file cannot be written.
pub fn generate(dir: &Path) -> anyhow::Result<()> {
    let man = dir.join("man");
    let completions = dir.join("completions");
    for folder in [&man, &completions] {
        std::fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
    }
    clap_mangen::generate_to(Cli::command(), &man)
        .with_context(|| format!("cannot write man pages to {}", man.display()))?;
    for shell in [Shell::Bash, Shell::Fish, Shell::Zsh] {
        clap_complete::generate_to(shell, &mut Cli::command(), "thermocline", &completions)
            .with_context(|| format!("cannot write completions to {}", completions.display()))?;
    }
    Ok(())
}
