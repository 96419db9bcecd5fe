//! The band of one rate: what a number of accesses in a time says about the rate behind them.

use statrs::distribution::{ContinuousCDF, Gamma};

/// The rates, per unit of time, between which the true one lies with at least this probability,
/// whatever it is (F. Garwood, 1936): `hits` accesses were found in the time `watched`. The upper
/// end is infinite if nothing was watched.
///
/// It holds for a fixed time, in which the hits are by chance, and for a fixed number of hits, in
/// which the time is.
pub fn rate_band(hits: f64, watched: f64, probability: f64) -> (f64, f64) {
    let tail = (1.0 - probability) / 2.0;
    let end = |shape: f64, below: f64| match Gamma::new(shape, watched) {
        Ok(gamma) => gamma.inverse_cdf(below),
        Err(_) => f64::INFINITY,
    };
    let low = if hits > 0.0 && watched > 0.0 { end(hits, tail) } else { 0.0 };
    (low, end(hits + 1.0, 1.0 - tail))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_band_of_nothing_found_is_the_rule_of_three() {
        // exp(-2.996) is 0.05: with 90 % between both ends, 5 % are above.
        let (low, high) = rate_band(0.0, 10.0, 0.9);
        assert_eq!(low, 0.0);
        assert!((high - 0.2996).abs() < 1e-4, "{high}");
        assert_eq!(rate_band(0.0, 0.0, 0.9), (0.0, f64::INFINITY));
    }

    #[test]
    fn the_band_of_ten_is_that_of_the_tables() {
        // The 95 % interval of a Poisson count of 10: 4.795 to 18.39.
        let (low, high) = rate_band(10.0, 1.0, 0.95);
        assert!((low - 4.795).abs() < 1e-3 && (high - 18.390).abs() < 1e-3, "{low} {high}");
    }
}
