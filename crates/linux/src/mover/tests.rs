//! The mover on the kernel that runs: one node is enough for everything but a move.

use std::time::Duration;

use thermocline_core::moves::{Batch, BatchId, Direction, Move, Outcome};
use thermocline_core::topology::NodeState;
use thermocline_core::units::{NodeId, Pid, VirtPage};

use super::{Mover, MoverConfig};

const WAIT: Duration = Duration::from_secs(20);

fn roomy(node: NodeId) -> Option<NodeState> {
    Some(NodeState { node, free_pages: 1 << 20, ..NodeState::default() })
}

fn one(pid: Pid, vpn: u64, target: u16) -> Batch {
    let page = VirtPage { pid, vpn };
    let moves = vec![Move { page, pfn: None, order: 0, from: NodeId(0) }];
    Batch { id: BatchId(1), pid, target: NodeId(target), direction: Direction::Promote, moves }
}

#[test]
fn a_page_that_is_there_is_left_there() {
    let memory = vec![3u8; 8192];
    let vpn = (memory.as_ptr() as u64 + 4095) >> 12;
    let mut mover = Mover::start(MoverConfig::default(), roomy).unwrap();
    mover.submit(one(Pid(std::process::id()), vpn, 0)).unwrap();
    let outcome = mover.wait(WAIT).unwrap();
    assert_eq!(outcome.outcomes, [Outcome::AlreadyThere]);
    assert!(outcome.time.0 > 0);
    let stats = mover.stats();
    assert_eq!((stats.batches, stats.calls, stats.queries), (1, 0, 1));
    assert!(mover.shutdown(WAIT).finished);
    assert!(memory.iter().all(|&b| b == 3));
}
