//! `thermocline doctor --watch`: findings as they begin and end.

use std::io;
use std::time::{Duration, Instant, SystemTime};

use anyhow::Context;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde::Serialize;
use thermocline_core::config::Config;
use thermocline_linux::doctor::Watch;
use thermocline_linux::finding::{Change, Finding, Told};
use thermocline_linux::root::Root;

use crate::output::print_while_read;
use crate::snapshot::timestamp;

/// A line of JSON.
#[derive(Serialize)]
struct Line<'a> {
    /// When it was seen, in UTC.
    time: String,
    /// `begins` or `ends`.
    event: &'static str,
    /// How long it was open, s.
    #[serde(skip_serializing_if = "Option::is_none")]
    lasted_s: Option<u64>,
    /// How often it began since it was told of last, if it came and went in between.
    times: u32,
    #[serde(flatten)]
    finding: &'a Finding,
}

/// Prints what begins and ends, every so often, until the reader of the output has gone away or the
/// process is interrupted.
///
/// # Errors
/// Standard output cannot be written or watched.
pub fn watch(root: &Root, config: &Config, every: Duration, json: bool) -> anyhow::Result<()> {
    let mut watch = Watch::new(root, config);
    loop {
        let begin = Instant::now();
        for told in watch.look() {
            if !print_while_read(&format!("{}\n", line(&told, SystemTime::now(), json)?))? {
                return Ok(());
            }
        }
        if is_gone(every.saturating_sub(begin.elapsed()))? {
            return Ok(());
        }
    }
}

fn line(told: &Told, time: SystemTime, json: bool) -> anyhow::Result<String> {
    let time = timestamp(time);
    if !json {
        return Ok(format!("{time} {}", told.line()));
    }
    let (event, lasted_s) = match told.change {
        Change::Began => ("begins", None),
        Change::Ended(after) => ("ends", Some(after.0 / 1_000_000_000)),
    };
    Ok(serde_json::to_string(&Line { time, event, lasted_s, times: told.times, finding: &told.finding })?)
}

/// Waits, and returns early and true if the reader of standard output goes away.
fn is_gone(wait: Duration) -> anyhow::Result<bool> {
    let out = io::stdout();
    let end = Instant::now() + wait;
    loop {
        let left = end.saturating_duration_since(Instant::now());
        let timeout = Timespec { tv_sec: left.as_secs() as i64, tv_nsec: left.subsec_nanos().into() };
        let mut fds = [PollFd::new(&out, PollFlags::empty())];
        match poll(&mut fds, Some(&timeout)) {
            Ok(0) => return Ok(false),
            Ok(_) => return Ok(true),
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error).context("cannot watch standard output"),
        }
    }
}

#[cfg(test)]
mod tests {
    use thermocline_linux::finding::{Kind, Severity};

    use super::*;

    #[test]
    fn lines_of_json_have_the_finding_with_its_event() {
        let dir = tempfile::tempdir().unwrap();
        let mut watch = Watch::new(&Root::at(dir.path()), &Config::default());
        let told = watch.look();
        let told = told.iter().find(|told| told.finding.id == Kind::TopologyUnreadable).unwrap();
        assert_eq!(told.finding.severity, Severity::Blocker);
        let at = SystemTime::UNIX_EPOCH;
        let json: serde_json::Value = serde_json::from_str(&line(told, at, true).unwrap()).unwrap();
        assert_eq!(json["time"], "1970-01-01T00:00:00Z");
        assert_eq!((&json["event"], &json["id"]), (&"begins".into(), &"topology.unreadable".into()));
        assert!(json["cause"].is_string() && json["remedies"].is_array() && json["lasted_s"].is_null());
        let text = line(told, at, false).unwrap();
        assert!(text.starts_with("1970-01-01T00:00:00Z blocker: "), "{text}");
    }
}
