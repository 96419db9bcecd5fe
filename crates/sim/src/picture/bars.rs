//! Managers side by side: a line each, its slowdown and its share of the best static placement.

use super::axis::Axis;
use super::svg::{Anchor, Mark, Svg};
use crate::stats::Summary;

const WIDTH: f64 = 1000.0;
const LINE: f64 = 22.0;
/// Ends of the scale of slowdowns, in pixels.
const SLOWDOWN: (f64, f64) = (240.0, 590.0);
/// Right end of the slowdowns in figures.
const SLOWDOWN_TEXT: f64 = 690.0;
/// Ends of the scale of shares.
const SHARE: (f64, f64) = (725.0, 900.0);
/// Right end of the shares in figures.
const SHARE_TEXT: f64 = 985.0;

/// One manager, or the best static placement.
#[derive(Clone, Debug)]
pub struct Bar {
    /// Its name.
    pub name: String,
    /// Time relative to that with all memory in the top tier; `None` if it is unknown.
    pub slowdown: Option<Summary>,
    /// Accesses that the top tier served, as a share of the best static placement's; of 1.
    pub share: Option<Summary>,
    /// What the others are measured by, not one of them.
    pub bound: bool,
}

/// The managers on a scenario.
#[derive(Clone, Debug)]
pub struct Group {
    /// The scenario's name.
    pub title: String,
    /// Runs behind each value.
    pub seeds: usize,
    /// The managers.
    pub bars: Vec<Bar>,
}

/// A picture with a part for each group.
pub fn bars(groups: &[Group]) -> String {
    let mut svg = Svg::new(WIDTH);
    let mut y = 8.0;
    for group in groups {
        y = one(&mut svg, group, y) + 18.0;
    }
    let spread = groups.iter().any(|g| g.seeds > 1);
    legend(&mut svg, y, spread);
    svg.finish(y + 16.0)
}

/// Draws a group from `y` down; returns where it ends.
fn one(svg: &mut Svg, group: &Group, y: f64) -> f64 {
    let runs = if group.seeds == 1 { "one run".to_owned() } else { format!("{} runs", group.seeds) };
    svg.bold((10.0, y + 14.0), Anchor::Start, &group.title);
    svg.text((10.0, y + 30.0), Anchor::Start, &format!("{runs} of each manager"));
    let middle = |(from, to): (f64, f64)| (from + to) / 2.0;
    svg.text((middle(SLOWDOWN), y + 14.0), Anchor::Middle, "time, against all memory in DRAM (1 is as fast)");
    svg.text((middle(SHARE), y + 14.0), Anchor::Middle, "accesses served by DRAM, % of");
    svg.text((middle(SHARE), y + 28.0), Anchor::Middle, "the best static placement's");
    let top = y + 38.0;
    let bottom = top + LINE * group.bars.len() as f64 + 6.0;
    let ends = |s: &Summary| [s.mean - s.sd, s.mean + s.sd];
    let slow = Axis::over(
        group.bars.iter().filter_map(|b| b.slowdown.as_ref()).flat_map(ends).chain([1.0]),
        SLOWDOWN,
    );
    let most = group.bars.iter().filter_map(|b| b.share).map(|s| 100.0 * (s.mean + s.sd));
    let share = Axis::over(most.chain([0.0, 100.0]), SHARE);
    for (value, text) in slow.ticks() {
        let x = slow.at(value);
        svg.line((x, top), (x, bottom), if value == 1.0 { 0 } else { 210 }, 1.0, "");
        svg.text((x, bottom + 14.0), Anchor::Middle, &text);
    }
    for percent in [0.0, 50.0, 100.0] {
        let x = share.at(percent);
        svg.line((x, top), (x, bottom), if percent == 50.0 { 210 } else { 0 }, 1.0, "");
        svg.text((x, bottom + 14.0), Anchor::Middle, &format!("{percent:.0}"));
    }
    for (i, bar) in group.bars.iter().enumerate() {
        line(svg, bar, top + LINE * (i as f64 + 0.5) + 3.0, (&slow, &share));
    }
    bottom + 14.0
}

fn line(svg: &mut Svg, bar: &Bar, y: f64, (slow, share): (&Axis, &Axis)) {
    svg.text((10.0, y + 4.0), Anchor::Start, &bar.name);
    match bar.slowdown {
        Some(s) => {
            // A line to the name, which is far away.
            svg.line((SLOWDOWN.0, y), (slow.at(s.mean), y), 190, 1.0, "1 3");
            if s.sd > 0.0 {
                svg.spread((slow.at(s.mean - s.sd), y), (slow.at(s.mean + s.sd), y));
            }
            let mark = if bar.bound { Mark::Diamond } else { Mark::Dot };
            svg.mark((slow.at(s.mean), y), mark, !bar.bound);
            svg.text((SLOWDOWN_TEXT, y + 4.0), Anchor::End, &number(s, 3));
        }
        None => svg.text((SLOWDOWN_TEXT, y + 4.0), Anchor::End, "not done in time"),
    }
    match bar.share {
        Some(s) => {
            let percent = Summary { mean: 100.0 * s.mean, sd: 100.0 * s.sd };
            let fill = if bar.bound { 255 } else { 150 };
            svg.rect((SHARE.0, y - 6.0), (share.at(percent.mean) - SHARE.0, 12.0), fill, 0);
            if s.sd > 0.0 {
                let at = |value| (share.at(value), y);
                svg.spread(at(percent.mean - percent.sd), at(percent.mean + percent.sd));
            }
            svg.text((SHARE_TEXT, y + 4.0), Anchor::End, &number(percent, 1));
        }
        None => svg.text((SHARE_TEXT, y + 4.0), Anchor::End, "unknown"),
    }
}

/// A mean, and its spread unless that is rounded to 0.
fn number(s: Summary, digits: usize) -> String {
    let spread = format!("{:.digits$}", s.sd);
    let shows = spread.contains(|c: char| ('1'..='9').contains(&c));
    if shows { format!("{:.digits$} ± {spread}", s.mean) } else { format!("{:.digits$}", s.mean) }
}

fn legend(svg: &mut Svg, y: f64, spread: bool) {
    svg.mark((20.0, y), Mark::Dot, true);
    svg.text((30.0, y + 4.0), Anchor::Start, "mean of a manager");
    svg.mark((170.0, y), Mark::Diamond, false);
    svg.text((180.0, y + 4.0), Anchor::Start, "best static placement, without faults or moves");
    if spread {
        svg.spread((470.0, y), (500.0, y));
        svg.text((510.0, y + 4.0), Anchor::Start, "standard deviation of one run, both ways (±)");
    }
}

#[cfg(test)]
mod tests {
    use super::super::svg::well_formed;
    use super::*;

    fn bar(name: &str, slowdown: Option<(f64, f64)>, share: Option<(f64, f64)>) -> Bar {
        let summary = |(mean, sd)| Summary { mean, sd };
        Bar {
            name: name.to_owned(),
            slowdown: slowdown.map(summary),
            share: share.map(summary),
            bound: false,
        }
    }

    #[test]
    fn every_manager_is_drawn_with_its_figures_and_only_spreads_that_there_are() {
        let best = Bar { bound: true, ..bar("best static placement", Some((1.01, 0.0)), Some((1.0, 0.0))) };
        let mut group = Group {
            title: "a & b".to_owned(),
            seeds: 4,
            bars: vec![
                bar("none", Some((1.176, 0.0)), Some((0.0, 0.0))),
                bar("numab2", Some((1.016, 0.004)), Some((0.965, 0.002))),
                bar("damon", None, None),
                best,
            ],
        };
        let drawn = bars(std::slice::from_ref(&group));
        assert!(well_formed(&drawn), "{drawn}");
        for said in
            [">a &amp; b<", ">1.176<", ">1.016 ± 0.004<", ">96.5 ± 0.2<", ">not done in time<", "4 runs"]
        {
            assert!(drawn.contains(said), "{said} is missing in {drawn}");
        }
        assert!(drawn.contains("standard deviation"));
        group.seeds = 1;
        assert!(!bars(&[group]).contains("standard deviation"), "one run has no spread");
        assert!(well_formed(&bars(&[])));
    }
}
