//! `lab demo`: a real Redis whose memory starts on the slow tier, first without and then with
//! Thermocline.

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
use thermocline_lab::programs::write_json;
use thermocline_lab::truth::read_dump;
use thermocline_lab::{Line, Machine};

use record::{PAGES, Plan, RECORDING, Recording};
use verdict::Verdict;

use super::runner::{Inside, Run};

/// DRAM and CXL. 256 MiB is the least that boots; the part that the system leaves free is about
/// half of Redis.
const MEMORY_MIB: [u64; 2] = [256, 768];
/// Time limit of booting, loading and verifying on a busy host.
const AROUND: Duration = Duration::from_secs(200);
/// Seconds over which misses are judged at the end of the part before.
const BEFORE_WINDOW_S: u64 = 20;
/// The same at the end. The best static placement knows the counts beforehand: over a short time it
/// would profit from chance.
const WINDOW_S: u64 = 60;

/// How the demo is to be.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Kernel line: 6.1, 6.12, 6.18 or newest.
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

/// Runs in the guest.
pub(crate) fn inside(inside: &Inside) -> anyhow::Result<u8> {
    inside::run(&inside.folder, &inside.thermocline)?;
    Ok(0)
}

/// Runs the demo and judges it; the exit status.
pub(crate) fn run(options: &Options, interrupt: &Arc<AtomicBool>) -> anyhow::Result<u8> {
    ensure!(options.thermocline.exists(), "no {}: run `make lab-programs`", options.thermocline.display());
    let plan = Plan {
        keys: options.keys,
        value_bytes: options.value_bytes as usize,
        zipf: options.zipf,
        before_s: options.before,
        with_s: options.seconds,
        before_window_s: BEFORE_WINDOW_S,
        window_s: WINDOW_S,
    };
    let machine = Machine::of_sizes(&MEMORY_MIB.map(|mib| mib << 20));
    println!(
        "booting Debian's kernel {} with {} MiB of DRAM and {} MiB of CXL",
        options.kernel, MEMORY_MIB[0], MEMORY_MIB[1]
    );
    let run = Run {
        experiment: "demo",
        who: "the demo".to_owned(),
        kernel: options.kernel,
        machine: &machine,
        timeout: AROUND + Duration::from_secs(options.before + options.seconds),
        daemon: &options.thermocline,
        disk: None,
        samples: false,
        interrupt,
    };
    let left = run.start(&plan)?;
    let recording: Recording = left.read(RECORDING)?;
    let dump = read_dump(&left.path(PAGES))?;
    let verdict = Verdict::of(&recording, &dump);
    print!("\n{}", verdict.text());
    leave(&options.out, &recording, &verdict)?;
    Ok(u8::from(!verdict.holds()))
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
