//! The growth of time and memory as a picture, readable in black and white.

use std::path::{Path, PathBuf};

use plotters::prelude::*;

use crate::measure::Cost;
use crate::report::Failure;

/// Draws `sim-growth.svg`.
pub(crate) fn draw(
    folder: &Path,
    by_pages: &[(f64, Cost)],
    by_faults: &[(f64, Cost)],
) -> Result<PathBuf, Failure> {
    let svg = folder.join("sim-growth.svg");
    {
        let area = SVGBackend::new(&svg, (960, 1080)).into_drawing_area();
        area.fill(&WHITE)?;
        let charts = area.split_evenly((3, 1));
        let line = |points: &[(f64, Cost)], of: fn(&Cost) -> f64| -> Vec<(f64, f64)> {
            points.iter().map(|(x, cost)| (*x, of(cost))).collect()
        };
        let seconds = |c: &Cost| c.seconds;
        let gib = |c: &Cost| c.bytes / (1u64 << 30) as f64;
        chart(
            &charts[0],
            "Time of a run, s of one core (dashed: linear)",
            "simulated memory, GiB",
            &line(by_pages, seconds),
        )?;
        chart(
            &charts[1],
            "Memory of a run, GiB (dashed: linear)",
            "simulated memory, GiB",
            &line(by_pages, gib),
        )?;
        chart(
            &charts[2],
            "Time of a run, s of one core (dashed: linear)",
            "hint faults",
            &line(by_faults, seconds),
        )?;
        area.present()?;
    }
    Ok(svg)
}

/// One chart, both axes logarithmic, with a dashed line that grows as its horizontal axis does.
fn chart(
    area: &DrawingArea<SVGBackend<'_>, plotters::coord::Shift>,
    title: &str,
    across: &str,
    points: &[(f64, f64)],
) -> Result<(), Failure> {
    let (Some(first), Some(last)) = (points.first(), points.last()) else { return Ok(()) };
    let low = points.iter().map(|p| p.1).fold(f64::MAX, f64::min) / 2.0;
    let high = points.iter().map(|p| p.1).fold(low, f64::max) * 2.0;
    let mut chart = ChartBuilder::on(area)
        .margin(16)
        .x_label_area_size(44)
        .y_label_area_size(64)
        .caption(title, ("sans-serif", 20))
        .build_cartesian_2d((first.0..last.0 * 2.5).log_scale(), (low..high).log_scale())?;
    chart
        .configure_mesh()
        .light_line_style(TRANSPARENT)
        .x_desc(across)
        .y_labels(5)
        .x_label_formatter(&|x| format!("{x:.0}"))
        .y_label_formatter(&|y| format!("{y:.2}"))
        .draw()?;
    chart.draw_series(LineSeries::new(points.iter().copied(), BLACK.stroke_width(2)))?;
    chart.draw_series(points.iter().map(|p| Circle::new(*p, 3, BLACK.filled())))?;
    let linear = points.iter().map(|p| (p.0, last.1 * p.0 / last.0)).filter(|p| p.1 >= low);
    chart.draw_series(DashedLineSeries::new(linear, 6, 5, BLACK.stroke_width(1)))?;
    Ok(())
}
