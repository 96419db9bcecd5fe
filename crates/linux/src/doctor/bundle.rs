//! A machine as a folder for [`super::examine`] elsewhere: exactly what the doctor reads.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use thermocline_core::config::Config;

use crate::doctor::{Report, examine};
use crate::record::{Entry, Recording, record};
use crate::root::Root;

/// Kinds of file systems whose lines of the mount table are kept: devices' names may be addresses.
const MOUNTS: [&str; 6] = ["debugfs", "tracefs", "bpf", "cgroup", "cgroup2", "securityfs"];
/// Lines of a process's status that are kept.
const STATUS: [&str; 6] = ["CapEff:", "Uid:", "Mems_allowed_list:", "Seccomp:", "NoNewPrivs:", "State:"];

/// Examines the machine, and records what was read, by path below the root. Other programs' names,
/// addresses and files are left out, unless the report names the program.
pub fn bundle(root: &Root, config: &Config) -> (Report, Recording) {
    let (report, read) = record(|| examine(root, config));
    let named = named(&report);
    let kept = read.into_iter().filter_map(|(path, entry)| {
        let path = path.strip_prefix(root.rebase(Path::new(""))).ok()?.to_owned();
        let entry = match entry {
            Entry::File(bytes) => Entry::File(scrub(&path, bytes, &named)),
            other => other,
        };
        Some((path, entry))
    });
    let kept = kept.collect();
    (report, kept)
}

/// Processes that the report names.
fn named(report: &Report) -> BTreeSet<u32> {
    let others = report.others.iter().filter_map(|other| other.pid);
    let blind = report.blind.processes.iter().map(|process| process.pid);
    let confined = report.confined.iter().map(|process| process.pid);
    let away = report.away.iter().map(|process| process.pid);
    others.chain(blind).chain(confined).chain(away).map(|pid| pid.0).collect()
}

/// The part of a file below proc that is kept; other files are kept whole.
fn scrub(path: &Path, bytes: Vec<u8>, named: &BTreeSet<u32>) -> Vec<u8> {
    let parts: Vec<_> = path.iter().map(|part| part.to_string_lossy()).collect();
    let lines = |keep: &dyn Fn(&str) -> Option<String>| {
        let text = String::from_utf8_lossy(&bytes);
        text.lines().filter_map(keep).map(|line| line + "\n").collect::<String>().into_bytes()
    };
    match parts.iter().map(AsRef::as_ref).collect::<Vec<&str>>()[..] {
        ["proc", "cmdline"] => lines(&|line| Some(crate::doctor::kernel::boot_words(line))),
        ["proc", "self", "mounts"] => lines(&|line| {
            let words: Vec<&str> = line.split(' ').collect();
            let kind = words.get(2).filter(|kind| MOUNTS.contains(kind))?;
            Some(format!("none {} {kind} - 0 0", words[1]))
        }),
        ["proc", _, "status"] => {
            lines(&|line| STATUS.iter().any(|kept| line.starts_with(kept)).then(|| line.to_owned()))
        }
        ["proc", _, "numa_maps"] => lines(&|line| {
            let (_, rest) = line.split_once(' ')?;
            let words = rest.split(' ').filter(|word| !word.starts_with("file="));
            Some(format!("0 {}", words.collect::<Vec<_>>().join(" ")))
        }),
        ["proc", pid, "stat"] | ["proc", pid, "task", _, "stat"]
            if pid.parse().is_ok_and(|pid| !named.contains(&pid)) =>
        {
            lines(&|line| {
                let (pid, rest) = line.split_once(" (")?;
                let (_, rest) = rest.rsplit_once(") ")?;
                Some(format!("{pid} (-) {rest}"))
            })
        }
        _ => bytes,
    }
}

/// Its content: number of files by folder.
pub fn told(recording: &Recording) -> String {
    let folder = |path: &PathBuf| {
        let parts: Vec<_> = path.iter().map(|part| part.to_string_lossy()).collect();
        let of_process = parts.get(1).is_some_and(|part| part.bytes().all(|b| b.is_ascii_digit()));
        match parts.as_slice() {
            [first, ..] if of_process => format!("/{first}/PID"),
            [first, second, _, ..] => format!("/{first}/{second}"),
            [first, ..] => format!("/{first}"),
            [] => "/".to_owned(),
        }
    };
    let mut sums = std::collections::BTreeMap::<String, (usize, usize)>::new();
    for (path, entry) in recording {
        let Entry::File(bytes) = entry else { continue };
        let sum = sums.entry(folder(path)).or_default();
        *sum = (sum.0 + 1, sum.1 + bytes.len());
    }
    let line = |(folder, (files, bytes)): (String, (usize, usize))| {
        format!("  {folder}: {files} files, {} KiB", bytes.div_ceil(1024))
    };
    sums.into_iter().map(line).collect::<Vec<_>>().join("\n")
}
