//! The runs beside each other.

use thermocline_core::units::{NodeId, PAGES_PER_MIB};

use super::{Cell, Own, Who};
use crate::experiments::score::columns;
use crate::experiments::within::ByNode;

const HEADS: [&str; 8] = [
    "",
    "misses served by DRAM",
    "of alone's",
    "slowdown",
    "Redis in DRAM, MiB",
    "hog in DRAM, MiB",
    "hog's accesses/s",
    "promoted, demoted",
];

/// The table: a line for each run, in their order.
pub(super) fn text(cells: &[Cell], share: f64) -> String {
    let Some(Cell { row, .. }) = cells.first() else { return String::new() };
    let heading = format!(
        "Redis of {:.0} MiB with a share of {:.0} % of that, beside a hog that fills DRAM; {} reads under the manager and \
         then {} measured; Linux {}\nmodelled: {}\n",
        mib(row.footprint_pages),
        100.0 * share,
        row.warmup_ops,
        row.ops,
        row.kernel,
        row.model_text(),
    );
    let alone: Vec<f64> = cells
        .iter()
        .filter(|cell| cell.who == Who::Baseline(Own::Alone))
        .map(|cell| cell.row.dram_share)
        .collect();
    let alone = (!alone.is_empty()).then(|| alone.iter().sum::<f64>() / alone.len() as f64);
    let lines = cells.iter().map(|cell| line(cell, alone));
    let heads = HEADS.map(str::to_owned).to_vec();
    heading + &columns(&std::iter::once(heads).chain(lines).collect::<Vec<_>>())
}

fn line(Cell { who, row }: &Cell, alone: Option<f64>) -> Vec<String> {
    let in_dram = |pages: &ByNode| mib(pages.get(&NodeId(0)).copied().unwrap_or(0));
    let hog = row.neighbour.as_ref();
    let rate = row.hog_accesses.map(|accesses| accesses as f64 / row.window_s);
    let or_none = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
    vec![
        format!("{who}, seed {}", row.seed),
        format!("{:.1} %", 100.0 * row.dram_share),
        or_none(
            alone
                .filter(|alone| *alone > 0.0)
                .map(|alone| format!("{:.1} %", 100.0 * row.dram_share / alone)),
        ),
        format!("{:.3}", row.slowdown),
        format!("{:.0} -> {:.0}", mib(row.dram_pages_before), mib(row.dram_pages_after)),
        or_none(hog.map(|lay| format!("{:.0} -> {:.0}", in_dram(&lay.before), in_dram(&lay.after)))),
        or_none(rate.map(|rate| format!("{rate:.0}"))),
        format!("{}, {}", row.promoted, row.demoted),
    ]
}

fn mib(pages: u64) -> f64 {
    pages as f64 / PAGES_PER_MIB as f64
}

#[cfg(test)]
mod tests {
    use super::super::manager;
    use super::*;
    use crate::experiments::score::neighbour::Lay;
    use crate::experiments::score::row::tests::row;

    #[test]
    fn shares_are_those_of_alone() {
        let cell = |who: &str, dram_share| {
            let who: Who = who.parse().unwrap();
            let lay = Lay {
                before: ByNode::from([(NodeId(0), 2560)]),
                after: ByNode::from([(NodeId(0), 1536), (NodeId(1), 1024)]),
            };
            let mut row = row(manager(&who).name(), dram_share);
            if who != Who::Baseline(Own::Alone) {
                (row.neighbour, row.hog_accesses) = (Some(lay), Some(5000));
            }
            Cell { who, row }
        };
        let text = text(&[cell("alone", 0.8), cell("numab2", 0.2), cell("shared", 0.76)], 0.5);
        let lines: Vec<&str> = text.lines().skip(3).collect();
        assert!(lines[0].starts_with("alone, seed 1") && lines[0].contains("100.0 %"), "{text}");
        assert!(lines[1].contains("20.0 %") && lines[1].contains("25.0 %"), "{text}");
        assert!(lines[2].contains("76.0 %") && lines[2].contains("95.0 %"), "{text}");
        assert!(lines[2].contains("10 -> 6") && lines[2].contains("5000"), "{text}");
        assert!("shares".parse::<Who>().unwrap_err().contains("alone"));
    }
}
