//! The mover on the running kernel: one node is enough for everything except a move.

use std::time::Duration;

use super::super::Mover;
use super::*;

const WAIT: Duration = Duration::from_secs(20);

/// A batch with one page of a process, to and from node 0.
fn one(pid: Pid, vpn: u64) -> Batch {
    let page = VirtPage { pid, vpn };
    let moves = vec![Move { page, pfn: None, order: 0, from: NodeId(0) }];
    Batch { id: BatchId(1), pid, target: NodeId(0), direction: Direction::Promote, moves }
}

fn start() -> Mover {
    Mover::start(MoverConfig::default(), node_with_room(1 << 20)).unwrap()
}

#[test]
fn a_page_that_is_there_is_left_there() {
    let memory = vec![3u8; 8192];
    let vpn = (memory.as_ptr() as u64 + 4095) >> 12;
    let mut mover = start();
    mover.submit(one(Pid(std::process::id()), vpn)).unwrap();
    let outcome = mover.wait(WAIT).unwrap();
    assert_eq!(outcome.outcomes, [Outcome::AlreadyThere]);
    assert!(outcome.time.0 > 0);
    let stats = mover.stats();
    assert_eq!((stats.batches, stats.calls, stats.queries), (1, 0, 1));
    assert!(mover.shutdown(WAIT).finished);
    assert!(memory.iter().all(|&b| b == 3));
}

#[test]
fn processes_without_that_page_are_answered() {
    let mut mover = start();
    let me = Pid(std::process::id());
    for (pid, vpn) in [(me, 0), (me, (1 << 45) - 1), (Pid(u32::MAX), 0x1000), (Pid(0), 0x1000)] {
        mover.submit(one(pid, vpn)).unwrap();
        assert_eq!(mover.wait(WAIT).unwrap().outcomes, [Outcome::Gone], "pid {} page {vpn:#x}", pid.0);
    }
}

#[test]
fn a_process_that_has_ended_is_gone_even_before_its_parent_looks() {
    let mut child = std::process::Command::new("true").spawn().unwrap();
    let pid = Pid(child.id());
    let stat = format!("/proc/{}/stat", pid.0);
    let end = std::time::Instant::now() + WAIT;
    while !std::fs::read_to_string(&stat).unwrap().contains(") Z") && std::time::Instant::now() < end {
        std::thread::sleep(Duration::from_millis(1));
    }
    let mut mover = start();
    mover.submit(one(pid, 0x1000)).unwrap();
    assert_eq!(mover.wait(WAIT).unwrap().outcomes, [Outcome::Gone]);
    child.wait().unwrap();
    mover.submit(one(pid, 0x1000)).unwrap();
    assert_eq!(mover.wait(WAIT).unwrap().outcomes, [Outcome::Gone]);
}

#[test]
fn without_permission_nothing_is_learned() {
    let stranger = std::process::Command::new("sleep").arg("60").spawn();
    let mut stranger = stranger.unwrap();
    let pid = Pid(stranger.id());
    let answer = std::thread::spawn(move || {
        // In Linux credentials belong to threads: only this one becomes user nobody.
        let nobody = rustix::thread::Uid::from_raw(65534);
        rustix::thread::set_thread_res_uid(nobody, nobody, nobody)
            .map(|()| crate::sys::query_pages(pid, &[0x1000], &mut [0]))
    });
    let answer = answer.join().unwrap();
    stranger.kill().unwrap();
    stranger.wait().unwrap();
    match answer {
        Ok(answer) => assert_eq!(answer, Err(crate::sys::MovePagesError::NotPermitted(pid))),
        Err(e) => eprintln!("not checked: only root can become another user ({e})"),
    }
}
