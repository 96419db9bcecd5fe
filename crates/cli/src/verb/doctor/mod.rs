//! `thermocline doctor`: can this machine be tiered, and if not, what would help?

mod watch;

use std::fs::OpenOptions;
use std::io::{self, IsTerminal, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context;
use thermocline_front::config::{self, Asked};
use thermocline_linux::doctor::{Report, Severity, bundle, examine, told};
use thermocline_linux::record::{Entry, Recording};
use thermocline_linux::root::Root;

use crate::args::Doctor;
use crate::output::{print, print_painted, tell};

/// The name of the report in a bundle.
const REPORT: &str = "doctor.json";

/// Examines the machine, or a folder with a copy of its files, and prints the report, whose verdict
/// is the exit status; or watches it and prints what begins and ends.
///
/// # Errors
/// The configuration file or the folder cannot be used, or the bundle cannot be written.
pub fn doctor(asked: &Doctor) -> anyhow::Result<ExitCode> {
    let files = Asked { file: asked.config.clone(), changes: asked.changes.clone() };
    let mut config = config::load(&files, |_| {})?.config;
    let root = match &asked.root {
        None => Root::default(),
        Some(folder) => {
            let root = Root::at(folder);
            anyhow::ensure!(
                root.proc.is_dir() || root.sys.is_dir(),
                "{} has neither proc nor sys; unpack a bundle with `tar -xf FILE -C DIR`, and give DIR",
                folder.display()
            );
            config.daemon.state_dir = root.rebase(Path::new(&config.daemon.state_dir)).display().to_string();
            root
        }
    };
    if let Some(seconds) = asked.watch {
        watch::watch(&root, &config, Duration::from_secs(seconds), asked.json)?;
        return Ok(ExitCode::SUCCESS);
    }
    let report = match &asked.bundle {
        None => examine(&root, &config),
        Some(file) => {
            let (report, read) = bundle(&root, &config);
            write(file, &report, &read).with_context(|| format!("cannot write {}", file.display()))?;
            tell!(
                "{} holds this report and what was read for it; no command lines, no addresses, no names of programs but those that the report \
                 names:\n{}",
                file.display(),
                told(&read)
            );
            report
        }
    };
    if asked.json {
        print(format_args!("{}\n", serde_json::to_string_pretty(&report)?))?;
    } else {
        let colour = io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none();
        let plain = report.text(|_, words| words.to_owned()) + "\n";
        let painted = if colour { report.text(paint) + "\n" } else { plain.clone() };
        print_painted(&plain, &painted)?;
    }
    Ok(ExitCode::from(report.verdict.exit_status()))
}

/// Writes a tar file that only its owner may read. An existing file is left as it is.
fn write(path: &PathBuf, report: &Report, read: &Recording) -> anyhow::Result<()> {
    let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    let mut tar = tar::Builder::new(io::BufWriter::new(file));
    add_file(&mut tar, Path::new(REPORT), &serde_json::to_vec_pretty(report)?)?;
    for (path, entry) in read {
        match entry {
            Entry::File(bytes) => add_file(&mut tar, path, bytes)?,
            Entry::Folder => {
                let mut header = header(tar::EntryType::Directory, 0o700);
                tar.append_data(&mut header, path, io::empty())?;
            }
            Entry::Link(target) => {
                tar.append_link(&mut header(tar::EntryType::Symlink, 0o600), path, target)?;
            }
        }
    }
    tar.into_inner()?.flush()?;
    Ok(())
}

fn add_file(tar: &mut tar::Builder<impl Write>, path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut header = header(tar::EntryType::Regular, 0o600);
    header.set_size(bytes.len() as u64);
    tar.append_data(&mut header, path, bytes)
}

fn header(kind: tar::EntryType, mode: u32) -> tar::Header {
    let mut header = tar::Header::new_gnu();
    header.set_entry_type(kind);
    header.set_mode(mode);
    header.set_size(0);
    header
}

/// Paints words in the colour of a severity: green, none, yellow, red.
fn paint(severity: Severity, words: &str) -> String {
    let code = match severity {
        Severity::Ok => "32",
        Severity::Note => return words.to_owned(),
        Severity::Problem => "33",
        Severity::Blocker => "31",
    };
    format!("\x1b[{code}m{words}\x1b[0m")
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_bundle_is_a_private_tar_of_what_was_read_and_replaces_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let machine = dir.path().join("machine");
        std::fs::create_dir_all(machine.join("proc/sys/kernel")).unwrap();
        std::fs::write(machine.join("proc/sys/kernel/osrelease"), "6.12.1\n").unwrap();
        std::fs::write(machine.join("proc/secret"), "nobody reads this").unwrap();
        let file = dir.path().join("bundle.tar");
        let asked = |root: &Path, bundle: Option<&Path>| Doctor {
            changes: Vec::new(),
            json: true,
            config: None,
            root: Some(root.to_owned()),
            bundle: bundle.map(Path::to_owned),
            watch: None,
        };
        let code = doctor(&asked(&machine, Some(&file))).unwrap();
        assert_eq!(code, ExitCode::from(2), "a machine of one node");
        assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
        let again = doctor(&asked(&machine, Some(&file))).unwrap_err();
        assert!(format!("{again:#}").contains("exists"), "{again:#}");

        let unpacked = dir.path().join("unpacked");
        tar::Archive::new(std::fs::File::open(&file).unwrap()).unpack(&unpacked).unwrap();
        let text = |path: &str| std::fs::read_to_string(unpacked.join(path)).unwrap();
        assert_eq!(text("proc/sys/kernel/osrelease"), "6.12.1\n");
        assert_eq!(text("proc/secret"), "", "it was listed and not read");
        assert!(text(REPORT).contains("\"verdict\""));
        assert_eq!(doctor(&asked(&unpacked, None)).unwrap(), ExitCode::from(2));
        assert!(
            doctor(&asked(&dir.path().join("absent"), None)).unwrap_err().to_string().contains("tar -xf")
        );
    }
}
