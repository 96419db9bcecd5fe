//! DAMON's regions as a source of the machine.

use std::any::Any;
use std::os::fd::BorrowedFd;

use thermocline_core::units::Nanos;

use super::{DamonSource, text};
use crate::actuator::Actuator;
use crate::damon::offer_source;
use crate::root::Root;
use crate::scope::Member;
use crate::source::{Counted, EvidenceSource, Frames, Opened, Opening, Turn};

/// Creates the kdamonds, starts those of nodes and reads them. A dry run creates none.
pub(super) fn open(opening: &mut Opening<'_>) -> Opened {
    let Some(actuator) = opening.actuator.as_deref_mut() else { return Ok(None) };
    let (setup, watch) = offer_source(opening.root, opening.config, opening.found)?;
    setup.start(opening.root, actuator).map_err(|why| format!("DAMON was not started: {why}"))?;
    let source = DamonSource::open(opening.root, &opening.config.source.damon, &watch)?;
    Ok(Some(Box::new(source)))
}

impl EvidenceSource for DamonSource {
    fn describe(&self) -> String {
        match self.names_frames_alone() {
            true => format!("DAMON's regions of {} nodes", self.stats.started),
            false => "DAMON's regions of processes".to_owned(),
        }
    }

    fn counted(&self) -> Counted {
        let stats = self.stats();
        let counted = Counted::new(&stats, text::text(&stats));
        stats.processes.iter().fold(counted, Counted::and)
    }

    /// Snapshots first, and then pages of their regions, as far as the budget allows; the rest
    /// follows at the next poll.
    fn poll(&mut self, turn: &mut Turn<'_>) -> bool {
        self.read(turn.topology, |snapshot| (turn.regions)(snapshot));
        if let Some(owners) = &mut turn.owners {
            self.look_up(turn.now, &mut **owners, turn.region_pages);
        }
        self.take_pages(turn.now, turn.frames, turn.topology, turn.region_pages);
        false
    }

    fn as_any(&self) -> &dyn Any {
        self
    }

    fn fds(&self) -> Vec<BorrowedFd<'_>> {
        self.fds().collect()
    }

    fn frames(&self, _root: &Root) -> Frames {
        if self.names_frames_alone() { Frames::Asked } else { Frames::Named }
    }

    fn follows_all(&self) -> bool {
        !self.names_frames_alone()
    }

    fn follow(
        &mut self,
        now: Nanos,
        members: &mut dyn Iterator<Item = Member>,
        actuator: &mut Actuator,
    ) -> Option<String> {
        self.follow(now, members, actuator)
    }

    fn is_preparing(&self) -> bool {
        self.is_preparing()
    }

    fn check(&mut self) -> Option<String> {
        let running = self.look()?;
        Some(format!(
            "{running} kdamonds of ours still run: somebody has ended the others, and their regions are read no more; \
             start thermocline again to have them read"
        ))
    }
}
