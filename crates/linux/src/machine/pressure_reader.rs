//! Reports the scopes' memory pressure to the engine, for its brakes.

use thermocline_core::access::Evidence;
use thermocline_core::config::Config;
use thermocline_core::units::Nanos;

use super::Moving;
use crate::root::{KernelFileError, Root};
use crate::scope::Pressures;

/// See the module's description.
#[derive(Debug)]
pub(super) struct PressureReader {
    pressures: Pressures,
    every: Nanos,
    due: Nanos,
    /// Why a scope's pressure could not be read last time.
    why: Option<String>,
}

impl PressureReader {
    /// Reads nothing if nothing moves, or nothing is braked.
    pub(super) fn new(
        root: &Root,
        config: &Config,
        moving: Moving,
    ) -> Result<PressureReader, KernelFileError> {
        let needed = config.brake.enabled && moving == Moving::Live;
        let pressures = if needed { Pressures::new(root, &config.scope)? } else { Pressures::default() };
        // Twice in a period of the brake: no period is judged by figures older than half a period.
        let every = Nanos(Nanos::from_ms(config.brake.period_ms).0 / 2);
        Ok(PressureReader { pressures, every, due: Nanos(0), why: None })
    }

    /// Reports when due; returns why something cannot be read, once.
    pub(super) fn report(&mut self, at: Nanos, mut observe: impl FnMut(Evidence<'_>)) -> Option<String> {
        if at < self.due {
            return None;
        }
        self.due = at.plus(self.every);
        let mut why = None;
        for pressure in self.pressures.read(at) {
            match pressure {
                Ok(pressure) => observe(Evidence::Pressure(pressure)),
                Err(error) => why = Some(error.to_string()),
            }
        }
        let news = why.clone().filter(|_| why != self.why);
        self.why = why;
        news
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn pressure_is_told_twice_a_period_and_its_absence_once() {
        let dir = tempfile::tempdir().unwrap();
        let root = Root::at(dir.path());
        let mut pressure_reader = PressureReader::new(&root, &Config::default(), Moving::Live).unwrap();
        let tell = |pressure_reader: &mut PressureReader, ms| {
            let mut told = 0;
            let why = pressure_reader.report(Nanos::from_ms(ms), |_| told += 1);
            (told, why.is_some())
        };
        assert_eq!(
            [0, 1000].map(|ms| tell(&mut pressure_reader, ms)),
            [(0, true), (0, false)],
            "the kernel has none"
        );
        fs::create_dir_all(root.proc.join("pressure")).unwrap();
        fs::write(root.proc.join("pressure/memory"), "some total=1\nfull total=0\n").unwrap();
        let told = [1500, 2000, 2999, 3000].map(|ms| tell(&mut pressure_reader, ms).0);
        assert_eq!(told, [0, 1, 0, 1]);
        let mut dry = PressureReader::new(&root, &Config::default(), Moving::Off).unwrap();
        assert_eq!(tell(&mut dry, 0), (0, false), "nothing is braked where nothing moves");
    }
}
