//! Moves between tiers, by mover. The kernel's own moves are known from its counters; DAMON's moves
//! are in none of them.

use serde::{Deserialize, Serialize};

use crate::vmstat::Vmstat;

/// Base pages that the kernel has moved between tiers since some moment, by the part that moved
/// them. Names are those of vmstat.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct KernelMoves {
    /// Promoted after hint faults.
    pub pgpromote_success: u64,
    /// Demoted by kswapd, ahead of need.
    pub pgdemote_kswapd: u64,
    /// Demoted by programs that had to wait for it: the cost of late demotion. Excludes demotion at
    /// our command.
    pub pgdemote_direct: u64,
    /// Demoted for huge pages.
    pub pgdemote_khugepaged: u64,
    /// Demoted at the command of others.
    pub pgdemote_proactive: u64,
    /// Times that a program had to reclaim before it got memory.
    pub allocstall: u64,
}

impl KernelMoves {
    /// The moves between `earlier` and `now`. `at_our_command` base pages were demoted because we
    /// asked; kernels that do not count commands separately count them as direct reclaim.
    pub fn since(now: &Vmstat, earlier: &Vmstat, at_our_command: u64) -> KernelMoves {
        let grown = |name: &str| now.since(earlier, name).unwrap_or(0);
        let stalls =
            ["dma", "dma32", "normal", "movable", "device"].map(|zone| grown(&format!("allocstall_{zone}")));
        let (direct, proactive) = (grown("pgdemote_direct"), grown("pgdemote_proactive"));
        let from_proactive = proactive.min(at_our_command);
        KernelMoves {
            pgpromote_success: grown("pgpromote_success"),
            pgdemote_kswapd: grown("pgdemote_kswapd"),
            pgdemote_direct: direct.saturating_sub(at_our_command - from_proactive),
            pgdemote_khugepaged: grown("pgdemote_khugepaged"),
            pgdemote_proactive: proactive - from_proactive,
            allocstall: stalls.iter().sum(),
        }
    }

    /// Base pages demoted, by any part.
    pub fn demoted(&self) -> u64 {
        self.pgdemote_kswapd + self.pgdemote_direct + self.pgdemote_khugepaged + self.pgdemote_proactive
    }
}

/// Base pages moved in one direction, by what moved them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct MovedBy {
    /// Our engine, and the kernel at its command.
    pub thermocline: u64,
    /// The kernel on its own: hint faults, reclaim.
    pub kernel: u64,
    /// DAMON's schemes, if we have set them up.
    pub damon: u64,
}

/// Base pages moved between tiers since the start, by what moved them. Reported alike under every
/// manager, so that managers can be compared.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Moved {
    /// To a faster tier.
    pub promoted: MovedBy,
    /// To a slower one.
    pub demoted: MovedBy,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_asked_for_is_ours_under_either_name() {
        let start = Vmstat::parse(
            "pgdemote_direct 10\npgdemote_proactive 5\nallocstall_normal 1\nallocstall_movable 0\n",
        );
        let newer = Vmstat::parse(
            "pgdemote_direct 12\npgdemote_proactive 105\nallocstall_normal 3\nallocstall_movable 4\n",
        );
        let moves = KernelMoves::since(&newer, &start, 90);
        assert_eq!((moves.pgdemote_direct, moves.pgdemote_proactive, moves.allocstall), (2, 10, 6));
        let start = Vmstat::parse("pgdemote_direct 10\npgdemote_kswapd 0\n");
        let older = Vmstat::parse("pgdemote_direct 112\npgdemote_kswapd 7\n");
        let moves = KernelMoves::since(&older, &start, 100);
        assert_eq!((moves.pgdemote_direct, moves.pgdemote_kswapd, moves.demoted()), (2, 7, 9));
    }
}
