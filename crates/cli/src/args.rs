//! The command line.

mod exchange;
mod recording;
mod screen;

use std::path::PathBuf;
use std::time::Duration;

use crate::import::Format;
use clap::{Args, Parser, Subcommand};
use thermocline_core::config::ManagerName;
use thermocline_sim::sweep::Shard;

pub use exchange::{Export, ExportTo, Import};
pub use recording::{Plan, Record, RecordHow, RecordTo, Replay, Report};
pub use screen::{FrameSize, Pane, Top};

/// Keeps hot memory in DRAM and cold memory in CXL, on the kernel that is already running.
#[derive(Debug, Parser)]
#[command(name = "thermocline", version, about, max_term_width = 100)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub verb: Verb,
}

/// The verbs.
#[derive(Debug, Subcommand)]
pub enum Verb {
    /// Look at the machine: tiers, sources, permissions, who else moves pages, and the remedy for
    /// each problem.
    ///
    /// Exit status: 0 everything is there, 1 usable with problems, 2 cannot work here.
    Doctor(Doctor),
    /// Watch what is hot where, moving nothing. The first step on a new machine.
    Observe {
        /// What both `observe` and `run` take.
        #[command(flatten)]
        watch: Watch,
        /// Where to record to.
        #[command(flatten)]
        record: RecordTo,
    },
    /// Move hot pages up: the daemon, in the foreground.
    Run {
        /// What both `observe` and `run` take.
        #[command(flatten)]
        watch: Watch,
        /// Where to record to; of manager thermocline only.
        #[command(flatten)]
        record: RecordTo,
        /// Who decides which pages move (instead of manager.name of the configuration):
        /// thermocline, numab2, damon or observe.
        #[arg(long, value_name = "NAME", value_parser = manager)]
        manager: Option<ManagerName>,
        /// Decide, but neither change a setting nor move a page.
        #[arg(long)]
        dry_run: bool,
    },
    /// Record what is accessed when, moving nothing: as `observe`, into a folder.
    ///
    /// It says before what it will cost, and afterwards what it has cost. Exit status: 0 recorded,
    /// 1 it could not be recorded to the end.
    Record(Record),
    /// Let a rule decide on what was recorded, and compare with what was decided then.
    ///
    /// With the recorded configuration it decides the same, to the byte of the journal. Exit
    /// status: 0 replayed, whatever differs; 1 the recorded configuration decides otherwise now; 2
    /// it is no recording, or the configuration cannot be used.
    Replay(Replay),
    /// Make a recording of what another tool has written: Valgrind's lackey, perf script of memory
    /// samples and page faults, damo's recordings, memtierd's raw dumps.
    ///
    /// What the file does not say stays unknown: where pages are, how often it was sampled, when.
    /// Exit status: 0 imported, if need be up to the damage; 1 it cannot be read or written; 2 it
    /// is of no known format, or damaged.
    Import(Import),
    /// Write a recording for another tool: loads and stores as Valgrind's lackey prints them, or a
    /// trace for ui.perfetto.dev.
    ///
    /// Exit status: 0 exported; 1 the file cannot be written; 2 it is no recording, or does not fit
    /// into the format.
    Export(Export),
    /// Say how much DRAM a recorded program needs: accesses served by DRAM and loss of time, by
    /// size of DRAM.
    ///
    /// Exit status: 0 done, 1 the picture cannot be written; 2 it is no recording, or has no
    /// evidence that heat could be estimated from.
    Plan(Plan),
    /// Write what a recording says as one HTML page, without scripts: what moved and why, and more.
    ///
    /// Exit status: 0 done, 1 the page cannot be written, no daemon records; 2 it is no recording.
    Report(Report),
    /// Ask the running daemon how it is doing.
    Status {
        /// Print JSON.
        #[arg(long)]
        json: bool,
        /// The daemon's socket.
        #[arg(long, value_name = "PATH")]
        socket: Option<PathBuf>,
    },
    /// Watch the running daemon, or a recording, on a screen: tiers and flows, scopes, sources,
    /// refusals, decisions; `?` lists the keys.
    ///
    /// Exit status: 0 left by the user, 1 no daemon or no terminal, 2 DIR is no recording.
    Top(Top),
    /// Ask the running daemon why a page did or did not move; without an address, which pages of a
    /// process are worth asking about: the hottest left below, the last that moved, those refused
    /// most often; or why a scope has as much of the top tier as it has.
    ///
    /// Exit status: 0 answered, 1 no daemon answers, 3 there is no such process.
    Explain {
        /// Process of the page, or name of a scope, or its cgroup if it has no name.
        #[arg(value_name = "PID|SCOPE")]
        of: String,
        /// Any address in the page, as in 0x7f12a4c03000.
        #[arg(value_parser = address)]
        address: Option<u64>,
        /// Print JSON.
        #[arg(long)]
        json: bool,
        /// The daemon's socket.
        #[arg(long, value_name = "PATH")]
        socket: Option<PathBuf>,
    },
    /// Have another manager take over in the running daemon; what the former one had set is put
    /// back first.
    ///
    /// Exit status: 0 it manages now; 1 it cannot work here, and the former one goes on.
    Switch {
        /// Who shall decide which pages move: thermocline, numab2, damon or observe.
        #[arg(value_name = "MANAGER", value_parser = manager)]
        manager: ManagerName,
        /// The daemon's socket.
        #[arg(long, value_name = "PATH")]
        socket: Option<PathBuf>,
    },
    /// Have the running daemon read its configuration again, as SIGHUP does: it takes the whole of
    /// it or nothing, and says what has changed or why not.
    ///
    /// `thermocline config diff` says before what would change, and what needs a restart. Exit
    /// status: 0 it goes by the files now; 1 it goes on as before.
    Reload {
        /// Print what has changed as JSON: a list of {key, before, after, unit, reloads}.
        #[arg(long)]
        json: bool,
        /// The daemon's socket.
        #[arg(long, value_name = "PATH")]
        socket: Option<PathBuf>,
    },
    /// Put back kernel settings that a killed daemon left behind.
    Restore {
        /// The daemon's state folder.
        #[arg(long, value_name = "DIR")]
        state_dir: Option<PathBuf>,
        /// Say what would be put back, and put nothing back.
        #[arg(long)]
        dry_run: bool,
    },
    /// Print a configuration with every key, its unit, default, range and source; or check, show,
    /// compare and explain configurations.
    ///
    /// Files are read first, then the environment (THERMOCLINE_ADMISSION_RATE_LIMIT_MBPS=64), then
    /// --set; of each key the last value counts. Where no file is named, they are
    /// /etc/thermocline/thermocline.toml and /etc/thermocline/conf.d/*.toml, as far as they exist;
    /// otherwise the file and conf.d/*.toml beside it.
    Config(ConfigArgs),
    /// Simulate a scenario: a machine with tiers, programs on it, and what manages their memory.
    ///
    /// Exit status: 0 done, 1 the simulation failed, 2 the scenario cannot be simulated.
    Sim(Sim),
    /// Compare managers and rules on simulated scenarios.
    ///
    /// Ctrl-C prints what is done. Exit status: 0 done, 1 the simulation failed, 2 a scenario
    /// cannot be simulated.
    Compare(Compare),
    /// Set published tables beside the simulator's.
    ///
    /// Ctrl-C prints what is done. Exit status: 0 done, whatever holds; 1 the simulation failed, 2
    /// there is no such table.
    Reproduce(Reproduce),
    /// Simulate every combination of parameters, scenarios, managers and seeds, and write the
    /// figures as Parquet.
    ///
    /// What is done is kept: after Ctrl-C, a crash or a kill the same command goes on where it was.
    /// Shards may run at the same time, on any machines that share the folder. Their parts are put
    /// together by `--merge`, to the same bytes for any number of shards.
    ///
    /// In a Slurm array of tasks 1 to 64, give --shard $SLURM_ARRAY_TASK_ID/64. In an indexed job
    /// of Kubernetes, whose index begins at 0, have a shell give --shard $((JOB_COMPLETION_INDEX +
    /// 1))/64.
    ///
    /// Exit status: 0 done, 1 the simulation failed or the folder cannot be written, 2 the grid
    /// cannot be run, or runs are missing; 130 ended by Ctrl-C before all was done.
    Sweep(Sweep),
    /// Write man pages and shell completions into a folder.
    Generate {
        /// The folder; made where it does not exist.
        dir: PathBuf,
    },
}

/// What `config` takes.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct ConfigArgs {
    /// What to do instead of printing every key.
    #[command(subcommand)]
    pub verb: Option<ConfigVerb>,
    /// Print the keys as Markdown tables.
    #[arg(long)]
    pub markdown: bool,
}

/// The verbs of `config`.
#[derive(Debug, Subcommand)]
pub enum ConfigVerb {
    /// Say that a configuration can be used, or every error with its place and remedy.
    ///
    /// Exit status: 0 it can be used, 2 it cannot.
    Check(Files),
    /// Print the configuration that is used, and where each value comes from.
    Show {
        /// What it is read from.
        #[command(flatten)]
        files: Files,
        /// Print JSON: an object by key of {value, origin}.
        #[arg(long)]
        json: bool,
    },
    /// Say in which values two configurations differ, and which of them need a restart.
    ///
    /// With one file it is compared with the running daemon's, with none the service's files are:
    /// what `reload` would change.
    Diff {
        /// The files, the one before first.
        #[arg(value_name = "FILE", num_args = 0..=2)]
        files: Vec<PathBuf>,
        /// Print JSON: a list of {key, before, after, unit, reloads}.
        #[arg(long)]
        json: bool,
        /// The daemon's socket.
        #[arg(long, value_name = "PATH")]
        socket: Option<PathBuf>,
    },
    /// Explain a key: meaning, unit, range, default, where that comes from, whether it can be
    /// reloaded; or list the keys of a section.
    Explain {
        /// The key, as in admission.rate_limit_mbps, or a section.
        key: String,
    },
    /// Print the JSON Schema of the configuration, for editors.
    Schema,
    /// Translate a configuration of memtierd, damo or HMSDK, or settings of the kernel, as `sysctl
    /// -a` prints them: a configuration that begins with what became of each line.
    ///
    /// Exit status: 0 done, whatever was refused; 1 what it comes to contradicts itself; 2 it is no
    /// such file.
    Import {
        /// The file.
        file: PathBuf,
        /// Whose file it is, where that is not to be guessed.
        #[arg(long, value_enum, value_name = "FORMAT")]
        from: Option<Format>,
        /// Print JSON: {lines: [{line, theirs, refused, key, value, why}], toml}.
        #[arg(long)]
        json: bool,
    },
}

/// What a configuration is read from.
#[derive(Debug, Args)]
pub struct Files {
    /// The file (TOML); conf.d/*.toml beside it follow.
    #[arg(value_name = "FILE")]
    pub file: Option<PathBuf>,
    /// Values that go over those of files and environment, as in admission.rate_limit_mbps=64.
    #[arg(long = "set", value_name = "KEY=VALUE")]
    pub changes: Vec<String>,
}

/// What `doctor` takes.
#[derive(Debug, Args)]
pub struct Doctor {
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
    /// Configuration file (TOML) to examine the machine for; see `thermocline config --help`.
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// A value that goes over those of files and environment.
    #[arg(long = "set", value_name = "KEY=VALUE")]
    pub changes: Vec<String>,
    /// Look at another machine, whose /proc and /sys are below this folder; what they do not tell
    /// is unknown.
    #[arg(long, value_name = "DIR")]
    pub root: Option<PathBuf>,
    /// Write what was read, and nothing else, into this tar file: unpacked, it is a folder for
    /// --root.
    #[arg(long, value_name = "FILE")]
    pub bundle: Option<PathBuf>,
    /// Look again every so many seconds, and print a line when a finding begins and when it ends,
    /// until interrupted.
    #[arg(
        long,
        value_name = "SECONDS",
        num_args = 0..=1,
        default_missing_value = "10",
        value_parser = clap::value_parser!(u64).range(1..=86_400),
        conflicts_with = "bundle"
    )]
    pub watch: Option<u64>,
}

/// What both `observe` and `run` take.
#[derive(Debug, Args)]
pub struct Watch {
    /// Configuration file (TOML); see `thermocline config --help` for where else values come from.
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// A value that goes over those of files and environment, as in admission.rate_limit_mbps=64.
    #[arg(long = "set", value_name = "KEY=VALUE")]
    pub changes: Vec<String>,
    /// Stop after this long, as in 60s or 10m.
    #[arg(long = "for", value_name = "DURATION", value_parser = humantime::parse_duration)]
    pub duration: Option<Duration>,
    /// Manage these processes only (instead of the scopes of the configuration).
    #[arg(long, value_name = "PID", value_delimiter = ',')]
    pub pid: Vec<u32>,
    /// Print a JSON object a line instead of text.
    #[arg(long)]
    pub json: bool,
}

/// What `sim` takes.
#[derive(Debug, Args)]
pub struct Sim {
    /// A preset's name, or a TOML file.
    #[arg(required_unless_present_any = ["list"])]
    pub scenario: Option<String>,
    /// List the scenarios, machines and managers.
    #[arg(long)]
    pub list: bool,
    /// Simulate it on another machine: a preset's name, a TOML file, or the JSON of `thermocline
    /// doctor --json`.
    #[arg(long, value_name = "NAME|FILE")]
    pub machine: Option<String>,
    /// Who moves pages: none, numab2, fault-count, thermocline, ... (--list names all).
    #[arg(long, value_name = "NAME")]
    pub manager: Option<String>,
    /// The same as --manager thermocline:RULE.
    #[arg(long, value_name = "RULE", conflicts_with = "manager")]
    pub rule: Option<String>,
    /// Change a value of the scenario (process.0.threads=2), of its machine
    /// (machine.cost.migrate_ns=5000), of the kernel's settings (kernel.scan_size_mb=64) or of
    /// Thermocline's configuration (config.admission.rate_limit_mbps=64).
    #[arg(long = "set", value_name = "KEY=VALUE")]
    pub changes: Vec<String>,
    /// Run this many seeds and tell mean and spread.
    #[arg(
        long,
        value_name = "N",
        default_value_t = 1,
        value_parser = clap::value_parser!(u64).range(1..=100_000),
        conflicts_with = "record"
    )]
    pub seeds: u64,
    /// The first seed.
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// Fit the scenario's free parameters to the published figures that its section `fit` names,
    /// and print them as --set.
    #[arg(long, conflicts_with_all = ["manager", "rule", "json", "seeds", "record"])]
    pub fit: bool,
    /// Every access (exact), from fault to fault (event), or whichever suits the size (auto).
    #[arg(long, value_enum, default_value_t = Mode::Auto)]
    pub mode: Mode,
    /// Print JSON: a list with a report a seed.
    #[arg(long)]
    pub json: bool,
    /// Where to record to; of managers thermocline:RULE, with one seed.
    #[command(flatten)]
    pub record: RecordTo,
}

/// What `compare` takes.
#[derive(Debug, Args)]
pub struct Compare {
    /// Presets' names, or TOML files.
    #[arg(required = true)]
    pub scenarios: Vec<String>,
    /// Only these managers; the first is what the others are compared with.
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    pub manager: Vec<String>,
    /// Simulate them on another machine: a preset's name, a TOML file, or the JSON of `thermocline
    /// doctor --json`.
    #[arg(long, value_name = "NAME|FILE")]
    pub machine: Option<String>,
    /// Change a value of every scenario; see `sim`.
    #[arg(long = "set", value_name = "KEY=VALUE")]
    pub changes: Vec<String>,
    /// Run this many seeds of each.
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u64).range(1..=10_000))]
    pub seeds: u64,
    /// Draw slowdowns and shares of the best static placement into this file.
    #[arg(long, value_name = "FILE")]
    pub svg: Option<PathBuf>,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}

/// What `reproduce` takes.
#[derive(Debug, Args)]
pub struct Reproduce {
    /// The table: s0, s1, s2-oltp, s3-zipfian or s4-promote; all where none is named.
    pub table: Option<String>,
    /// Run this many seeds of each column.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=10_000))]
    pub seeds: Option<u64>,
    /// Print JSON: a list of {table, row, published, ours, sd, difference, tolerance, holds,
    /// seeds}.
    #[arg(long)]
    pub json: bool,
    /// Draw the tables into this file.
    #[arg(long, value_name = "FILE")]
    pub svg: Option<PathBuf>,
}

/// What `sweep` takes.
#[derive(Debug, Args)]
pub struct Sweep {
    /// The grid, a TOML file: scenarios, managers, seeds and lists of values by key.
    #[arg(value_name = "GRID.toml", required_unless_present = "merge", requires = "out")]
    pub grid: Option<PathBuf>,
    /// The folder for the results; made where it does not exist.
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Simulate on another machine than the scenarios name: a preset's name, a TOML file, or the
    /// JSON of `thermocline doctor --json`. Several machines are values of the parameter `machine`.
    #[arg(long, value_name = "NAME|FILE", conflicts_with = "merge")]
    pub machine: Option<String>,
    /// Run only the K-th of N parts, K from 1 to N.
    #[arg(long, value_name = "K/N", default_value_t = Shard::ALL)]
    pub shard: Shard,
    /// Draw slowdown and share of the best static placement over the first parameter that has
    /// several values into this file, once all runs are done.
    #[arg(long, value_name = "FILE")]
    pub svg: Option<PathBuf>,
    /// Put the parts in this folder together as sweep.parquet.
    #[arg(long, value_name = "DIR", conflicts_with_all = ["grid", "out", "shard"])]
    pub merge: Option<PathBuf>,
}

/// A mode of the simulator.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Mode {
    /// Whichever suits the size.
    Auto,
    /// Every access.
    Exact,
    /// From fault to fault.
    Event,
}

/// A manager by its name.
fn manager(text: &str) -> Result<ManagerName, String> {
    let names = ManagerName::ALL.map(ManagerName::text);
    let found = ManagerName::ALL.into_iter().find(|name| name.text() == text);
    found.ok_or_else(|| format!("managers are {}", names.join(", ")))
}

/// An address in hexadecimal with 0x, or in decimal.
fn address(text: &str) -> Result<u64, String> {
    let parsed = match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        Some(digits) => u64::from_str_radix(digits, 16),
        None => text.parse(),
    };
    parsed.map_err(|e| format!("{e}; write it as 0x7f12a4c03000 or in decimal"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn addresses_are_hexadecimal_or_decimal() {
        assert_eq!(address("0x1000"), Ok(4096));
        assert_eq!(address("4096"), Ok(4096));
        assert!(address("7f12a4c03000").is_err());
    }
}
