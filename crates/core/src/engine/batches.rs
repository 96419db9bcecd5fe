//! Batches under construction: by target, process and direction, first fit.

use crate::admission::Admitted;
use crate::moves::{Batch, BatchId, Direction, Move};
use crate::units::{NodeId, Pid};

/// The batches that a tick builds.
#[derive(Debug)]
pub(super) struct Batches {
    open: Vec<Open>,
    batch_pages: u64,
    batches_free: usize,
}

/// A batch and the candidates behind its moves.
#[derive(Debug)]
pub(super) struct Open {
    pub(super) batch: Batch,
    pub(super) candidates: Vec<Admitted>,
    pages: u64,
}

impl Batches {
    /// At most `batches_free` batches of at most `batch_pages` base pages, except that a larger
    /// folio goes alone.
    pub(super) fn new(batches_free: usize, batch_pages: u64) -> Batches {
        Batches { open: Vec::new(), batch_pages, batches_free }
    }

    /// Whether no folio of any process would fit.
    pub(super) fn are_full(&self) -> bool {
        self.open.len() >= self.batches_free && self.open.iter().all(|o| o.pages >= self.batch_pages)
    }

    /// The batch that a folio can join, created with the next number if necessary; `None` if all
    /// batches are taken.
    pub(super) fn find(
        &mut self,
        next: &mut u64,
        target: NodeId,
        pid: Pid,
        direction: Direction,
        pages: u64,
    ) -> Option<&mut Open> {
        let fits = |o: &Open| {
            let b = &o.batch;
            (b.target, b.pid, b.direction) == (target, pid, direction) && o.pages + pages <= self.batch_pages
        };
        let at = match self.open.iter().position(fits) {
            Some(at) => at,
            None if self.open.len() < self.batches_free => {
                // Room for as many single pages, so that nothing is copied as it grows.
                let room = self.batch_pages as usize;
                let moves = Vec::with_capacity(room);
                let batch = Batch { id: BatchId(*next), pid, target, direction, moves };
                *next += 1;
                self.open.push(Open { batch, candidates: Vec::with_capacity(room), pages: 0 });
                self.open.len() - 1
            }
            None => return None,
        };
        self.open.get_mut(at)
    }

    pub(super) fn into_open(self) -> Vec<Open> {
        self.open
    }
}

impl Open {
    pub(super) fn push(&mut self, m: Move, admitted: Admitted) {
        self.pages += m.pages();
        self.batch.moves.push(m);
        self.candidates.push(admitted);
    }
}
