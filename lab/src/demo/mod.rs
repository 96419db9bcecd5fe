//! `lab demo`: a real Redis whose memory starts on the slow tier, first without and then with Thermocline.

pub(crate) mod daemon;
mod inside;
mod line;
mod picture;
mod record;
mod verdict;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use anyhow::{Context, ensure};
use clap::Args;
use serde::Serialize;
use thermocline_lab::truth::{attach, read_dump};
use thermocline_lab::workload::{read_json, write_json};
use thermocline_lab::{Guest, Line, Machine, Outcome, Output, ThpMode};

use record::{PAGES, Plan, RECORDING, Recording};
use verdict::Verdict;

/// DRAM and CXL. 256 MiB is the least that boots; what the system leaves free of it is about half of Redis.
const MEMORY_MIB: [u64; 2] = [256, 768];
/// The modelled cache: to Redis's memory what a server's cache is to a server's memory, about a thousandth.
const CACHE: &str = "cache-kib=256";
/// The most that booting, loading and verifying may take on a busy host.
const AROUND: Duration = Duration::from_secs(200);
/// Seconds over which misses are judged at the end of the part before.
const BEFORE_WINDOW_S: u64 = 20;
/// The same at the end. The best static placement knows the counts beforehand: over a short time it would profit from chance.
const WINDOW_S: u64 = 60;
/// How often a guest is begun anew that the emulator made panic.
const RETRIES: u32 = 1;

/// How the demo is to be.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Kernel line: 6.12 or newest.
    #[arg(long, value_name = "LINE", default_value = "6.12")]
    kernel: Line,
    /// Seconds of load with Thermocline.
    #[arg(long, value_name = "N", default_value_t = 240, value_parser = clap::value_parser!(u64).range(WINDOW_S..=3600))]
    seconds: u64,
    /// Seconds of load before that.
    #[arg(long, value_name = "N", default_value_t = 30, value_parser = clap::value_parser!(u64).range(BEFORE_WINDOW_S..=3600))]
    before: u64,
    /// Keys in Redis.
    #[arg(long, value_name = "N", default_value_t = 300_000, value_parser = clap::value_parser!(u32).range(1..))]
    keys: u32,
    /// Bytes of each value.
    #[arg(long, value_name = "BYTES", default_value_t = 1024)]
    value_bytes: u32,
    /// Exponent of the keys' popularity.
    #[arg(long, default_value_t = 0.99)]
    zipf: f64,
    /// The daemon.
    #[arg(long, value_name = "PROGRAM", default_value = "target/release/thermocline")]
    thermocline: PathBuf,
    /// Where summary and picture go.
    #[arg(long, value_name = "FOLDER", default_value = "target/demo")]
    out: PathBuf,
}

/// The part that runs in the guest.
#[derive(Debug, Args)]
pub(crate) struct Inside {
    /// The shared folder.
    folder: PathBuf,
    /// The daemon.
    thermocline: PathBuf,
}

/// Runs in the guest.
pub(crate) fn inside(inside: &Inside) -> anyhow::Result<u8> {
    inside::run(&inside.folder, &inside.thermocline)?;
    Ok(0)
}

/// Runs the demo and judges it; the exit status.
pub(crate) fn run(options: &Options, interrupt: Arc<AtomicBool>) -> anyhow::Result<u8> {
    let daemon = fs::canonicalize(&options.thermocline).with_context(|| {
        format!("no {}: run `cargo build --release -p thermocline`", options.thermocline.display())
    })?;
    let plan = Plan {
        keys: options.keys,
        value_bytes: options.value_bytes as usize,
        zipf: options.zipf,
        before_s: options.before,
        with_s: options.seconds,
        before_window_s: BEFORE_WINDOW_S,
        window_s: WINDOW_S,
    };
    let folder = tempfile::Builder::new()
        .prefix("demo-")
        .tempdir_in("/tmp")
        .context("cannot create a folder in /tmp")?;
    write_json(&folder.path().join(record::PLAN), &plan)?;

    let mut tries = 0;
    let status = loop {
        match guest(options, folder.path(), &daemon, &interrupt) {
            Err(error) if tries < RETRIES && crate::emulator_failed(&error) => {
                tries += 1;
                println!("QEMU made the guest's kernel panic, a known race of QEMU 7.2: once more");
            }
            outcome => break outcome?.status,
        }
    };
    ensure!(status == 0, "the demo failed in the guest with status {status}; its message is above");

    let recording: Recording = read_json(&folder.path().join(RECORDING))?;
    let dump = read_dump(&folder.path().join(PAGES))?;
    let verdict = Verdict::of(&recording, &dump);
    print!("\n{}", verdict.text());
    leave(&options.out, &recording, &verdict)?;
    Ok(u8::from(!verdict.holds()))
}

fn guest(
    options: &Options,
    folder: &Path,
    daemon: &Path,
    interrupt: &Arc<AtomicBool>,
) -> anyhow::Result<Outcome> {
    let program = std::env::current_exe().context("cannot find this program")?;
    let machine = Machine::of_sizes(&MEMORY_MIB.map(|mib| mib << 20));
    println!(
        "booting Debian's kernel {} with {} MiB of DRAM and {} MiB of CXL",
        options.kernel, MEMORY_MIB[0], MEMORY_MIB[1]
    );
    let guest = Guest::builder()
        .kernel(options.kernel)
        .machine(machine.clone())
        .thp(ThpMode::Never)
        .share(folder)
        .timeout(Some(AROUND + Duration::from_secs(options.before + options.seconds)))
        .output(Output::Inherit)
        .interrupt(Arc::clone(interrupt));
    let guest = attach(guest, &machine, folder, &[CACHE])?;
    let words =
        [program.as_path(), Path::new("demo-inside"), folder, daemon].map(|word| word.display().to_string());
    Ok(guest.exec(&words)?)
}

/// What is written to summary.json.
#[derive(Serialize)]
struct Summary<'a> {
    verdict: &'a Verdict,
    holds: bool,
    recording: &'a Recording,
}

fn leave(out: &Path, recording: &Recording, verdict: &Verdict) -> anyhow::Result<()> {
    fs::create_dir_all(out).with_context(|| format!("cannot make {}", out.display()))?;
    let [summary, svg, png] = ["summary.json", "demo.svg", "demo.png"].map(|name| out.join(name));
    write_json(&summary, &Summary { verdict, holds: verdict.holds(), recording })?;
    picture::draw(&svg, recording, verdict)?;
    let converted = Command::new("rsvg-convert").arg("-z").arg("2").arg("-o").arg(&png).arg(&svg).status();
    println!("\n{}\n{}", summary.display(), svg.display());
    match converted {
        Ok(status) if status.success() => println!("{}", png.display()),
        Ok(status) => println!("no PNG: rsvg-convert ended with {status}"),
        Err(error) => println!("no PNG: cannot run rsvg-convert ({error}); install librsvg2-bin"),
    }
    Ok(())
}
