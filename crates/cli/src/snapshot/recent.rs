//! The latest decisions of the engine, for a reader that follows them.

use serde::Serialize;
use thermocline_core::journal::{Decision, Journal};

use super::fixed::SCHEMA;

/// Decisions in one answer at most. The loop serialises them, and must not be kept by it.
const DECISIONS_MAX: usize = 256;

/// The newest decisions that a reader does not have yet.
#[derive(Clone, Debug, Serialize)]
pub struct Recent {
    /// See [`SCHEMA`].
    pub schema: u64,
    /// The number to ask from next time.
    pub next: u64,
    /// The decisions, oldest first; of more than 256 the oldest are left out.
    pub decisions: Vec<Decision>,
}

impl Recent {
    /// The decisions of `journal` from number `since` on.
    pub fn new(journal: &Journal, since: u64) -> Recent {
        let next = journal.written();
        let (kept, _) = journal.since(since.max(next.saturating_sub(DECISIONS_MAX as u64)));
        Recent { schema: SCHEMA, next, decisions: kept.copied().collect() }
    }
}

#[cfg(test)]
mod tests {
    use thermocline_core::candidate::Reason;
    use thermocline_core::journal::What;
    use thermocline_core::moves::Direction;
    use thermocline_core::units::{Nanos, NodeId, Pid, VirtPage};
    use thermocline_core::weigh::Sources;

    use super::*;

    #[test]
    fn a_reader_gets_what_is_new_and_never_more_than_the_newest() {
        let mut journal = Journal::new(1000);
        let decision = |vpn| Decision {
            time: Nanos(vpn),
            what: What::Proposed,
            page: VirtPage { pid: Pid(7), vpn },
            pfn: None,
            pages: 1,
            direction: Direction::Promote,
            from: NodeId(1),
            to: None,
            score: 900,
            why: Reason::ShortLatency,
            sources: Sources::default(),
        };
        (0..300).for_each(|n| journal.write(decision(n)));
        let all = Recent::new(&journal, 0);
        assert_eq!((all.next, all.decisions.len(), all.decisions[0].time), (300, 256, Nanos(44)));
        journal.write(decision(300));
        let fresh = Recent::new(&journal, all.next);
        assert_eq!((fresh.next, fresh.decisions.len(), fresh.decisions[0].time), (301, 1, Nanos(300)));
        assert_eq!(Recent::new(&journal, 999).decisions.len(), 0, "the reader knows another daemon's");
    }
}
