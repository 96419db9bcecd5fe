//! The courses side by side.

use thermocline_core::units::PAGES_PER_MIB;

use super::course::{Course, Moment};

/// Moments that are shown.
const ROWS: usize = 20;

/// Rates and shares between two moments of a course, in cells.
fn cells(from: &Moment, to: &Moment) -> [String; 3] {
    let per_s = |count: u64| format!("{:.0}", count as f64 / (to.at_s - from.at_s).max(1e-3));
    let (samples, useful) = (to.samples - from.samples, to.useful - from.useful);
    [
        format!("{:.1}", percent(to.home_pages, to.pages)),
        per_s(to.hint_faults - from.hint_faults),
        // No sampler, or no samples.
        if samples == 0 { "-".to_owned() } else { format!("{:.1}", percent(useful, samples)) },
    ]
}

fn percent(part: u64, of: u64) -> f64 {
    100.0 * part as f64 / of.max(1) as f64
}

/// The table over time, and the figures of each course.
pub(crate) fn text(courses: &[Course]) -> String {
    let Some(first) = courses.first() else { return String::new() };
    let plan = &first.plan;
    let (kind, node) = (plan.from.name().to_uppercase(), plan.from.node().0);
    let mut out = format!(
        "{} MiB on node {node} ({kind}), written at random by two threads on node 0; Linux {}\n\n",
        plan.mib, first.kernel
    );
    let heads = ["at home %", "faults/s", "useful %"];
    out.push_str(&format!("{:>5}", ""));
    for course in courses {
        out.push_str(&format!("  | {:<30}", course.plan.by.to_string()));
    }
    out.push_str(&format!("\n{:>5}", "s"));
    for _ in courses {
        out.push_str("  |");
        heads.iter().for_each(|head| out.push_str(&format!(" {head:>9}")));
        out.push(' ');
    }
    out.push('\n');
    let shortest = courses.iter().map(|course| course.moments.len()).min().unwrap_or(0);
    let step = shortest.div_ceil(ROWS).max(1);
    for at in (step..shortest).step_by(step) {
        out.push_str(&format!("{:>5.0}", first.moments[at].at_s));
        for course in courses {
            out.push_str("  |");
            for cell in cells(&course.moments[at - step], &course.moments[at]) {
                out.push_str(&format!(" {cell:>9}"));
            }
            out.push(' ');
        }
        out.push('\n');
    }
    out.push('\n');
    courses.iter().for_each(|course| out.push_str(&figures(course)));
    out
}

/// The figures of a course.
fn figures(course: &Course) -> String {
    let last = course.last();
    let when = |share| match course.home_at_s(share) {
        Some(at) => format!("{at:.0} s"),
        None => "never".to_owned(),
    };
    let mut text = format!(
        "{:<10}  {:.1} MiB of {:.1} MiB at home; half after {}, nine tenths after {}, 99 % after {}\n\
         {:<10}  {} hint faults",
        course.plan.by.to_string(),
        last.home_pages as f64 / PAGES_PER_MIB as f64,
        last.pages as f64 / PAGES_PER_MIB as f64,
        when(0.5),
        when(0.9),
        when(0.99),
        "",
        last.hint_faults,
    );
    if last.samples > 0 {
        text.push_str(&format!(
            ", {} samples of which {} ({:.1} %) useful",
            last.samples,
            last.useful,
            percent(last.useful, last.samples)
        ));
    }
    text.push_str(&format!(
        ", {:.1} million accesses a second, daemon {:.1} s CPU\n",
        last.accesses as f64 / last.at_s.max(1e-3) / 1e6,
        course.daemon_cpu_s
    ));
    text
}

#[cfg(test)]
mod tests {
    use super::super::course::{Evidence, Far, Plan};
    use super::*;

    fn course(by: Evidence, from: Far) -> Course {
        let plan = Plan { from, by, mib: 1, seconds: 4, sample_every: 200, seed: 1 };
        let sampled = u64::from(by == Evidence::Samples);
        let moment = |second: u64| Moment {
            at_s: second as f64,
            home_pages: 64 * second,
            pages: 256,
            accesses: 1_000_000 * second,
            hint_faults: (1 - sampled) * 500 * second,
            samples: sampled * 100 * second,
            useful: sampled * 25 * second,
        };
        Course { plan, kernel: "6.12".to_owned(), daemon_cpu_s: 0.5, moments: (0..=4).map(moment).collect() }
    }

    #[test]
    fn shares_rates_and_the_times_at_which_they_are_reached() {
        let courses = [Evidence::Samples, Evidence::Kernel].map(|by| course(by, Far::Dram));
        assert_eq!(courses[0].home_at_s(0.5), Some(2.0));
        assert_eq!(Course { moments: vec![], ..courses[0].clone() }.home_at_s(0.5), None);
        let text = text(&courses);
        assert!(text.starts_with("1 MiB on node 1 (DRAM)"), "{text}");
        let row = text.lines().find(|line| line.starts_with("    2 ")).unwrap();
        let cells: Vec<&str> = row.split_whitespace().collect();
        assert_eq!(cells, ["2", "|", "50.0", "0", "25.0", "|", "50.0", "500", "-"], "{text}");
        assert!(text.contains("half after 2 s, nine tenths after 4 s, 99 % after 4 s"), "{text}");
        assert!(text.contains("400 samples of which 100 (25.0 %) useful, 1.0 million accesses"), "{text}");
    }

    #[test]
    fn evidence_has_a_manager_that_can_be_checked() {
        for from in [Far::Cxl, Far::Dram] {
            for &by in from.evidence() {
                let manager = course(by, from).plan.manager().unwrap();
                assert_eq!(manager.is_none(), by == Evidence::Kernel);
                let reads = manager.is_some_and(|manager| manager.reads_samples());
                assert_eq!(reads, by == Evidence::Samples);
            }
        }
    }
}
