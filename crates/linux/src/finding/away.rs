//! Programs most of whose memory is on one DRAM node while most of their threads run on another.

use super::{Finding, Ground, Kind};
use crate::away::Away;

/// Programs that a finding names.
const NAMED: usize = 5;

/// A finding that names them, the largest first, and what each could do.
pub(crate) fn finding(away: &[Away]) -> Option<Finding> {
    if away.is_empty() {
        return None;
    }
    let mut largest: Vec<&Away> = away.iter().collect();
    largest.sort_by_key(|a| std::cmp::Reverse((a.kib, a.pid)));
    let mut names: Vec<String> =
        largest.iter().take(NAMED).map(|a| format!("{} (pid {}): {}", a.comm, a.pid.0, a.what())).collect();
    if away.len() > NAMED {
        names.push(format!("{} more", away.len() - NAMED));
    }
    let cause = format!(
        "threads run on another DRAM node than their memory is on, and wait longer for it: {}",
        names.join("; ")
    );
    let finding = Finding::new(Kind::ProgramsAway, cause);
    Some(largest.iter().take(NAMED).fold(finding, |finding, a| {
        finding.fix(Ground::OURS, format!("let {} follow its memory: {}", a.comm, a.remedy()))
    }))
}

#[cfg(test)]
mod tests {
    use thermocline_core::units::{NodeId, Pid};

    use super::*;

    #[test]
    fn the_largest_are_named_each_with_its_remedy() {
        let away = |pid: u32| Away {
            pid: Pid(pid),
            comm: format!("p{pid}"),
            memory_node: NodeId(1),
            kib: u64::from(pid) << 20,
            of_kib: u64::from(pid) << 20,
            threads: vec![pid],
            thread_nodes: vec![NodeId(0)],
            of_threads: 1,
            cpus: "64-127".to_owned(),
        };
        assert!(finding(&[]).is_none());
        let finding = finding(&(1..=7).map(away).collect::<Vec<_>>()).unwrap();
        assert_eq!(finding.id, Kind::ProgramsAway);
        let what =
            "p7 (pid 7): 7168.0 of 7168.0 MiB are on node 1, and 1 of 1 threads ran on node 0 last; p6";
        assert!(finding.cause.contains(what) && finding.cause.ends_with("2 more"), "{}", finding.cause);
        let remedies: Vec<String> = finding.remedies.iter().map(|remedy| remedy.what.clone()).collect();
        assert_eq!(remedies.len(), NAMED);
        assert!(remedies[0].contains("numactl --cpunodebind=1"), "{}", remedies[0]);
    }
}
