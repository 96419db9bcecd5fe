//! Reports how much the programs work to the engine, for what a move must gain.

use thermocline_core::access::{Evidence, Programs};
use thermocline_core::config::Config;
use thermocline_core::units::Nanos;

use super::cpu_time;
use crate::root::Root;

/// See the module's description.
#[derive(Debug)]
pub(super) struct ProgramsReader {
    root: Root,
    /// `None` if nothing has to be reported.
    due: Option<Nanos>,
}

impl ProgramsReader {
    pub(super) fn new(root: &Root, config: &Config) -> ProgramsReader {
        ProgramsReader { root: root.clone(), due: config.payoff.enabled.then_some(Nanos(0)) }
    }

    /// Reports when due; returns why that is not possible, once: then nothing is reported any more.
    pub(super) fn report(&mut self, at: Nanos, observe: &mut dyn FnMut(Evidence<'_>)) -> Option<String> {
        self.due.filter(|due| at >= *due)?;
        self.due = None;
        match cpu_time::read(&self.root) {
            Ok(Some(cpu)) => {
                observe(Evidence::Programs(Programs { time: at, cpu }));
                self.due = Some(at.plus(Programs::EVERY));
                None
            }
            Ok(None) => Some("it does not tell".to_owned()),
            Err(error) => Some(error.to_string()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn the_programs_time_is_reported_every_five_seconds() {
        let folder = tempfile::tempdir().unwrap();
        let root = Root::at(folder.path());
        fs::create_dir_all(&root.proc).unwrap();
        fs::write(root.proc.join("stat"), "cpu  100 0 0 0\n").unwrap();
        let mut config = Config::default();
        config.payoff.enabled = true;
        let mut reader = ProgramsReader::new(&root, &config);
        let mut seen = Vec::new();
        let mut report = |s: u64| {
            let mut told = 0;
            let why = reader.report(Nanos::from_s(s), &mut |evidence| {
                if let Evidence::Programs(programs) = evidence {
                    told += 1;
                    seen.push(programs);
                }
            });
            (told, why.is_some())
        };
        assert_eq!([1, 2, 5, 6].map(&mut report), [(1, false), (0, false), (0, false), (1, false)]);
        fs::write(root.proc.join("stat"), "nonsense").unwrap();
        assert_eq!([11, 16].map(&mut report), [(0, true), (0, false)], "told once");
        assert_eq!(seen[0], Programs { time: Nanos::from_s(1), cpu: Nanos::from_s(1) });
    }
}
