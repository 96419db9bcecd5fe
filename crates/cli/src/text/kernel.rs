//! What the kernel has moved, and where kswapd has given up.

use std::fmt::Write;

use thermocline_linux::damon::{DamonStats, SchemeStats};
use thermocline_linux::kernel_moves::KernelMoves;
use thermocline_linux::kswapd::KswapdStats;

/// Converts base pages to MiB.
pub fn mib(pages: u64) -> f64 {
    pages as f64 / 256.0
}

/// What the kernel has moved, and what that cost programs.
pub fn by_kernel(moves: &KernelMoves) -> String {
    format!(
        "moved by the kernel itself: {:.1} MiB promoted, {:.1} MiB demoted ahead of need, {:.1} MiB by programs that had to wait; \
         {} waits for reclaim\n",
        mib(moves.pgpromote_success),
        mib(moves.demoted() - moves.pgdemote_direct),
        mib(moves.pgdemote_direct),
        moves.allocstall
    )
}

/// What DAMON's schemes have moved, one line per scheme.
pub fn by_damon(damon: &DamonStats) -> String {
    let line = |s: &SchemeStats| {
        format!(
            "moved by DAMON: {} from node {} to node {}: {:.1} MiB of {:.1} MiB tried, at most {:.1} MiB of it elsewhere, held up by quota {} times\n",
            s.action.text(),
            s.from.0,
            s.to.0,
            mib(s.moved_pages),
            mib(s.tried_pages),
            mib(s.elsewhere_pages.min(s.moved_pages)),
            s.quota_exceeded
        )
    };
    damon.schemes.iter().map(line).collect()
}

/// Nodes on which kswapd has given up, and how often it was restarted. Empty if all is well.
pub fn kswapd(found: &KswapdStats) -> String {
    let mut out = String::new();
    let nodes: Vec<String> = found.given_up.iter().map(|node| node.0.to_string()).collect();
    if !nodes.is_empty() {
        let why = found.why.as_deref().unwrap_or("it is tried to bring it back");
        let _ = writeln!(out, "kswapd has given up on node {}: {why}", nodes.join(", "));
    }
    match found.brought_back {
        0 => {}
        times => {
            let _ = writeln!(
                out,
                "kswapd had given up on a node of the top tier, and was brought back {times} times"
            );
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use thermocline_core::units::NodeId;

    use super::*;

    #[test]
    fn it_is_told_where_kswapd_has_given_up() {
        assert_eq!(kswapd(&KswapdStats::default()), "");
        let found = KswapdStats {
            given_up: vec![NodeId(0), NodeId(1)],
            brought_back: 2,
            why: Some("demotion is off".to_owned()),
        };
        let told = "kswapd has given up on node 0, 1: demotion is off\nkswapd had given up on a node of the top tier, and was brought back 2 times\n";
        assert_eq!(kswapd(&found), told);
    }
}
