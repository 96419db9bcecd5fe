//! How far a manager is behind the best one, and whether its runs are enough to say so.

use serde::Serialize;
use statrs::distribution::{ContinuousCDF, StudentsT};

use super::columns;

/// Confidence of an interval.
const CONFIDENCE: f64 = 0.95;

/// A manager's share of the oracle beside the best one's.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Behind {
    /// The manager with the highest share.
    best: String,
    /// By how much the mean is lower, from 0 to 1.
    by: f64,
    /// With 95 % confidence it is lower by `by` plus or minus this (Welch's t interval); `None` if
    /// there are too few runs or all are equal.
    within: Option<f64>,
}

impl Behind {
    /// Whether it is behind with certainty; `None` if the runs do not suffice.
    fn certain(&self) -> Option<bool> {
        self.within.map(|within| self.by > within)
    }
}

/// For each group of values, how far its mean is behind the highest; `None` for the highest itself,
/// and for groups without values.
pub(super) fn behind(groups: &[(String, Vec<f64>)]) -> Vec<Option<Behind>> {
    let means: Vec<f64> = groups.iter().map(|(_, values)| mean(values)).collect();
    let known = |at: &usize| !groups[*at].1.is_empty();
    let all = 0..groups.len();
    let Some(best) = all.clone().filter(known).max_by(|a, b| means[*a].total_cmp(&means[*b])) else {
        return vec![None; groups.len()];
    };
    let of = |at: usize| Behind {
        best: groups[best].0.clone(),
        by: means[best] - means[at],
        within: within(&groups[best].1, &groups[at].1),
    };
    all.map(|at| (at != best && known(&at)).then(|| of(at))).collect()
}

/// A line for each manager that is behind; empty for a single one.
pub(super) fn text(of: &[(String, Option<Behind>)]) -> String {
    let mut lines =
        vec![["behind the best", "points of the oracle's", "at 95 % confidence"].map(str::to_owned).to_vec()];
    for (manager, behind) in of {
        let Some(behind) = behind else { continue };
        let points = match behind.within {
            Some(within) => format!("{:.1} ± {:.1}", behind.by * 100.0, within * 100.0),
            None => format!("{:.1}", behind.by * 100.0),
        };
        let said = match behind.certain() {
            Some(true) => "behind",
            Some(false) => "not told apart",
            None => "too few runs",
        };
        lines.push(vec![format!("{manager} behind {}", behind.best), points, said.to_owned()]);
    }
    if lines.len() > 1 { columns(&lines) } else { String::new() }
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len().max(1) as f64
}

/// Half of Welch's interval for the difference of two means; `None` if it is not defined.
fn within(a: &[f64], b: &[f64]) -> Option<f64> {
    let of_mean = |values: &[f64]| {
        let (count, mean) = (values.len() as f64, mean(values));
        let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
        (values.len() > 1).then(|| (squares / (count - 1.0) / count, count - 1.0))
    };
    let ((var_a, free_a), (var_b, free_b)) = (of_mean(a)?, of_mean(b)?);
    let var = var_a + var_b;
    let free = var.powi(2) / (var_a.powi(2) / free_a + var_b.powi(2) / free_b);
    let t = StudentsT::new(0.0, 1.0, free).ok()?;
    Some(t.inverse_cdf(f64::midpoint(1.0, CONFIDENCE)) * var.sqrt())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn groups(of: &[(&str, &[f64])]) -> Vec<(String, Vec<f64>)> {
        of.iter().map(|(name, values)| ((*name).to_owned(), values.to_vec())).collect()
    }

    #[test]
    fn intervals_are_those_of_the_tables() {
        // Equal variances of 1/3 each and 4 degrees of freedom: t is 2.776.
        let found = within(&[1.0, 2.0, 3.0], &[11.0, 12.0, 13.0]).unwrap();
        assert!((found - 2.776 * (2.0_f64 / 3.0).sqrt()).abs() < 1e-3, "{found}");
        // Variances of 1 and 0: the degrees of freedom of the first, 2, with a t of 4.303.
        let found = within(&[1.0, 2.0, 3.0], &[5.0, 5.0, 5.0]).unwrap();
        assert!((found - 4.303 * (1.0_f64 / 3.0).sqrt()).abs() < 1e-3, "{found}");
        assert_eq!(within(&[1.0], &[1.0, 2.0]), None);
        assert_eq!(within(&[1.0, 1.0], &[2.0, 2.0]), None, "no spread is no knowledge of it");
    }

    #[test]
    fn who_is_behind_and_who_only_seems_so() {
        let groups = groups(&[
            ("none", &[0.40, 0.42, 0.41]),
            ("numab2", &[0.90, 0.92, 0.91]),
            ("thermocline", &[0.88, 0.92, 0.90]),
            ("once", &[0.7]),
        ]);
        let found = behind(&groups);
        assert_eq!(found[1], None);
        let of = |at: usize| found[at].clone().unwrap();
        assert!((of(0).by - 0.5).abs() < 1e-9 && of(0).best == "numab2");
        assert_eq!([0, 2, 3].map(|at| of(at).certain()), [Some(true), Some(false), None]);
        let names = groups.iter().map(|(name, _)| name.clone());
        let text = text(&names.zip(found).collect::<Vec<_>>());
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 4, "{text}");
        assert!(lines[1].starts_with("none behind numab2") && lines[1].ends_with("  behind"), "{text}");
        assert!(lines[2].contains("1.0 ± ") && lines[2].ends_with("not told apart"), "{text}");
        assert!(lines[3].contains("21.0  ") && lines[3].ends_with("too few runs"), "{text}");
    }

    #[test]
    fn one_manager_is_behind_nobody() {
        let found = behind(&groups(&[("none", &[0.4, 0.5])]));
        assert_eq!(found, [None]);
        assert_eq!(text(&[("none".to_owned(), None)]), "");
        assert_eq!(behind(&[]), []);
    }
}
