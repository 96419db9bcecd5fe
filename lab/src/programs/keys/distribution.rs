//! Which keys are popular.

use std::ops::Range;

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

use super::Target;
use crate::programs::hot_set::shuffled;

/// Which keys are the most popular, with YCSB's names.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Distribution {
    /// Any keys: popular ones are scattered over the server's memory.
    #[default]
    Zipfian,
    /// The keys set last, in reverse order: popular keys lie together.
    Latest,
}

impl Distribution {
    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Distribution::Zipfian => "zipfian",
            Distribution::Latest => "latest",
        }
    }

    /// The keys from the most popular to the least.
    pub(super) fn ranked(self, target: &Target, seed: u64) -> Vec<u32> {
        match self {
            Distribution::Zipfian => shuffled(target.keys, seed),
            Distribution::Latest => latest_first(target),
        }
    }
}

/// The keys that one of the target's connections sets, in this order.
pub(super) fn part(target: &Target, connection: u32) -> Range<u32> {
    let start = |n: u32| (u64::from(target.keys) * u64::from(n) / u64::from(target.connections)) as u32;
    start(connection)..start(connection + 1)
}

/// All connections set their keys at about the same pace: the last key of each part came last,
/// preceded by the one before it, and so on.
fn latest_first(target: &Target) -> Vec<u32> {
    let mut parts: Vec<_> =
        (0..target.connections).map(|connection| part(target, connection).rev()).collect();
    let mut order = Vec::with_capacity(target.keys as usize);
    while order.len() < target.keys as usize {
        order.extend(parts.iter_mut().filter_map(Iterator::next));
    }
    order
}

#[cfg(test)]
mod tests {
    use super::super::Server;
    use super::*;

    fn target(keys: u32, connections: u32) -> Target {
        let address = ("127.0.0.1".to_owned(), 1);
        Target { server: Server::Redis, address, keys, value_bytes: 1, connections, pipeline: 1 }
    }

    #[test]
    fn the_latest_keys_are_the_ends_of_what_each_connection_sets() {
        assert_eq!(Distribution::Latest.ranked(&target(4, 1), 9), [3, 2, 1, 0]);
        assert_eq!(Distribution::Latest.ranked(&target(7, 2), 9), [2, 6, 1, 5, 0, 4, 3]);
        assert_eq!(Distribution::Latest.ranked(&target(1, 3), 9), [0]);
    }

    #[test]
    fn every_key_has_one_rank_and_the_seed_decides_where_popular_ones_lie() {
        for distribution in [Distribution::Zipfian, Distribution::Latest] {
            let mut ranked = distribution.ranked(&target(1000, 3), 5);
            ranked.sort_unstable();
            assert!(ranked.into_iter().eq(0..1000), "{distribution:?}");
        }
        let of_seed = |seed| Distribution::Zipfian.ranked(&target(1000, 3), seed);
        assert_ne!(of_seed(1), of_seed(2));
    }
}
