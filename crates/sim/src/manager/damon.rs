//! DAMON's two tiers as manager (S3): one kdamond per node, demoting from the top tier and
//! promoting from the rest.

use thermocline_core::units::Nanos;

use super::{Manager, Notes};
use crate::kernel::damon::Damon;
use crate::kernel::damon::frames::Frames;
use crate::kernel::damon::settings::{Action, Settings};
use crate::machine::{Machine, NodeIndex};
use crate::settings::KernelSettings;
use crate::system::{NEVER, System};

/// See the module's description.
#[derive(Debug)]
pub struct Damons {
    name: &'static str,
    kdamonds: Vec<Damon>,
    frames: Frames,
}

impl Damons {
    /// A kdamond for each node that has somewhere to move pages to; upwards, to node `to` if it is
    /// given.
    pub fn new(name: &'static str, machine: &Machine, settings: &Settings, to: Option<NodeIndex>) -> Damons {
        let kdamond = |(i, node): (usize, &crate::machine::SimNode)| {
            let i = i as NodeIndex;
            if machine.is_top(i) {
                let target = node.demotion_targets.first()?;
                return Some(Damon::new(i, *target, Action::Demote, settings));
            }
            // Else the nearest node of the top tier.
            let distance = |to: &NodeIndex| {
                machine.topology.distance(node.id, machine.nodes[usize::from(*to)].id).unwrap_or(u8::MAX)
            };
            let target = to.or_else(|| (0..machine.top).min_by_key(distance))?;
            Some(Damon::new(i, target, Action::Promote, settings))
        };
        Damons {
            name,
            kdamonds: machine.nodes.iter().enumerate().filter_map(kdamond).collect(),
            frames: Frames::new(machine.nodes.len()),
        }
    }
}

impl Manager for Damons {
    fn name(&self) -> String {
        self.name.to_owned()
    }

    /// Demotion is left to the scheme.
    fn configure(&mut self, kernel: &mut KernelSettings) {
        kernel.demotion_enabled = false;
    }

    fn due(&self) -> Nanos {
        self.kdamonds.iter().map(|d| d.due).min().unwrap_or(NEVER)
    }

    fn run(&mut self, system: &mut System) {
        self.frames.follow(&system.memory);
        for kdamond in &mut self.kdamonds {
            if kdamond.due <= system.now {
                kdamond.run(system, &mut self.frames);
            }
        }
    }

    fn finish(&mut self, _system: &System) -> Result<Notes, String> {
        let sum = |of: fn(&Damon) -> u64| self.kdamonds.iter().map(of).sum::<u64>();
        let figures = [
            ("regions", sum(|d| d.regions() as u64)),
            ("tried", sum(|d| d.tried)),
            ("accessed", sum(|d| d.accessed)),
            ("moved", sum(|d| d.moved)),
            ("sample_ms", self.kdamonds.iter().map(|d| d.sample().ms()).max().unwrap_or(0)),
            ("kdamond_ms", sum(|d| (d.spent_ns / 1e6) as u64)),
        ];
        Ok(Notes {
            figures: figures.into_iter().map(|(name, n)| (name.to_owned(), n)).collect(),
            ..Notes::default()
        })
    }
}
