//! What is asked of a recording's heat, as it is written on a command line.

use std::str::FromStr;

use thermocline_sim::units::Bytes;
use thermocline_trace::heat::HeatSource;

/// The loss of time that is acceptable by default.
pub const LOSS: f64 = 0.03;

/// What is asked.
#[derive(Clone, Debug)]
pub struct Asked {
    /// The loss of time that is acceptable, against all memory in DRAM.
    pub loss: f64,
    /// Latency of DRAM and of the slower memory in ns, if not what the firmware reported.
    pub latency_ns: Option<[f64; 2]>,
    /// The share of its time that the program waits for memory while all of it is in DRAM.
    pub memory_bound: Option<f64>,
    /// Sizes of DRAM; by default 5 to 100 % of the memory that was seen.
    pub sizes: Vec<Size>,
    /// Which evidence to use, where there are several kinds.
    pub source: Option<HeatSource>,
}

impl Default for Asked {
    fn default() -> Asked {
        Asked { loss: LOSS, latency_ns: None, memory_bound: None, sizes: Vec::new(), source: None }
    }
}

/// A size of DRAM.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Size {
    /// A share of the memory that was seen.
    Share(f64),
    /// So much.
    Bytes(Bytes),
}

impl FromStr for Size {
    type Err = String;

    fn from_str(text: &str) -> Result<Size, String> {
        let size = match text.trim().ends_with('%') {
            true => Size::Share(share(text)?),
            false => Size::Bytes(text.parse()?),
        };
        match size {
            Size::Share(0.0) | Size::Bytes(Bytes(0)) => {
                Err("no DRAM is no plan; give more than 0".to_owned())
            }
            size => Ok(size),
        }
    }
}

/// A share, as `3%` or `0.03`.
///
/// # Errors
/// It is none.
pub fn share(text: &str) -> Result<f64, String> {
    let (number, factor) = text.trim().strip_suffix('%').map_or((text.trim(), 1.0), |n| (n.trim(), 100.0));
    let share = number.parse::<f64>().ok().map(|number| number / factor);
    share
        .filter(|share| (0.0..=1.0).contains(share))
        .ok_or_else(|| format!("\"{text}\" is no share from 0 to 100 %; write it as in 3% or 0.03"))
}

/// Latencies of two nodes, the faster first.
///
/// # Errors
/// They are written otherwise.
pub fn latency(text: &str) -> Result<[f64; 2], String> {
    let wrong = || format!("\"{text}\" is not two latencies; write them as in 0=100,2=250");
    let one = |part: &str| {
        let (node, ns) = part.split_once('=').ok_or_else(wrong)?;
        node.trim().parse::<u16>().map_err(|_| wrong())?;
        ns.trim().parse::<f64>().ok().filter(|ns| *ns > 0.0 && *ns <= 1e6).ok_or_else(wrong)
    };
    match text.split(',').map(one).collect::<Result<Vec<f64>, String>>()?[..] {
        [a, b] => Ok([a.min(b), a.max(b)]),
        _ => Err(wrong()),
    }
}

/// A source of evidence by its name.
///
/// # Errors
/// There is none of that name.
pub fn source(text: &str) -> Result<HeatSource, String> {
    let named = HeatSource::ALL.into_iter().find(|source| source.text() == text);
    named.ok_or_else(|| "it is one of hint-faults, samples and regions".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_of_dram_and_shares_are_read() {
        assert_eq!("25%".parse(), Ok(Size::Share(0.25)));
        assert_eq!("8GiB".parse(), Ok(Size::Bytes(Bytes(8 << 30))));
        for wrong in ["0%", "0B", "-1%", "120%", "8", "x"] {
            assert!(wrong.parse::<Size>().is_err(), "{wrong}");
        }
        assert_eq!((share("3%"), share("0.03"), share("100 %")), (Ok(0.03), Ok(0.03), Ok(1.0)));
        assert!(share("3").is_err() && share("nan").is_err());
        assert_eq!(latency("2=250, 0=100"), Ok([100.0, 250.0]));
        for wrong in ["0=100", "0=100,1=0", "100,250", "0=1,1=2,2=3", "0=nan,1=2"] {
            assert!(latency(wrong).is_err(), "{wrong}");
        }
    }
}
