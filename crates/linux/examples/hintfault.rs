//! Prints what the hint-fault source sees: `hintfault [--seconds N] [--ring-kib N] [--poll-ms N]`.

use std::time::{Duration, Instant};

use thermocline_linux::source::hintfault::{Event, HintFaultSource, Options, Scope};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let (mut seconds, mut ring_kib, mut poll_ms) = (10u64, 4096u32, 20u64);
    let mut args = std::env::args().skip(1);
    while let Some(flag) = args.next() {
        let value = args.next().ok_or("a flag needs a value")?;
        match flag.as_str() {
            "--seconds" => seconds = value.parse()?,
            "--ring-kib" => ring_kib = value.parse()?,
            "--poll-ms" => poll_ms = value.parse()?,
            _ => return Err(format!("unknown flag {flag}").into()),
        }
    }
    let options = Options {
        ring_bytes: ring_kib << 10,
        cpu_nodes: Vec::new(),
        kernel_stamp: false,
        measure_run_time: true,
    };
    let before = hint_faults()?;
    let mut source = HintFaultSource::open(options, &Scope::whole_machine())?;
    let attached = hint_faults()?;
    println!("attached; {} hint faults meanwhile", attached - before);
    let end = Instant::now() + Duration::from_secs(seconds);
    let mut line = Instant::now();
    while Instant::now() < end {
        source.wait(Duration::from_millis(poll_ms))?;
        let mut exits = 0;
        source.poll(1 << 20, |event| {
            if let Event::Exit(_) = event {
                exits += 1;
            }
        });
        if line.elapsed() >= Duration::from_secs(1) {
            line = Instant::now();
            println!("exits {exits} {:?}", source.stats()?);
        }
    }
    println!("vmstat {} {:?}", hint_faults()? - attached, source.stats()?);
    for (name, figures) in source.run_times()? {
        println!("{name}: {figures:?}");
    }
    Ok(())
}

/// numa_hint_faults of /proc/vmstat.
fn hint_faults() -> Result<u64, Box<dyn std::error::Error>> {
    let text = std::fs::read_to_string("/proc/vmstat")?;
    let value = text.lines().find_map(|l| l.strip_prefix("numa_hint_faults "));
    Ok(value.ok_or("no numa_hint_faults in /proc/vmstat")?.trim().parse()?)
}
