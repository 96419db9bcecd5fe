//! The hot list as a source of the machine.

use std::any::Any;
use std::time::Duration;

use super::{ChmuSource, text};
use crate::root::Root;
use crate::source::{Counted, EvidenceSource, Frames, Opened, Opening, Turn, lab_device};

pub(super) fn open(opening: &mut Opening<'_>) -> Opened {
    let source = ChmuSource::open(opening.root, &opening.config.source.chmu, opening.now)?;
    Ok(Some(Box::new(source)))
}

impl EvidenceSource for ChmuSource {
    fn describe(&self) -> String {
        format!("the hot list of the lab's device, which has {} counters", self.stats().counters)
    }

    fn counted(&self) -> Counted {
        let stats = self.stats();
        Counted::new(&stats, text::text(&stats))
    }

    fn poll(&mut self, turn: &mut Turn<'_>) -> bool {
        let Some(owners) = &mut turn.owners else { return false };
        let known = (turn.frames, turn.topology);
        self.read(turn.max, turn.now, known, &mut **owners, turn.accesses) >= turn.max
    }

    fn as_any(&self) -> &dyn Any {
        self
    }

    fn look_every(&self) -> Option<Duration> {
        Some(lab_device::LOOK_EVERY)
    }

    fn frames(&self, _root: &Root) -> Frames {
        Frames::Asked
    }
}
