//! Other movers of pages.

use thermocline_core::config::{DemotionWay, Enabled, ManagerName, Source};

use crate::finding::others::DAMON_STAT;
use crate::finding::{Facts, Finding, Ground, Kind, Program, View};

/// The kernel moves pages towards the CPU that uses them (mode bit 0).
pub(super) fn numa_balancing(view: &View<'_>, facts: &Facts) -> Vec<Finding> {
    // Where there is one tier and nothing is moved, it is none of ours.
    let one_tier = view.found.is_some_and(|found| found.topology.tiers_with_memory() < 2);
    if one_tier && view.config.manager.name == ManagerName::Observe {
        return Vec::new();
    }
    let (now, mode) = (facts.numa_balancing.unwrap_or(0), view.mode());
    let moves = "moves pages towards the CPU that uses them, beside thermocline";
    let ours = "set kernel.numa_balancing = 2 in the configuration, which is its default";
    if now & 1 != 0 && mode.is_none_or(|mode| mode == now) {
        let cause =
            format!("kernel.numa_balancing is {now} and the configuration leaves it so: the kernel {moves}");
        return vec![Finding::new(Kind::OthersNumaBalancing, cause).fix(Ground::OURS, ours)];
    }
    if let Some(mode) = mode.filter(|mode| mode & 1 != 0) {
        let cause = format!(
            "the configuration sets kernel.numa_balancing to {mode}: the kernel will move pages towards the CPU that uses them, beside \
             thermocline"
        );
        return vec![Finding::new(Kind::OthersNumaBalancing, cause).fix(Ground::OURS, ours)];
    }
    // Before a run another mode may be set: the run will change it.
    let Some(mode) = mode.filter(|_| view.running.is_some() && now & 1 != 0) else { return Vec::new() };
    let cause = format!("kernel.numa_balancing has become {now}, from {mode}: the kernel {moves}");
    vec![Finding::new(Kind::OthersNumaBalancing, cause).run(
        Ground::seen(true),
        "set it back, and find out who changed it",
        format!("sysctl kernel.numa_balancing={mode}"),
    )]
}

/// Modules and kdamonds that move pages; those that thermocline has created are expected.
pub(super) fn damon(_: &View<'_>, facts: &Facts) -> Vec<Finding> {
    let others = &facts.others;
    let module = |name: &str, what: &str| {
        let finding = Finding::new(Kind::OthersDamon, format!("{name} runs: it {what}"));
        finding.about(name).run(
            Ground::seen(true),
            "switch it off while thermocline runs",
            format!("echo N > /sys/module/{name}/parameters/enabled"),
        )
    };
    let modules = others.modules.iter().filter(|m| m.moves).map(|m| module(m.name, m.what));
    let theirs = others.kdamonds.iter().filter(|kdamond| kdamond.moves() && !others.our_kdamonds);
    let kdamonds = theirs.map(|kdamond| {
        let name = format!("kdamond {}", kdamond.number);
        let cause = format!("DAMON acts on memory in {name} ({})", kdamond.detail());
        Finding::new(Kind::OthersDamon, cause).about(name).run(
            Ground::seen(true),
            "switch it off while thermocline runs, if it is not meant to help",
            format!("echo off > /sys/kernel/mm/damon/admin/kdamonds/{}/state", kdamond.number),
        )
    });
    modules.chain(kdamonds).collect()
}

/// DAMON_STAT shares DAMON with nobody (Linux mm/damon/stat.c, damon_start with `exclusive`).
pub(super) fn damon_stat(view: &View<'_>, facts: &Facts) -> Vec<Finding> {
    let config = view.config;
    let source = config.source.keys(Source::Damon).enabled() != Enabled::No;
    let wanted = [
        (source, config.source.damon.stop_damon_stat, "source.damon"),
        (config.manager.name == ManagerName::Damon, config.manager.damon.stop_damon_stat, "manager.damon"),
        (config.demotion.way == DemotionWay::Regions, config.demotion.stop_damon_stat, "demotion"),
    ];
    let blocked = wanted.into_iter().find(|(wanted, allowed, _)| *wanted && !allowed);
    let runs = facts.others.modules.iter().any(|module| module.name == DAMON_STAT);
    let Some((_, _, section)) = blocked.filter(|_| runs) else { return Vec::new() };
    let cause =
        format!("damon_stat runs and shares DAMON with nobody, and [{section}] is configured to use DAMON");
    vec![
        Finding::new(Kind::OthersDamonStat, cause)
            .fix(
                Ground::OURS,
                format!("set {section}.stop_damon_stat = true, to have it stopped and started again"),
            )
            .run(Ground::seen(true), "or stop it", "echo N > /sys/module/damon_stat/parameters/enabled"),
    ]
}

/// Programs known to move pages.
pub(super) fn programs(_: &View<'_>, facts: &Facts) -> Vec<Finding> {
    let finding = |program: &Program| {
        let (name, pid) = (program.name, program.pid.0);
        let cause =
            format!("{name} (pid {pid}) runs: it {}; two managers fight over the same pages", program.what);
        Finding::new(Kind::OthersDaemon, cause).about(name).run(
            Ground::seen(!program.kernel_thread),
            "stop it while thermocline runs",
            format!("kill {pid}"),
        )
    };
    facts.others.programs.iter().map(finding).collect()
}
