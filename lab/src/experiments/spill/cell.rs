//! One run, given by the manager of Redis' pages, the amount of ballast and the load.

use serde::{Deserialize, Serialize};
use thermocline_core::units::{NodeId, PAGES_PER_MIB};
use thermocline_lab::programs::keys::Distribution;

use crate::experiments::score::manager::Manager;
use crate::experiments::score::row::Row;
use crate::experiments::who::{self, Baseline};
use crate::experiments::within::ByNode;

/// Runs without ballast and without a manager.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Only {
    /// All of Redis is in DRAM, and nothing moves it.
    Dram,
    /// All of Redis is on CXL and has to stay there.
    Cxl,
}

impl Baseline for Only {
    const NAMES: &'static [(Only, &'static str)] = &[(Only::Dram, "dram-only"), (Only::Cxl, "cxl-only")];
    const MEANING: &'static str = "where there is no manager";
}

/// A row of the experiment's table. Beside a manager ballast fills DRAM, and Redis spills.
pub(crate) type Who = who::Who<Only>;

impl Who {
    /// The manager, if there is one.
    pub(crate) fn manager(&self) -> Manager {
        match self {
            Who::Baseline(_) => Manager::None,
            Who::Managed(manager) => manager.clone(),
        }
    }

    /// Whether there is ballast beside it.
    pub(crate) fn has_ballast(&self) -> bool {
        matches!(self, Who::Managed(_))
    }
}

/// One run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Cell {
    /// The manager or baseline.
    pub(crate) who: Who,
    /// Which keys were popular.
    pub(crate) load: Distribution,
    /// The share (0 to 1) of Redis' memory for which ballast leaves no DRAM; 0 without ballast.
    pub(crate) spill: f64,
    /// Its result, as reported by `lab score`.
    pub(crate) row: Row,
}

impl Cell {
    /// Ballast, MiB.
    pub(crate) fn ballast_mib(&self) -> f64 {
        self.row.neighbour.as_ref().map_or(0.0, |lay| mib(lay.before.values().sum()))
    }

    /// Ballast that is on CXL at the end and was not when the manager started, MiB.
    pub(crate) fn ballast_demoted_mib(&self) -> f64 {
        self.row.neighbour.as_ref().map_or(0.0, |lay| mib(on_cxl(&lay.after)) - mib(on_cxl(&lay.before)))
    }

    /// Redis' memory on CXL at the end, MiB.
    pub(crate) fn redis_on_cxl_mib(&self) -> f64 {
        mib(self.row.footprint_pages.saturating_sub(self.row.dram_pages_after))
    }

    /// The same when the manager started.
    pub(crate) fn redis_on_cxl_before_mib(&self) -> f64 {
        mib(self.row.footprint_pages.saturating_sub(self.row.dram_pages_before))
    }

    /// Time of all reads under the manager, from its start, relative to the time if all misses were
    /// as fast as DRAM's.
    pub(crate) fn felt_from_start(&self) -> Option<f64> {
        let row = &self.row;
        let s_per_op = (row.warmup_s + row.window_s) / (row.warmup_ops + row.ops).max(1) as f64;
        row.felt.map(|felt| s_per_op / felt.reference_s_per_op)
    }
}

/// The node of the machine that is CXL.
pub(crate) const CXL: NodeId = NodeId(1);

fn on_cxl(pages: &ByNode) -> u64 {
    pages.get(&CXL).copied().unwrap_or(0)
}

fn mib(pages: u64) -> f64 {
    pages as f64 / PAGES_PER_MIB as f64
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::experiments::score::neighbour::Lay;
    use crate::experiments::score::row::tests::row;

    /// A run of made-up figures.
    pub(crate) fn cell(who: &str, spill: f64, felt_slowdown: f64) -> Cell {
        let who: Who = who.parse().unwrap();
        let lay = Lay {
            before: ByNode::from([(NodeId(0), 2560)]),
            after: ByNode::from([(NodeId(0), 1536), (CXL, 1024)]),
        };
        let row = Row {
            neighbour: who.has_ballast().then_some(lay),
            label: who.manager(),
            footprint_pages: 1024,
            dram_pages_before: 256,
            dram_pages_after: 768,
            felt_slowdown: Some(felt_slowdown),
            slowdown: felt_slowdown + 0.1,
            ..row(who.manager().name(), 0.5)
        };
        Cell { who, load: Distribution::Zipfian, spill, row }
    }

    #[test]
    fn managers_have_ballast_beside_them() {
        for (text, has_ballast) in [("dram-only", false), ("cxl-only", false), ("none", true)] {
            assert_eq!(text.parse::<Who>().unwrap().has_ballast(), has_ballast, "{text}");
        }
    }

    #[test]
    fn memory_by_hand() {
        let with = cell("damon", 0.5, 1.2);
        assert_eq!((with.ballast_mib(), with.ballast_demoted_mib()), (10.0, 4.0));
        assert_eq!((with.redis_on_cxl_before_mib(), with.redis_on_cxl_mib()), (3.0, 1.0));
        let without = cell("cxl-only", 0.0, 2.0);
        assert_eq!((without.ballast_mib(), without.ballast_demoted_mib()), (0.0, 0.0));
        assert_eq!(without.felt_from_start(), None, "nothing was felt");
        let json = serde_json::to_value(&with).unwrap();
        assert_eq!(
            (&json["who"], &json["load"], &json["spill"]),
            (&"damon".into(), &"zipfian".into(), &0.5.into())
        );
        let back: Cell = serde_json::from_value(json).unwrap();
        assert_eq!((back.who, back.row.label), (with.who, with.row.label));
    }
}
