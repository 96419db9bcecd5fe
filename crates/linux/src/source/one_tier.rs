//! Watching a machine whose memory is all in one tier: the kernel marks no page there in tiering
//! mode, so that there are no hint faults, and DAMON watches instead.

use thermocline_core::config::{Config, DamonAddresses, Enabled, Kernel, ManagerName};
use thermocline_core::topology::Topology;

use super::ROWS;

/// Time over which accesses of a region are counted: each aggregation reports every region, and a
/// recording of hours has to fit on a disk. Ours.
const AGGREGATION_MS: u64 = 1000;
/// Times between two checks: 5 ms to 1.28 s, which tell rates from 600 accesses a second down to
/// one in a minute. Ours.
const SAMPLE_LENGTHS: u64 = 5;

/// Whether this only watches, by a source that sees all memory.
pub fn is_watched(config: &Config) -> bool {
    let is_on = |row: &super::Row| config.source.keys(row.source).enabled() == Enabled::Yes;
    config.manager.name == ManagerName::Observe && ROWS.iter().any(|row| row.sees_top_tier && is_on(row))
}

/// Has DAMON watch the addresses of processes, if this only watches, there is one tier, and no
/// other source is switched on that sees it.
pub fn watch(config: &mut Config, topology: &Topology) {
    if config.manager.name != ManagerName::Observe || topology.tiers_with_memory() > 1 || is_watched(config) {
        return;
    }
    config.source.hintfault.enabled = false;
    let damon = &mut config.source.damon;
    damon.enabled = true;
    damon.addresses = DamonAddresses::Virtual;
    damon.aggregation_ms = damon.aggregation_ms.max(AGGREGATION_MS);
    if damon.sample_lengths == 1 && damon.access_goal_bp.is_none() {
        damon.sample_lengths = SAMPLE_LENGTHS;
        // Linux merges what is equal into regions of a part of the memory in `regions_min`: a check
        // of a page of a large region says little.
        damon.regions_min = damon.regions_min.max(damon.regions_max / 2);
    }
    config.kernel = Kernel::untouched();
}

#[cfg(test)]
mod tests {
    use thermocline_core::topology::Node;
    use thermocline_core::units::{NodeId, TierId};

    use super::*;

    fn machine(tiers: &[u8]) -> Topology {
        let node = |(id, tier): (usize, &u8)| Node {
            id: NodeId(id as u16),
            tier: TierId(*tier),
            cpus: vec![0],
            capacity_pages: 1 << 18,
            read_latency_ns: None,
            read_bandwidth_mbps: None,
            distances: vec![10; tiers.len()],
        };
        Topology::new(tiers.iter().enumerate().map(node).collect()).unwrap()
    }

    #[test]
    fn damon_watches_what_hint_faults_cannot_see() {
        let observe = |change: fn(&mut Config), tiers: &[u8]| {
            let mut config = Config::default();
            config.manager.name = ManagerName::Observe;
            change(&mut config);
            let before = config.clone();
            watch(&mut config, &machine(tiers));
            config.check().unwrap();
            (is_watched(&config), config == before)
        };
        assert_eq!(observe(|_| {}, &[0]), (true, false));
        assert_eq!(observe(|_| {}, &[0, 0]), (true, false), "a machine of two sockets");
        assert_eq!(observe(|_| {}, &[0, 1]), (false, true), "there are hint faults");
        assert_eq!(observe(|c| c.source.damon.enabled = true, &[0]), (true, true), "as configured");
        assert_eq!(observe(|c| c.source.hwsample.enabled = Enabled::Yes, &[0]), (true, true));
        let moves = observe(|c| c.manager.name = ManagerName::Thermocline, &[0]);
        assert_eq!(moves, (false, true), "nothing can be moved");
    }
}
