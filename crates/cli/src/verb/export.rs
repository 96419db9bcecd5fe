//! `thermocline export`: writes a recording for another tool.

use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use anyhow::Context;
use thermocline_core::units::Pid;
use thermocline_sim::spec::SpecError;
use thermocline_trace::export::{ExportError, lackey, perfetto};
use thermocline_trace::part::Damage;
use thermocline_trace::reader::{Recording, TIMES};

use crate::args::{Export, ExportTo};
use crate::output::tell;
use crate::progress::shown_while;

/// Exports a recording, and says what became of it.
///
/// # Errors
/// It is no recording, it does not fit into the format, or the file cannot be written. The file is
/// then not there, or as it was.
pub fn export(args: &Export) -> anyhow::Result<()> {
    if args.pid.is_some() && args.to != ExportTo::Lackey {
        return Err(SpecError::new("--pid", "a trace for Perfetto has every process", "leave it out").into());
    }
    let recording = Recording::open(&args.folder)?;
    let mut reader = recording.read();
    let file = Unfinished::create(&args.file)?;
    let mut to = BufWriter::new(&file.file);
    let said = shown_while("exporting ...", || match args.to {
        ExportTo::Lackey => {
            let done = lackey(&mut reader, args.pid.map(Pid), &mut to)?;
            let mut said = vec![format!(
                "{} accesses written, as one byte of their page{}",
                done.accesses,
                match done.unknown {
                    0 => String::new(),
                    unknown => format!("; {unknown} of them as loads because what they were is not known"),
                }
            )];
            let left_out = [
                (done.without_address, "accesses without an address"),
                (done.of_others, "accesses of other processes"),
            ];
            said.extend(
                left_out
                    .iter()
                    .filter(|(count, _)| *count > 0)
                    .map(|(count, what)| format!("left out: {count} {what}")),
            );
            Ok(said)
        }
        ExportTo::Perfetto => {
            let done = perfetto(&recording, &mut reader, &mut to)?;
            let mut said = vec![format!(
                "{} decisions and {} values of counters written; open it in ui.perfetto.dev",
                done.decisions, done.values
            )];
            if !done.monotonic {
                let times = recording.setting(TIMES).unwrap_or("simulated");
                said.push(format!(
                    "its times are not CLOCK_MONOTONIC: do not merge it with another trace ({times})"
                ));
            }
            Ok(said)
        }
    });
    let said = said.map_err(|error| match error {
        ExportError::Several(..) => anyhow::Error::from(Damage::new(&args.folder, error.to_string())),
        ExportError::Write(_) => anyhow::anyhow!("{}: {error}", args.file.display()),
    })?;
    to.flush().with_context(|| format!("cannot write {}", args.file.display()))?;
    drop(to);
    file.finish()?;
    said.iter().for_each(|line| tell!("{line}"));
    for damage in recording.left_out().iter().chain(reader.damages()) {
        tell!("left out: {damage}");
    }
    Ok(())
}

/// A file that has its name once it is whole.
struct Unfinished<'a> {
    path: &'a Path,
    unfinished: PathBuf,
    file: File,
    finished: bool,
}

impl Unfinished<'_> {
    fn create(path: &Path) -> anyhow::Result<Unfinished<'_>> {
        let mut unfinished = path.as_os_str().to_owned();
        unfinished.push(".unfinished");
        let unfinished = PathBuf::from(unfinished);
        let file =
            File::create(&unfinished).with_context(|| format!("cannot write {}", unfinished.display()))?;
        Ok(Unfinished { path, unfinished, file, finished: false })
    }

    fn finish(mut self) -> anyhow::Result<()> {
        let renamed = fs::rename(&self.unfinished, self.path);
        renamed.with_context(|| format!("cannot write {}", self.path.display()))?;
        self.finished = true;
        Ok(())
    }
}

impl Drop for Unfinished<'_> {
    fn drop(&mut self) {
        if !self.finished {
            let _ = fs::remove_file(&self.unfinished);
        }
    }
}
