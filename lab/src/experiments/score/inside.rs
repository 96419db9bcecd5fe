//! The part of a score that runs in the guest.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Instant;

use anyhow::{Context, anyhow, ensure};
use thermocline_core::config::TierMap;
use thermocline_core::units::{NodeId, PAGE_SIZE, PAGES_PER_MIB};
use thermocline_lab::programs::pattern::Outcome;
use thermocline_lab::programs::residency::program_ranges;
use thermocline_lab::programs::{read_json, write_json};
use thermocline_lab::truth::{GUEST_PORT, Plugin};
use thermocline_linux::actuator::Commands;
use thermocline_linux::actuator::door::Live;
use thermocline_linux::root::Root;
use thermocline_linux::topology::discover;
use thermocline_linux::{kswapd, zoneinfo};

use super::felt::Latencies;
use super::flips::Watch;
use super::neighbour::{Ballast, Lay, Neighbour};
use super::plan::{DUMP, Moved, Narrowing, Plan, RECORDING, Recording};
use super::program::{Program, Whose};
use super::running::{
    Running, counters, demotion, kthread_cpu_s, nobody_moves, promoted_and_demoted, settings, since,
};
use crate::experiments::runner::PLAN;
use crate::experiments::within::{PROC, cgroup, free_dram, slow_node};

/// Pages of the pattern against which the plugin is checked: eight times the modelled cache.
const PATTERN_PAGES: u32 = 512;
/// How often the pattern is swept if pages move meanwhile.
const PATTERN_TRIES: u32 = 3;
/// Base pages of a huge page.
const PAGES_PER_HUGE: u64 = 512;

/// Carries out the plan in `folder` and writes the recording beside it. It prints its progress.
pub(crate) fn run(folder: &Path, daemon: &Path) -> anyhow::Result<()> {
    let plan: Plan = read_json(&folder.join(PLAN))?;
    let began = Instant::now();
    let say = |what: &str| eprintln!("{:>5.0} s  {what}", began.elapsed().as_secs_f64());
    nobody_moves()?;
    let slow = slow_node()?;
    // Cached files from the boot would take DRAM from the program.
    fs::write("/proc/sys/vm/drop_caches", "3").context("cannot drop the page cache")?;
    let mut plugin = Plugin::connect(Path::new(GUEST_PORT))?;
    let latencies = match plan.felt {
        Some(asked) => {
            say("calibrating the latency that the guest feels");
            Some(Latencies::calibrate(&mut plugin, asked, slow)?)
        }
        None => None,
    };
    let neighbour = narrow(&plan, slow)?;
    if let Some(neighbour) = &neighbour {
        say(&format!("another program fills DRAM: {} pages", neighbour.pages()?.values().sum::<u64>()));
    }
    say(&format!("filling {}'s memory ({})", plan.workload.name(), plan.start.name()));
    let mut program = Program::start(&plan, folder)?;
    let pid = program.pid();
    let range = program.range()?;

    revive_kswapd()?;
    let (pages_before, room_pages) = (program.pages()?, room(slow)?);
    let neighbour_before = neighbour.as_ref().map(Neighbour::pages).transpose()?;
    let counters_before = counters()?;
    let kswapd_before = kthread_cpu_s("kswapd");
    let watch = Watch::start(pid, &range, slow)?;
    say(&format!("{} starts; {} {} to warm up", plan.manager, plan.warmup_ops, plan.workload.ops()));
    if let Some(latencies) = &latencies {
        latencies.apply(&mut plugin)?;
    }
    // Only counted accesses can be tagged or reach a hot list.
    if plan.shares_memory() {
        plugin.start()?;
    }
    if plan.sample_every.is_some() {
        plugin.sample(plan.sample_every)?;
    }
    let started = Instant::now();
    let whose = match (plan.share_mib, &neighbour) {
        (Some(mib), _) => Whose::Share { cgroup: cgroup(pid)?, mib },
        // To demote the memory of others, a manager needs the whole machine.
        (None, Some(_)) => Whose::Machine,
        (None, None) => program.whose()?,
    };
    let manager = Running::start(&plan.manager, &whose, daemon, folder)?;
    program.run(plan.warmup_ops, 0)?;
    let warmup_s = started.elapsed().as_secs_f64();

    say(&format!("measuring {} {}", plan.ops, plan.workload.ops()));
    let settings = settings();
    plugin.filter(Some((range.start, range.end)))?;
    plugin.program(&program_ranges(Path::new(PROC), pid)?)?;
    plugin.model(Some(&plan.model))?;
    plugin.start()?;
    program.settle()?;
    plugin.reset()?;
    let accesses = || neighbour.as_ref().and_then(Neighbour::accesses);
    let (window, accesses_before) = (Instant::now(), accesses());
    let ops = program.run(plan.ops, 1)?;
    let counts = plugin.counts()?;
    let window_s = window.elapsed().as_secs_f64();
    let hog_accesses = accesses().zip(accesses_before).map(|(after, before)| after - before);
    plugin.stop()?;
    if plan.sample_every.is_some() {
        plugin.sample(None)?;
    }
    plugin.dump_pages(DUMP)?;

    let mut counters = since(counters()?, &counters_before);
    let (promoted, demoted) = promoted_and_demoted(&counters);
    counters.insert("kswapd_gave_up".to_owned(), gave_up(slow)?);
    let kswapd_cpu_s = kthread_cpu_s("kswapd") - kswapd_before;
    // Kdamonds of others ended when ours were created.
    let kdamonds_cpu_s = if plan.manager.has_kdamonds() { kthread_cpu_s("kdamond") } else { 0.0 };
    let ping_pong = watch.end()?;
    let pages_after = program.pages()?;
    let neighbour_after = neighbour.as_ref().map(Neighbour::pages).transpose()?;
    let ended = manager.end()?;
    let felt = match latencies {
        Some(latencies) => {
            nobody_moves()?;
            say("the same with all misses as quick as DRAM's");
            Some(latencies.reference(&mut plugin, &mut program, plan.ops)?)
        }
        None => None,
    };
    program.end()?;
    neighbour.map(Neighbour::end).transpose()?;
    say("holding the plugin to a known pattern");
    plugin.program(&[])?;
    plugin.model(None)?;
    drop(plugin);
    let pattern_error = pattern_error(slow)?;

    let recording = Recording {
        kernel: fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default().trim().to_owned(),
        slow,
        range: (range.start, range.end),
        settings,
        counters,
        pages_before,
        pages_after,
        neighbour: neighbour_before.zip(neighbour_after).map(|(before, after)| Lay { before, after }),
        hog_accesses,
        room_pages,
        counts,
        ops,
        warmup_s,
        window_s,
        promoted: Moved { kernel: promoted, thermocline: ended.promoted, damon: ended.damon_promoted },
        demoted: Moved {
            kernel: demoted.saturating_sub(ended.commanded),
            thermocline: ended.demoted + ended.commanded,
            damon: ended.damon_demoted,
        },
        ping_pong,
        daemon_cpu_s: ended.cpu_s + kdamonds_cpu_s,
        bpf_cpu_s: ended.bpf_s,
        kswapd_cpu_s,
        pattern_error,
        felt,
    };
    write_json(&folder.join(RECORDING), &recording)?;
    say("done");
    Ok(())
}

/// Reserves DRAM until the program's share is left.
fn narrow(plan: &Plan, slow: NodeId) -> anyhow::Result<Option<Neighbour>> {
    let share_bytes = (plan.footprint_bytes() as f64 * plan.fast_share) as u64;
    let wanted = (share_bytes + plan.beside_bytes()) / PAGE_SIZE;
    fs::write("/proc/sys/vm/compact_memory", "1").context("cannot compact memory")?;
    let excess = room(slow)?.saturating_sub(wanted);
    match plan.narrowing {
        Narrowing::None => Ok(None),
        Narrowing::Ballast => {
            Ballast::start(excess / PAGES_PER_MIB, slow).map(|ballast| Some(Neighbour::Ballast(ballast)))
        }
        Narrowing::Hog(hog) => Neighbour::hog(hog, excess / PAGES_PER_MIB).map(Some),
        Narrowing::Reserve => reserve(excess / PAGES_PER_HUGE, slow).map(|()| None),
    }
}

/// Reserves this many huge pages of DRAM.
fn reserve(huge_pages: u64, slow: NodeId) -> anyhow::Result<()> {
    for node in 0..slow.0 {
        let path = format!("/sys/devices/system/node/node{node}/hugepages/hugepages-2048kB/nr_hugepages");
        let share = huge_pages / u64::from(slow.0);
        fs::write(&path, share.to_string()).with_context(|| format!("cannot write {share} to {path}"))?;
    }
    Ok(())
}

/// Revives kswapd where it has given up. While the program filled DRAM, kswapd could not free
/// anything and gave up, so no manager could demote through it. That does not happen if demotion is
/// on from boot.
fn revive_kswapd() -> anyhow::Result<()> {
    let root = Root::default();
    let topology = discover(&root, &TierMap::default())?.topology;
    demotion(true)?;
    let revived = kswapd::bring_back(&root, &topology, Commands::with_door(&root, Box::new(Live)));
    demotion(false)?;
    revived.map_err(|why| anyhow!("kswapd has given up on DRAM: {why}; run it again"))
}

/// DRAM nodes on which kswapd has given up.
fn gave_up(slow: NodeId) -> anyhow::Result<u64> {
    let nodes = zoneinfo::given_up(&zoneinfo::parse(&zoneinfo()?));
    Ok(nodes.into_iter().filter(|node| *node != slow).count() as u64)
}

fn zoneinfo() -> anyhow::Result<String> {
    let path = "/proc/zoneinfo";
    fs::read_to_string(path).with_context(|| format!("cannot read {path}"))
}

/// Free base pages above the high watermark, of all DRAM nodes.
fn room(slow: NodeId) -> anyhow::Result<u64> {
    let text = zoneinfo()?;
    let free = free_dram(slow)?;
    Ok(free.into_iter().map(|(node, free)| free.saturating_sub(high_pages(&text, node))).sum())
}

/// The sum of the high watermarks of a node's zones.
fn high_pages(zoneinfo: &str, node: NodeId) -> u64 {
    let (mut here, mut sum) = (false, 0);
    for line in zoneinfo.lines() {
        if let Some(rest) = line.strip_prefix("Node ") {
            here = rest.split(',').next() == Some(&node.0.to_string());
        } else if let Some(high) = line.trim_start().strip_prefix("high ").filter(|_| here) {
            sum += high.trim().parse::<u64>().unwrap_or(0);
        }
    }
    sum
}

/// Runs a sweep of a block on every node while the plugin counts; returns the greatest error.
fn pattern_error(slow: NodeId) -> anyhow::Result<f64> {
    nobody_moves()?;
    let hotcold = std::env::current_exe().context("cannot find this program")?.with_file_name("hotcold");
    let mut worst = 0.0f64;
    for node in 0..=slow.0 {
        let mut pattern = Command::new("on-node");
        pattern
            .arg(node.to_string())
            // A processor treats recently used lines as cached, even if another has swept many
            // since.
            .args(["taskset", "-c", "0"])
            .arg(&hotcold)
            .args(["pattern", "--plugin", GUEST_PORT, "--dump", "pattern"])
            .args(["--pages", &PATTERN_PAGES.to_string(), "--loads", "2", "--stores", "1"]);
        let mut run = || pattern.output().with_context(|| format!("cannot run {}", hotcold.display()));
        let mut output = run()?;
        // Without a result it was disturbed: pages marked or isolated before still move for a
        // moment.
        for _ in 1..PATTERN_TRIES {
            if !output.stdout.is_empty() {
                break;
            }
            output = run()?;
        }
        let outcome: Outcome = serde_json::from_slice(&output.stdout)
            .with_context(|| format!("the pattern failed: {}", String::from_utf8_lossy(&output.stderr)))?;
        ensure!(
            output.status.success(),
            "the plugin's counts on node {node} are off by {:.1} %: nothing that it said can be trusted",
            100.0 * outcome.error
        );
        worst = worst.max(outcome.error);
    }
    Ok(worst)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn watermarks_of_a_node() {
        let text = "Node 0, zone      DMA\n  pages free     2823\n        boost    0\n        min      136\n        low      170\n        high     204\n\
                    Node 0, zone    DMA32\n        high     1000\n      high: 18\nNode 1, zone   Normal\n        high     7\n";
        assert_eq!(high_pages(text, NodeId(0)), 1204);
        assert_eq!(high_pages(text, NodeId(1)), 7);
        assert_eq!(high_pages(text, NodeId(2)), 0);
    }
}
