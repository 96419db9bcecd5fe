//! Scopes (whose memory may move) and the tier map.

use crate::config::schema::Any;
use crate::section;

section! {
    /// `[[scope]]`: processes that are managed together. Without any scope the whole machine is managed.
    Scope {
        /// Name in reports.
        name: String = String::new(), "", Any("text, unique"), "ours";
        /// Process numbers.
        pids: Vec<u32> = Vec::new(), "", Any("a list of pids"), "ours";
        /// Regular expression that the command name or line must match.
        command: Option<String> = None, "regex", Any("a regular expression, or unset"), "ours";
        /// cgroup v2 path; the whole subtree belongs to the scope.
        cgroup: Option<String> = None, "path", Any("a path below the cgroup root, or unset"), "ours";
        /// Leave these processes alone instead of managing them.
        exclude: bool = false, "", Any("true or false"), "ours";
        /// Share of the rate limit that the scope may use while others wait.
        rate_share_percent: u8 = 100, "%", 1..=100, "ours";
    }
}

section! {
    /// `[tiers]`: which nodes belong together, fastest first; empty: as the kernel says. It overrides placement, not what the kernel scans.
    TierMap {
        /// Lists of nodes, fastest tier first, as in `[[0, 1], [2]]`.
        nodes: Vec<Vec<u16>> = Vec::new(), "nodes", Any("a list of lists of node numbers"), "the kernel's memory tiers";
    }
}
