//! What the verbs that record and replay take.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use thermocline_front::plan::{Size, latency, share, source};
use thermocline_sim::units::Bytes;
use thermocline_trace::heat::HeatSource;

use super::Watch;

/// Smallest size that a recording may be limited to.
const SIZE_MIN: Bytes = Bytes(1 << 20);

/// Where `run`, `observe` and `sim` record to.
#[derive(Debug, Default, Args)]
pub struct RecordTo {
    /// Record evidence and decisions into this folder, as Parquet: for `thermocline replay`, and to
    /// look at with DuckDB, pandas or polars. Made where it does not exist; otherwise empty.
    #[arg(id = "record", long = "record", value_name = "DIR")]
    pub folder: Option<PathBuf>,
    /// How to record.
    #[command(flatten)]
    pub how: RecordHow,
}

/// How to record.
#[derive(Clone, Debug, Default, Args)]
pub struct RecordHow {
    /// End the recording at this size on disk, as in 500MiB or 2GiB; the run goes on.
    #[arg(long, value_name = "SIZE", value_parser = size, requires = "record")]
    pub max_size: Option<Bytes>,
    /// At that size remove the oldest part of the recording instead of ending it.
    #[arg(long, requires = "max_size")]
    pub rotate: bool,
    /// Record no process numbers, addresses, commands and names, so that the recording can be
    /// given away; the book says what remains in it.
    #[arg(long, requires = "record")]
    pub private: bool,
}

/// What `record` takes.
#[derive(Debug, Args)]
pub struct Record {
    /// What `observe` takes too.
    #[command(flatten)]
    pub watch: Watch,
    /// The folder; made where it does not exist, otherwise empty.
    #[arg(id = "record", short = 'o', long = "out", value_name = "DIR")]
    pub folder: PathBuf,
    /// How to record.
    #[command(flatten)]
    pub how: RecordHow,
    /// Only these scopes of the configuration, by name; or cgroups, by a path that begins with /.
    #[arg(long, value_name = "SCOPE", value_delimiter = ',', conflicts_with = "pid")]
    pub only: Vec<String>,
}

/// What `replay` takes.
#[derive(Debug, Args)]
pub struct Replay {
    /// The recording: a folder.
    #[arg(value_name = "DIR")]
    pub folder: PathBuf,
    /// Let this rule decide.
    #[arg(long, value_name = "NAME")]
    pub rule: Option<String>,
    /// Change a value of the configuration, as in admission.rate_limit_mbps=64.
    #[arg(long = "set", value_name = "KEY=VALUE")]
    pub changes: Vec<String>,
    /// Use this configuration instead of the recorded one. Scopes and tiers stay the recorded ones,
    /// since the evidence refers to them.
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Say where decisions differ from the recorded ones: how many pages, by reason, and the first
    /// of them.
    #[arg(long)]
    pub diff: bool,
    /// With --diff: list so many pages.
    #[arg(long, value_name = "N", default_value_t = 10, requires = "diff")]
    pub pages: usize,
    /// Write the journal of the replayed engine into this file, a decision a line, as JSON.
    #[arg(long, value_name = "FILE")]
    pub journal: Option<PathBuf>,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}

/// What `plan` takes.
#[derive(Debug, Args)]
pub struct Plan {
    /// The recording: a folder.
    #[arg(value_name = "DIR")]
    pub folder: PathBuf,
    /// The loss of time that is acceptable, against all memory in DRAM.
    #[arg(long, value_name = "PERCENT", default_value = "3%", value_parser = share)]
    pub loss: f64,
    /// Latency of DRAM and of the slower memory in ns, by node, as in 0=100,2=250; by default what
    /// the firmware reported, or else that.
    #[arg(long, value_name = "NODE=NS,NODE=NS", value_parser = latency)]
    pub latency: Option<[f64; 2]>,
    /// The share of its time that the program waits for memory while all of it is in DRAM, as in
    /// 30% or 0.3. It is not recorded: assumed, if it is not given.
    #[arg(long, value_name = "SHARE", value_parser = share)]
    pub memory_bound: Option<f64>,
    /// Sizes of DRAM, as in 10%,25%,8GiB; by default 5 to 100 % of the memory that was seen.
    #[arg(long, value_name = "SIZES", value_delimiter = ',')]
    pub sizes: Vec<Size>,
    /// Which evidence to use, where there are several kinds: hint-faults, samples or regions.
    #[arg(long, value_name = "SOURCE", value_parser = source)]
    pub source: Option<HeatSource>,
    /// Draw the curves into this file.
    #[arg(long, value_name = "FILE")]
    pub svg: Option<PathBuf>,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}

/// What `report` takes.
#[derive(Debug, Args)]
pub struct Report {
    /// The recording: a folder. Without it, the one that the running daemon makes.
    #[arg(value_name = "DIR", required_unless_present = "last")]
    pub folder: Option<PathBuf>,
    /// Show only the last part of it, as in 10m or 1h, up to what is on disk.
    #[arg(long, value_name = "DURATION", value_parser = humantime::parse_duration)]
    pub last: Option<Duration>,
    /// Write the page into this file.
    #[arg(short = 'o', long = "out", value_name = "FILE", default_value = "report.html")]
    pub file: PathBuf,
    /// Write each figure into this folder too, as an SVG file of its own. Made where it does not
    /// exist.
    #[arg(long, value_name = "DIR")]
    pub figures: Option<PathBuf>,
    /// Write each figure as PNG beside the SVG, by rsvg-convert.
    #[arg(long, requires = "figures")]
    pub png: bool,
    /// The daemon's socket.
    #[arg(long, value_name = "PATH", conflicts_with = "folder")]
    pub socket: Option<PathBuf>,
}

/// A size of a recording.
fn size(text: &str) -> Result<Bytes, String> {
    match text.parse() {
        Ok(size) if size < SIZE_MIN => Err(format!("a recording takes at least {SIZE_MIN}")),
        parsed => parsed,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_a_unit_and_are_not_too_small() {
        assert_eq!(size("2GiB"), Ok(Bytes(2 << 30)));
        assert!(size("1KiB").is_err_and(|error| error.contains("1MiB")));
        assert!(size("1000").is_err_and(|error| error.contains("unit")));
    }
}
