//! The mover on the fake kernel, and on the running one.

mod live;
mod outcomes;
mod property;
mod thread;

use thermocline_core::config::SharedPages;
use thermocline_core::moves::{Batch, BatchId, Direction, Move, Outcome};
use thermocline_core::topology::{NodeState, Watermarks};
use thermocline_core::units::{NodeId, Pfn, Pid, VirtPage};

use super::fake::Fake;
use super::work::Worker;
use super::{MoverConfig, MoverStats};

const PID: Pid = Pid(7);
const SLOW: NodeId = NodeId(2);
const FAST: NodeId = NodeId(0);

/// A move of the page (or folio) at `vpn` from the slow node, with the frame that the fake maps
/// there.
fn mv(vpn: u64, order: u8) -> Move {
    let page = VirtPage { pid: PID, vpn };
    Move { page, pfn: Some(Pfn(vpn + 0x10_0000)), order, from: SLOW }
}

/// A batch to the fast node.
fn batch(moves: Vec<Move>) -> Batch {
    Batch { id: BatchId(1), pid: PID, target: FAST, direction: Direction::Promote, moves }
}

fn config(shared_pages: SharedPages) -> MoverConfig {
    MoverConfig { shared_pages, ..MoverConfig::default() }
}

/// A node with room for `room` pages above its high watermark of 50 and the reserve of 16 MiB.
fn node_with_room(room: u64) -> impl FnMut(NodeId) -> Option<NodeState> + Send + 'static {
    move |node| {
        let watermarks = Watermarks { high_pages: 50, ..Watermarks::default() };
        Some(NodeState { node, free_pages: 50 + 4096 + room, managed_pages: 1 << 20, watermarks })
    }
}

/// A worker with room for everything, and its counters.
struct Bench {
    worker: Worker<Fake>,
    stats: MoverStats,
}

impl Bench {
    fn new(fake: &Fake) -> Bench {
        Bench::with(fake, SharedPages::Move, 1 << 20)
    }

    fn with(fake: &Fake, shared_pages: SharedPages, room: u64) -> Bench {
        let worker = Worker::new(fake.clone(), &config(shared_pages), Box::new(node_with_room(room)));
        Bench { worker, stats: MoverStats::default() }
    }

    fn run(&mut self, moves: Vec<Move>) -> Vec<Outcome> {
        self.worker.run(&batch(moves), &mut self.stats)
    }
}
