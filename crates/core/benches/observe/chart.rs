//! The growth of time and memory as a picture, readable in black and white.

use std::path::{Path, PathBuf};

use plotters::coord::ranged1d::ValueFormatter;
use plotters::prelude::*;

use crate::growth::Point;
use crate::report::Failure;

/// One line of a chart: its name, its points, whether it is dashed.
type Line<'a> = (&'a str, Vec<(f64, f64)>, bool);

/// Draws `growth.svg`.
pub(crate) fn draw(
    folder: &Path,
    byte: &[Point],
    word: &[Point],
    queued: &[(u32, f64)],
) -> Result<PathBuf, Failure> {
    let svg = folder.join("growth.svg");
    {
        let area = SVGBackend::new(&svg, (960, 1080)).into_drawing_area();
        area.fill(&WHITE)?;
        let charts = area.split_evenly((3, 1));
        let ns = |points: &[Point]| points.iter().map(|p| (p.gib as f64, p.observe_ns)).collect();
        let array = |points: &[Point]| points.iter().map(|p| (p.gib as f64, p.array_ns)).collect();
        let bytes = |points: &[Point]| points.iter().map(|p| (p.gib as f64, p.bytes as f64 / 1e6)).collect();
        let time = [
            ("word", ns(word), false),
            ("byte", ns(byte), false),
            ("array of words", array(word), true),
            ("array of bytes", array(byte), true),
        ];
        chart(&charts[0], "Observing an access, ns of CPU time", "observed memory, GiB", &time, 0.0)?;
        let memory = [("word", bytes(word), false), ("byte", bytes(byte), false)];
        chart(&charts[1], "Memory of the records, MB", "observed memory, GiB", &memory, 1.0)?;
        let queue = [("engine", queued.iter().map(|&(n, ns)| (f64::from(n), ns)).collect(), false)];
        chart(&charts[2], "The whole engine, ns an access", "candidates that wait", &queue, 0.0)?;
        area.present()?;
    }
    Ok(svg)
}

/// One chart; a positive `floor` makes the vertical axis logarithmic from there.
fn chart(
    area: &DrawingArea<SVGBackend<'_>, plotters::coord::Shift>,
    title: &str,
    across: &str,
    lines: &[Line<'_>],
    floor: f64,
) -> Result<(), Failure> {
    let points = || lines.iter().flat_map(|(_, points, _)| points.iter());
    let left = points().map(|p| p.0).fold(f64::MAX, f64::min);
    let right = points().map(|p| p.0).fold(left, f64::max);
    let top = points().map(|p| p.1).fold(floor, f64::max) * 1.15;
    let mut builder = ChartBuilder::on(area);
    builder.margin(16).x_label_area_size(44).y_label_area_size(64).caption(title, ("sans-serif", 20));
    // Room on the right for the names of the lines.
    let across_range = (left..right * 2.2).log_scale().base(2.0);
    if floor > 0.0 {
        fill(builder.build_cartesian_2d(across_range, (floor..top).log_scale())?, across, lines)
    } else {
        fill(builder.build_cartesian_2d(across_range, 0.0..top)?, across, lines)
    }
}

fn fill<Y>(
    mut chart: ChartContext<'_, SVGBackend<'_>, Cartesian2d<plotters::coord::combinators::LogCoord<f64>, Y>>,
    across: &str,
    lines: &[Line<'_>],
) -> Result<(), Failure>
where
    Y: Ranged<ValueType = f64> + ValueFormatter<f64>,
{
    chart
        .configure_mesh()
        .light_line_style(TRANSPARENT)
        .x_desc(across)
        .x_label_formatter(&|x| format!("{x:.0}"))
        .y_label_formatter(&|y| format!("{y:.0}"))
        .draw()?;
    for (name, points, dashed) in lines {
        if *dashed {
            chart.draw_series(DashedLineSeries::new(points.clone(), 6, 5, BLACK.stroke_width(1)))?;
        } else {
            chart.draw_series(LineSeries::new(points.clone(), BLACK.stroke_width(2)))?;
        }
        if let Some(last) = points.last() {
            chart.draw_series(std::iter::once(Text::new(format!("  {name}"), *last, ("sans-serif", 14))))?;
        }
    }
    Ok(())
}
