//! The picture: residency and miss share over time.

use std::path::Path;

use anyhow::anyhow;
use plotters::coord::Shift;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use super::line::{mib, percent, tiers};
use super::record::Recording;
use super::verdict::Verdict;

const SIZE: (u32, u32) = (960, 620);
const FONT: &str = "DejaVu Sans, Helvetica, Arial, sans-serif";
/// Dark and light enough to be distinguished without colour.
const DRAM: RGBColor = RGBColor(31, 78, 140);
const CXL: RGBColor = RGBColor(236, 190, 130);
const INK: RGBColor = RGBColor(40, 40, 40);
const GRID: RGBColor = RGBColor(222, 222, 222);
/// Room for axis labels, in pixels.
const LEFT: u32 = 74;
const BELOW: u32 = 40;

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

/// Writes the SVG.
pub(crate) fn draw(path: &Path, recording: &Recording, verdict: &Verdict) -> anyhow::Result<()> {
    let root = SVGBackend::new(path, SIZE).into_drawing_area();
    let drawn = root.fill(&WHITE).map_err(|error| anyhow!("{error}")).and_then(|()| {
        let (head, body) = root.split_vertically(58);
        title(&head, recording)?;
        let (upper, lower) = body.split_vertically(262);
        residency(&upper, recording)?;
        shares(&lower, recording, verdict)
    });
    drawn
        .and_then(|()| root.present().map_err(|error| anyhow!("{error}")))
        .map_err(|error| anyhow!("cannot draw {}: {error}", path.display()))
}

fn text(size: u32) -> TextStyle<'static> {
    (FONT, size).into_font().color(&INK)
}

fn title(area: &Area<'_>, recording: &Recording) -> anyhow::Result<()> {
    let (dram, cxl) = tiers(&recording.pages_before, recording.slow);
    let line = format!(
        "Redis, {:.0} MiB, zipfian reads ({}), on unmodified Linux {}, emulated: placement is real, speed is not",
        mib(dram + cxl),
        recording.plan.zipf,
        recording.kernel
    );
    area.draw(&Text::new("Thermocline moves Redis's hot pages from CXL to DRAM", (16, 10), text(21)))
        .map_err(|error| anyhow!("{error}"))?;
    area.draw(&Text::new(line, (16, 37), text(13))).map_err(|error| anyhow!("{error}"))
}

fn residency(area: &Area<'_>, recording: &Recording) -> anyhow::Result<()> {
    let points: Vec<(f64, f64, f64)> = recording
        .samples
        .iter()
        .map(|sample| {
            let (dram, cxl) = tiers(&sample.pages, recording.slow);
            (sample.at_s, mib(dram), mib(dram + cxl))
        })
        .collect();
    let end = points.last().map_or(1.0, |point| point.0);
    let top = points.iter().map(|point| point.2).fold(1.0, f64::max) * 1.18;
    let mut chart = ChartBuilder::on(area)
        .margin_left(14)
        .margin_right(24)
        .set_label_area_size(LabelAreaPosition::Left, LEFT)
        .set_label_area_size(LabelAreaPosition::Bottom, BELOW)
        .build_cartesian_2d(0.0..end, 0.0..top)?;
    chart
        .draw_series(AreaSeries::new(points.iter().map(|&(at, _, all)| (at, all)), 0.0, CXL))
        .map_err(|error| anyhow!("{error}"))?;
    chart
        .draw_series(AreaSeries::new(points.iter().map(|&(at, dram, _)| (at, dram)), 0.0, DRAM))
        .map_err(|error| anyhow!("{error}"))?;
    chart
        .configure_mesh()
        .disable_x_mesh()
        .light_line_style(TRANSPARENT)
        .bold_line_style(GRID.mix(0.6))
        .axis_style(INK)
        .label_style(text(13))
        .axis_desc_style(text(14))
        .x_labels(12)
        .y_labels(5)
        .x_label_formatter(&|x| format!("{x:.0}"))
        .y_label_formatter(&|y| format!("{y:.0}"))
        .y_desc("Redis's memory, MiB")
        .draw()
        .map_err(|error| anyhow!("{error}"))?;
    let last = points.last().copied().unwrap_or_default();
    let centred = |colour: &'static RGBColor| text(15).color(colour).pos(Pos::new(HPos::Right, VPos::Center));
    let labels = [
        ("in CXL", (last.1 + last.2) / 2.0, &INK),
        ("in DRAM", last.1 / 2.0, if last.1 > top / 12.0 { &WHITE } else { &INK }),
    ];
    chart
        .draw_series(
            labels.map(|(label, y, colour)| Text::new(label, (end - end / 60.0, y), centred(colour))),
        )
        .map_err(|error| anyhow!("{error}"))?;
    let start = recording.started_at_s;
    let beside = text(14).pos(Pos::new(HPos::Left, VPos::Center));
    chart
        .draw_series([Text::new("Thermocline starts", (start + end / 120.0, top * 0.93), beside)])
        .map_err(|error| anyhow!("{error}"))?;
    chart
        .draw_series(DashedLineSeries::new([(start, 0.0), (start, top)], 5, 4, INK.stroke_width(2)))
        .map_err(|error| anyhow!("{error}"))?;
    Ok(())
}

fn shares(area: &Area<'_>, recording: &Recording, verdict: &Verdict) -> anyhow::Result<()> {
    let points: Vec<(f64, f64)> = recording
        .samples
        .iter()
        .map(|sample| {
            let (dram, cxl) = tiers(&sample.misses, recording.slow);
            (sample.at_s, percent(dram, dram + cxl))
        })
        .collect();
    let end = points.last().map_or(1.0, |point| point.0);
    let mut chart = ChartBuilder::on(area)
        .margin_left(14)
        .margin_right(24)
        .margin_top(6)
        .margin_bottom(6)
        .set_label_area_size(LabelAreaPosition::Left, LEFT)
        .set_label_area_size(LabelAreaPosition::Bottom, BELOW)
        .build_cartesian_2d(0.0..end, 0.0..100.0)?;
    chart
        .configure_mesh()
        .disable_x_mesh()
        .light_line_style(TRANSPARENT)
        .bold_line_style(GRID)
        .axis_style(INK)
        .label_style(text(13))
        .axis_desc_style(text(14))
        .x_labels(12)
        .y_labels(5)
        .x_label_formatter(&|x| format!("{x:.0}"))
        .y_label_formatter(&|y| format!("{y:.0}"))
        .x_desc("seconds of load")
        .y_desc("misses served by DRAM, %")
        .draw()
        .map_err(|error| anyhow!("{error}"))?;
    let start = recording.started_at_s;
    chart
        .draw_series(DashedLineSeries::new([(start, 0.0), (start, 100.0)], 5, 4, INK.stroke_width(2)))
        .map_err(|error| anyhow!("{error}"))?;
    let best = 100.0 * verdict.dram_share_best;
    chart
        .draw_series(DashedLineSeries::new([(0.0, best), (end, best)], 2, 4, INK.stroke_width(1)))
        .map_err(|error| anyhow!("{error}"))?;
    // Above the line, away from the curve, if there is room.
    let (at, place) = if best < 94.0 { (best + 1.0, VPos::Bottom) } else { (best - 2.0, VPos::Top) };
    let label = format!("best static placement: {best:.0} %");
    let style = text(13).pos(Pos::new(HPos::Left, place));
    chart
        .draw_series([Text::new(label, (start + end / 120.0, at), style)])
        .map_err(|error| anyhow!("{error}"))?;
    chart.draw_series(LineSeries::new(points, DRAM.stroke_width(3))).map_err(|error| anyhow!("{error}"))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use serde_json::json;
    use thermocline_core::units::NodeId;
    use thermocline_lab::truth::{Counts, NodeCounts, State};

    use super::*;
    use crate::demo::record::{Answers, Plan, Sample};

    #[test]
    fn the_picture_shows_both_tiers_the_best_placement_and_the_start() {
        let sample = |second: u64| {
            let moved = if second > 30 { (second - 30).min(40) * 700 } else { 0 };
            Sample {
                at_s: second as f64,
                with: second > 30,
                pages: BTreeMap::from([(NodeId(0), 100 + moved), (NodeId(2), 90_000 - moved)]),
                misses: BTreeMap::from([(NodeId(0), moved), (NodeId(2), 40_000 - moved)]),
                ..Sample::default()
            }
        };
        let counts = |fast, slow| Counts {
            state: State::Counting,
            epoch: 1,
            host_ns: 0,
            nodes: [fast, 0, slow]
                .map(|load_misses| NodeCounts { load_misses, ..NodeCounts::default() })
                .into(),
            io: 0,
            outside: 0,
            unresolved: 0,
            pages: 0,
            pages_lost: 0,
            instructions: 0,
            program_instructions: 0,
            modelled: None,
        };
        let answers = Answers { right: 9, wrong: 0, errors: 0 };
        let recording = Recording {
            kernel: "6.12.1".to_owned(),
            plan: Plan {
                keys: 9,
                value_bytes: 1,
                zipf: 0.99,
                before_s: 30,
                with_s: 100,
                before_window_s: 20,
                window_s: 60,
            },
            slow: NodeId(2),
            range: (0, 1 << 20),
            room: BTreeMap::new(),
            pages_before: BTreeMap::from([(NodeId(0), 100), (NodeId(2), 90_000)]),
            pages_after: BTreeMap::from([(NodeId(0), 28_100), (NodeId(2), 62_000)]),
            misses_before: counts(1, 99),
            misses_after: counts(70, 30),
            started_at_s: 30.2,
            daemon: json!({"counters": {"pgpromote_success": 28_000}}),
            kernel_promotions: 0,
            load: answers.clone(),
            verified: answers,
            samples: (1..=130).map(sample).collect(),
        };
        let verdict = Verdict { dram_share_best: 0.81, ..Verdict::of(&recording, &[]) };
        assert_eq!((verdict.dram_share_before, verdict.dram_share_after), (0.01, 0.7));
        assert_eq!(verdict.dram_pages_counted, verdict.dram_pages_after);

        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("demo.svg");
        draw(&path, &recording, &verdict).unwrap();
        let svg = std::fs::read_to_string(&path).unwrap();
        for words in ["in DRAM", "in CXL", "Thermocline starts", "best static placement: 81 %", "6.12.1"] {
            assert!(svg.contains(words), "{words}");
        }
        if let Some(keep) = std::env::var_os("DEMO_PICTURE") {
            std::fs::copy(&path, keep).unwrap();
        }
    }
}
