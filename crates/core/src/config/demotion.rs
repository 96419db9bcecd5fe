//! Section of demotion: how much of the top tier is kept free, and how cold a page must be to go
//! down for it.

use serde::{Deserialize, Serialize};

use crate::config::schema::Any;
use crate::section;

/// Why nothing is demoted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unreachable {
    /// The configuration says so.
    #[error("demotion.mode is \"off\"")]
    Off,
    /// The configuration lets nothing go to a slower tier.
    #[error("admission.demote is false")]
    Direction,
    /// The configuration keeps the kernel from demoting.
    #[error("kernel.demotion_enabled is false; unset it to have cold pages demoted")]
    KernelOff,
    /// A scope is none that the kernel knows.
    #[error(
        "scope[{0}] names processes, and the kernel's reclaim knows cgroups only; give the scope a cgroup alone \
         (systemd-run --scope starts a program in one of its own)"
    )]
    Processes(usize),
    /// A scope is to be left alone, which the kernel's own demotion does not know.
    #[error(
        "scope[{0}] is excluded, and the kernel may demote its memory too once demotion is enabled; set demotion.mode = \
         \"on\" to accept that"
    )]
    Excluded(usize),
    /// A scope is to keep some of the top tier, which the kernel's own demotion does not know.
    #[error(
        "scope[{0}] has a top_tier_floor_mib or is never_slow, and the kernel may demote what it is to keep once demotion is \
         enabled; set demotion.mode = \"on\" to accept that"
    )]
    Floor(usize),
}

/// Whether cold pages of the top tier go down.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DemotionMode {
    /// Where that touches nobody's memory but what the scopes name.
    Auto,
    /// Also where scopes are excluded: those the kernel may demote under memory pressure.
    On,
    /// No.
    Off,
}

/// How the kernel is asked for cold pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DemotionWay {
    /// By generations, or else by regions, or else by the node.
    Auto,
    /// By the generations of the multi-generational LRU, which know cgroups and idle times.
    Generations,
    /// By DAMON's regions, which know idle times.
    Regions,
    /// By the kernel's reclaim of a whole node, which knows neither.
    Node,
}

section! {
    /// `[demotion]`: cold pages of the top tier go down before anybody has to wait for room.
    Demotion {
        /// Demote: "auto" where that keeps to the scopes, "on" also beside excluded scopes, "off"
        /// never.
        mode: DemotionMode = DemotionMode::Auto, "", Any("\"auto\", \"on\" or \"off\""), "ours", restart;
        /// How the kernel is asked: by "generations" (MGLRU, debugfs), which keep to scopes and
        /// idle times, by "regions" (DAMON, Linux 6.11 and later), which keep to idle times, or by
        /// the "node" (Linux 6.18 and later), which takes whatever is coldest, whoever owns it;
        /// "auto" is the first of these that the kernel lets be used, the latter two only where no
        /// scope is named.
        way: DemotionWay = DemotionWay::Auto, "", Any("\"auto\", \"generations\", \"regions\" or \"node\""), "ours", restart;
        /// Have DAMON_STAT, a module of the kernel's that shares DAMON with nobody, stopped
        /// meanwhile where cold pages are asked for by regions.
        stop_damon_stat: bool = false, "", Any("true or false"), "ours", restart;
        /// Bring kswapd back where it has given up on a node of the top tier: by switching demotion
        /// off and on, or by reclaiming a little of the cgroup that the daemon is in (128 KiB at a
        /// time). The latter is not done where scopes are named and others are in that cgroup.
        revive_kswapd: bool = true, "", Any("true or false"), "ours", restart;
        /// Memory of each top-tier node that is kept free for promotions and allocations, above its
        /// high watermark and admission.free_goal_mib. At most 500: rule adaptive leaves a
        /// sixteenth of a node free where nothing stands out, and what it fills must not be what
        /// demotion frees.
        free_goal_bp: u32 = 200, "1/10000 of the node", 1..=500, "TPP (ASPLOS 2023): vm.demote_scale_factor = 200";
        /// Demotion goes on until so much more than the goal is free, so that it does not start
        /// anew for every page.
        hysteresis_bp: u32 = 50, "1/10000 of the node", 0..=500, "ours";
        /// Memory demoted per second, at most, all nodes together.
        rate_limit_mbps: u64 = 256, "MB/s", 1..=65536, "ours: as much as admission.rate_limit_mbps brings up";
        /// Memory demoted per second, at most, of scopes that hold more of the top tier than their
        /// cap, all of them together; 0: a cap stops promotions and what is above it stays. Half of
        /// rate_limit_mbps is the most that is used, so that the other half is left for everybody.
        scope_rate_mbps: u64 = 128, "MB/s", 0..=65536, "ours: half of demotion.rate_limit_mbps; a GiB takes eight seconds";
        /// CPU time that demotion takes, at most: after a demand, the next one waits until it is
        /// paid for. What scopes hold above their cap is paid for apart, with half as much.
        cpu_percent: u8 = 50, "% of one CPU", 1..=100, "ours, measured in the lab";
        /// A page goes down only when it has not been accessed for this long, if nobody waits to
        /// come up.
        idle_ms: u64 = 10_000, "ms", 100..=600_000, "ours, measured in simulation";
        /// Where hot pages wait to come up, what has not been accessed for four times as long as
        /// the hottest of them take from one access to the next goes down for them, at least this
        /// long.
        idle_min_ms: u64 = 100, "ms", 10..=600_000, "ours";
        /// When pages that were promoted are soon accessed on a lower tier again, the idle time
        /// doubles, up to this.
        idle_max_ms: u64 = 120_000, "ms", 100..=3_600_000, "ours";
        /// Promoted pages that came back so, of those demoted, above which the idle time doubles;
        /// below half of it, it is halved.
        again_percent: u8 = 25, "%", 1..=100, "ours";
    }
}
