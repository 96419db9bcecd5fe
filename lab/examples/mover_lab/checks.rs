//! The checks.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};
use std::time::Duration;

use rustix::process::Signal;
use rustix::thread::{CapabilitySet, capabilities, set_capabilities};
use thermocline_core::config::SharedPages;
use thermocline_core::moves::{Move, Outcome};
use thermocline_core::topology::NodeState;
use thermocline_core::units::{NodeId, Pid, VirtPage};
use thermocline_linux::mover::{Mover, MoverConfig};

use crate::holder::Holder;
use crate::machine::{
    Checked, FAST, Machine, SLOW, SMALL, all, batch, ensure, numa_maps, run, tally, vmstat,
};

type Check = fn(&Machine) -> Checked;

/// Name and check.
pub(crate) const ALL: &[(&str, Check)] = &[
    ("pages-move", pages_move),
    ("changing-pages-keep-their-data", changing_pages_keep_their_data),
    ("stopped-process", stopped_process),
    ("locked-pages-move", locked_pages_move),
    ("huge-pages-move-whole", huge_pages_move_whole),
    ("shared-pages", shared_pages),
    ("pinned-pages-stay", pinned_pages_stay),
    ("piped-pages-stay", piped_pages_stay),
    ("cpuset-forbids", cpuset_forbids),
    ("bound-pages-stay", bound_pages_stay),
    ("confined-process", confined_process),
    ("other-user", other_user),
    ("no-sys-nice", no_sys_nice),
    ("exiting-process", exiting_process),
    ("reused-pid", reused_pid),
    ("full-node", full_node),
    ("overfull-node", overfull_node),
];

/// The mode in which the program runs as nobody.
pub(crate) const AS_NOBODY: &str = "--as-nobody";

/// Fails unless the outcomes of base pages equal where their frames are.
fn truthful(machine: &Machine, holder: &Holder, target: NodeId, ends: &[Outcome]) -> Checked<()> {
    let nodes = machine.nodes(holder.pid(), holder.vpn, ends.len() as u64)?;
    for (i, (end, node)) in ends.iter().zip(nodes).enumerate() {
        let there = matches!(end, Outcome::Moved | Outcome::AlreadyThere);
        ensure!(there == (node == Some(target)), "page {i} ended as {end:?} and is on {node:?}");
    }
    Ok(())
}

fn moves(machine: &Machine, holder: &Holder) -> Checked<Vec<Move>> {
    machine.moves(holder.pid(), holder.vpn, holder.pages, 0)
}

fn pages_move(machine: &Machine) -> Checked {
    let mut holder = Holder::start(machine, "private", 1024, SLOW)?;
    let moves = moves(machine, &holder)?;
    let (migrated, promoted) = (vmstat("pgmigrate_success ")?, vmstat("pgpromote_success ")?);
    let mut mover = machine.mover(SharedPages::Move)?;
    let ends = run(&mut mover, holder.pid(), FAST, &moves)?;
    all(&ends, Outcome::Moved)?;
    truthful(machine, &holder, FAST, &ends)?;
    holder.check()?;
    let by_node = numa_maps(holder.pid(), holder.address())?;
    ensure!(by_node.get(&FAST) == Some(&1024) && by_node.len() == 1, "numa_maps says {by_node:?}");
    let migrated = vmstat("pgmigrate_success ")? - migrated;
    ensure!(migrated >= 1024, "the kernel counted {migrated} migrations");
    ensure!(vmstat("pgpromote_success ")? == promoted, "the kernel took them for promotions of its own");
    let stats = mover.stats();
    ensure!(stats.calls == 2 && stats.pages_asked == 1024, "{stats:?}");
    all(&run(&mut mover, holder.pid(), FAST, &moves)?, Outcome::AlreadyThere)?;
    ensure!(mover.stats().calls == 2, "pages that were there were asked for again");
    Ok(format!("1024 pages, {} ns a page", stats.ns_per_page().unwrap_or(0)))
}

fn changing_pages_keep_their_data(machine: &Machine) -> Checked {
    let mut holder = Holder::start(machine, "changing", 512, SLOW)?;
    let mut mover = machine.mover(SharedPages::Move)?;
    let mut moved = 0;
    for round in 0..6 {
        let (from, to) = if round % 2 == 0 { (SLOW, FAST) } else { (FAST, SLOW) };
        let mut moves = moves(machine, &holder)?;
        moves.iter_mut().for_each(|m| m.from = from);
        let ends = run(&mut mover, holder.pid(), to, &moves)?;
        truthful(machine, &holder, to, &ends)?;
        moved += ends.iter().filter(|&&e| e == Outcome::Moved).count();
        let others = ends.iter().any(|e| {
            !matches!(e, Outcome::Moved | Outcome::Busy | Outcome::AlreadyThere | Outcome::OtherNode)
        });
        ensure!(!others, "round {round}: {:?}", tally(&ends));
    }
    holder.check()?;
    ensure!(moved > 6 * 500, "only {moved} of {} moved", 6 * 512);
    Ok(format!("{moved} of {} moved while they were written to", 6 * 512))
}

fn stopped_process(machine: &Machine) -> Checked {
    let mut holder = Holder::start(machine, "private", 64, SLOW)?;
    holder.signal(Signal::STOP)?;
    let ends = run(&mut machine.mover(SharedPages::Move)?, holder.pid(), FAST, &moves(machine, &holder)?)?;
    all(&ends, Outcome::Moved)?;
    holder.signal(Signal::CONT)?;
    holder.check()?;
    Ok("moves like any other".to_owned())
}

fn locked_pages_move(machine: &Machine) -> Checked {
    let mut holder = Holder::start(machine, "locked", 64, SLOW)?;
    let ends = run(&mut machine.mover(SharedPages::Move)?, holder.pid(), FAST, &moves(machine, &holder)?)?;
    all(&ends, Outcome::Moved)?;
    holder.check()?;
    Ok("mlock does not hold pages to their node".to_owned())
}

fn huge_pages_move_whole(machine: &Machine) -> Checked {
    let mut holder = Holder::start(machine, "huge", 4, SLOW)?;
    let huge = |holder: &Holder| -> Checked<String> {
        let smaps = fs::read_to_string(format!("/proc/{}/smaps_rollup", holder.pid().0))?;
        Ok(smaps.lines().find(|l| l.starts_with("AnonHugePages")).ok_or("no AnonHugePages")?.to_owned())
    };
    let before = huge(&holder)?;
    let split = vmstat("thp_split_page ")?;
    let moves = machine.moves(holder.pid(), holder.vpn, holder.pages, 9)?;
    let mut mover = machine.mover(SharedPages::Move)?;
    let ends = run(&mut mover, holder.pid(), FAST, &moves)?;
    ensure!(ends == [Outcome::Moved; 4], "{ends:?}");
    let by_node = numa_maps(holder.pid(), holder.address())?;
    ensure!(by_node.get(&FAST) == Some(&2048), "numa_maps says {by_node:?}");
    ensure!(huge(&holder)? == before && before.contains("8192 kB"), "{before} became {}", huge(&holder)?);
    ensure!(vmstat("thp_split_page ")? == split, "a huge page was split");
    ensure!(mover.stats().pages_asked == 2048, "{:?}", mover.stats());
    holder.check()?;
    let back =
        Move { from: FAST, pfn: None, page: VirtPage { vpn: holder.vpn + 77, ..moves[0].page }, ..moves[0] };
    all(&run(&mut mover, holder.pid(), SLOW, &[back])?, Outcome::Moved)?;
    let by_node = numa_maps(holder.pid(), holder.address())?;
    ensure!(by_node.get(&SLOW) == Some(&512), "named by a later page: {by_node:?}");
    holder.check()?;
    Ok("4 huge pages, none split".to_owned())
}

fn shared_pages(machine: &Machine) -> Checked {
    let mut holder = Holder::start(machine, "shared", 256, SLOW)?;
    let moves = moves(machine, &holder)?;
    let mut leaving = machine.mover(SharedPages::Leave)?;
    all(&run(&mut leaving, holder.pid(), FAST, &moves)?, Outcome::Shared)?;
    ensure!(leaving.stats().calls == 0, "they were asked for");
    let ends = run(&mut machine.mover(SharedPages::Move)?, holder.pid(), FAST, &moves)?;
    all(&ends, Outcome::Moved)?;
    truthful(machine, &holder, FAST, &ends)?;
    holder.check()?;
    Ok("left or moved as configured".to_owned())
}

fn pinned_pages_stay(machine: &Machine) -> Checked {
    held_pages_stay(machine, "pinned")
}

fn piped_pages_stay(machine: &Machine) -> Checked {
    held_pages_stay(machine, "piped")
}

/// Every eighth page is held: it is busy twice, then pinned, and moves when it is let go; the
/// others move at once.
fn held_pages_stay(machine: &Machine, kind: &str) -> Checked {
    let mut holder = Holder::start(machine, kind, 128, SLOW)?;
    let mut mover = machine.mover(SharedPages::Move)?;
    let pid = holder.pid();
    let all_moves = moves(machine, &holder)?;
    let held: Vec<Move> = all_moves.iter().copied().step_by(8).collect();
    let ends = run(&mut mover, pid, FAST, &all_moves)?;
    truthful(machine, &holder, FAST, &ends)?;
    for (i, end) in ends.iter().enumerate() {
        let wanted = if i % 8 == 0 { Outcome::Busy } else { Outcome::Moved };
        ensure!(*end == wanted, "page {i} ended as {end:?}");
    }
    for wanted in [Outcome::Busy, Outcome::Pinned, Outcome::Pinned] {
        all(&run(&mut mover, pid, FAST, &held)?, wanted)?;
    }
    holder.check()?;
    holder.let_go()?;
    all(&run(&mut mover, pid, FAST, &held)?, Outcome::Moved)?;
    holder.check()?;
    Ok(format!("{} held pages stayed, then moved; {} calls", held.len(), mover.stats().calls))
}

/// Longer than a process is set aside the first time that the kernel refuses it.
const ASIDE: Duration = Duration::from_millis(1200);

fn cpuset_forbids(machine: &Machine) -> Checked {
    let mut holder = Holder::start_confined(machine, "private", 64, SLOW)?;
    let moves = moves(machine, &holder)?;
    let mut mover = machine.mover(SharedPages::Move)?;
    let ends = run(&mut mover, holder.pid(), FAST, &moves)?;
    all(&ends, Outcome::NoPermission)?;
    truthful(machine, &holder, FAST, &ends)?;
    let calls = mover.stats().calls;
    all(&run(&mut mover, holder.pid(), FAST, &moves)?, Outcome::NoPermission)?;
    ensure!(mover.stats().calls == calls, "a process that is set aside is tried again at once");
    holder.widen()?;
    std::thread::sleep(ASIDE);
    all(&run(&mut mover, holder.pid(), FAST, &moves)?, Outcome::Moved)?;
    holder.check()?;
    Ok("refused until the cpuset allows the node".to_owned())
}

fn bound_pages_stay(machine: &Machine) -> Checked {
    policy_is_kept(machine, "bound")
}

fn confined_process(machine: &Machine) -> Checked {
    policy_is_kept(machine, "confined")
}

/// Pages stay on the nodes that a policy binds them to, wherever the kernel would put them.
fn policy_is_kept(machine: &Machine, kind: &str) -> Checked {
    let mut holder = Holder::start(machine, kind, 64, SLOW)?;
    let moves = moves(machine, &holder)?;
    let mut mover = machine.mover(SharedPages::Move)?;
    let ends = run(&mut mover, holder.pid(), FAST, &moves)?;
    all(&ends, Outcome::Mempolicy)?;
    truthful(machine, &holder, FAST, &ends)?;
    ensure!(mover.stats().calls == 0, "they were asked for");
    holder.let_go()?;
    // A new mover has not looked at the process before.
    let mut mover = machine.mover(SharedPages::Move)?;
    all(&run(&mut mover, holder.pid(), SMALL, &moves)?, Outcome::Mempolicy)?;
    all(&run(&mut mover, holder.pid(), FAST, &moves)?, Outcome::Moved)?;
    holder.check()?;
    Ok("refused until the policy allows the node".to_owned())
}

/// Runs this program as nobody, from a place where nobody may read it.
fn other_user(machine: &Machine) -> Checked {
    let holder = Holder::start(machine, "private", 64, SLOW)?;
    let copy = std::env::temp_dir().join("mover_lab");
    fs::copy(std::env::current_exe()?, &copy)?;
    fs::set_permissions(&copy, fs::Permissions::from_mode(0o755))?;
    let arguments = [AS_NOBODY, &holder.pid().0.to_string(), &holder.vpn.to_string()];
    let output = Command::new(&copy).args(arguments).uid(65534).gid(65534).output()?;
    let said = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    let wanted = "shared pages: Leave; outcome: NoPermission";
    ensure!(said == wanted, "it said {said:?} {}", String::from_utf8_lossy(&output.stderr));
    let nodes = machine.nodes(holder.pid(), holder.vpn, holder.pages)?;
    ensure!(nodes.iter().all(|&n| n == Some(SLOW)), "pages have moved");
    Ok(said)
}

/// What the program does as nobody: tries to move a page of root's.
pub(crate) fn as_nobody(pid: &str, vpn: &str) -> ExitCode {
    let attempt = || -> Checked {
        let pid = Pid(pid.parse()?);
        let page = VirtPage { pid, vpn: vpn.parse()? };
        let roomy = |node| Some(NodeState { node, free_pages: 1 << 20, ..NodeState::default() });
        let mut mover = Mover::start(MoverConfig::default(), roomy)?;
        let ends = run(&mut mover, pid, FAST, &[Move { page, pfn: None, order: 0, from: SLOW }])?;
        Ok(format!("shared pages: {:?}; outcome: {:?}", mover.shared_pages(), ends[0]))
    };
    match attempt() {
        Ok(said) => println!("{said}"),
        Err(e) => println!("failed: {e}"),
    }
    ExitCode::SUCCESS
}

/// A daemon with every capability but CAP_SYS_NICE. Capabilities belong to threads, so a thread can
/// be that daemon.
fn no_sys_nice(machine: &Machine) -> Checked {
    let mut own = Holder::start(machine, "private", 64, SLOW)?;
    let mut shared = Holder::start(machine, "shared", 64, SLOW)?;
    let (own_moves, shared_moves) = (moves(machine, &own)?, moves(machine, &shared)?);
    let (own_pid, shared_pid) = (own.pid(), shared.pid());
    let attempt = |machine: &Machine| -> Checked<(SharedPages, Vec<Outcome>, Vec<Outcome>)> {
        let mut sets = capabilities(None)?;
        sets.effective.remove(CapabilitySet::SYS_NICE);
        set_capabilities(None, sets)?;
        let mut mover = machine.mover(SharedPages::Move)?;
        let own = run(&mut mover, own_pid, FAST, &own_moves)?;
        Ok((mover.shared_pages(), own, run(&mut mover, shared_pid, FAST, &shared_moves)?))
    };
    let (shared_pages, own_ends, shared_ends) = std::thread::scope(|scope| {
        let daemon = scope.spawn(|| attempt(machine).map_err(|e| e.to_string()));
        daemon.join().map_err(|_| "it panicked".to_owned())?
    })?;
    ensure!(shared_pages == SharedPages::Leave, "it claims to {shared_pages:?} shared pages");
    all(&own_ends, Outcome::Moved)?;
    all(&shared_ends, Outcome::Shared)?;
    own.check()?;
    shared.check()?;
    Ok("own pages move, shared ones are left".to_owned())
}

fn exiting_process(machine: &Machine) -> Checked {
    let holder = Holder::start(machine, "private", 16384, SLOW)?;
    let pid = holder.pid();
    let moves = moves(machine, &holder)?;
    let mut mover = machine.mover(SharedPages::Move)?;
    let batches: Vec<&[Move]> = moves.chunks(512).collect();
    for (id, part) in batches.iter().enumerate() {
        mover.submit(batch(id as u64, pid, FAST, part))?;
    }
    let mut ends = Vec::new();
    let mut collect = |mover: &mut Mover| -> Checked<()> {
        let outcome = mover.wait(Duration::from_secs(60)).ok_or("no outcome")?;
        ends.extend(outcome.outcomes);
        Ok(())
    };
    collect(&mut mover)?;
    holder.end()?;
    for _ in 1..batches.len() {
        collect(&mut mover)?;
    }
    let counts = tally(&ends);
    let known = counts.keys().all(|e| matches!(e, Outcome::Moved | Outcome::Gone));
    ensure!(known && counts.len() == 2, "{counts:?}");
    let first_gone = ends.iter().position(|&e| e == Outcome::Gone).unwrap_or(0);
    let batch_start = first_gone / 512 * 512;
    all(&ends[..batch_start], Outcome::Moved)?;
    ensure!(ends[batch_start + 512..].iter().all(|&e| e == Outcome::Gone), "after its end: {counts:?}");
    Ok(format!("killed at work: {counts:?}"))
}

fn reused_pid(machine: &Machine) -> Checked {
    let mut mover = machine.mover(SharedPages::Move)?;
    let first = Holder::start(machine, "private", 64, SLOW)?;
    let (pid, vpn) = (first.pid(), first.vpn);
    let first_moves = machine.moves(pid, vpn, 32, 0)?;
    all(&run(&mut mover, pid, FAST, &first_moves)?, Outcome::Moved)?;
    first.end()?;
    let mut second = None;
    for _ in 0..20 {
        fs::write("/proc/sys/kernel/ns_last_pid", (pid.0 - 1).to_string())?;
        let holder = Holder::start(machine, "private", 64, SLOW)?;
        if holder.pid() == pid {
            second = Some(holder);
            break;
        }
    }
    let mut second = second.ok_or("the number could not be had again")?;
    // Without frame numbers nothing but the process itself gives it away.
    let page = |i| VirtPage { pid, vpn: second.vpn + i };
    let late: Vec<Move> = (0..64).map(|i| Move { page: page(i), pfn: None, order: 0, from: SLOW }).collect();
    all(&run(&mut mover, pid, FAST, &late)?, Outcome::Gone)?;
    let nodes = machine.nodes(pid, second.vpn, second.pages)?;
    ensure!(nodes.iter().all(|&n| n == Some(SLOW)), "pages of the newcomer have moved");
    ensure!(mover.stats().reused_pids == 1, "{:?}", mover.stats());
    all(&run(&mut mover, pid, FAST, &late)?, Outcome::Moved)?;
    second.check()?;
    Ok("the newcomer's pages stay until something is known of them".to_owned())
}

/// Takes memory of the small node until so many pages are left above its high watermark.
fn fill(machine: &Machine, leave_pages: u64) -> Checked<Holder> {
    let spare = machine.spare(SMALL)?;
    ensure!(spare > leave_pages, "only {spare} pages are left above the high watermark");
    Holder::start_confined(machine, "private", spare - leave_pages, SMALL)
}

/// Pages go to a node until it has no room above its high watermark and the goal; the kernel never
/// has to reclaim.
fn full_node(machine: &Machine) -> Checked {
    let state = machine.node(SMALL)?;
    let goal = MoverConfig::default().reserve.floor(&state) - state.watermarks.high_pages;
    let _hog = fill(machine, goal + 2000)?;
    let mut holder = Holder::start(machine, "locked", 4096, SLOW)?;
    let moves = moves(machine, &holder)?;
    let (stalls, scans) = (vmstat("allocstall_")?, vmstat("pgscan_direct ")?);
    let mut mover = machine.mover(SharedPages::Move)?;
    let ends = run(&mut mover, holder.pid(), SMALL, &moves)?;
    truthful(machine, &holder, SMALL, &ends)?;
    let counts = tally(&ends);
    let both = counts.contains_key(&Outcome::Moved) && counts.contains_key(&Outcome::NodeFull);
    ensure!(counts.len() == 2 && both, "{counts:?}");
    let left = machine.spare(SMALL)?;
    // Each CPU counts up to 125 pages before it tells the others (Linux 6.12 mm/vmstat.c).
    ensure!(left + 250 > goal, "{left} pages are left above the high watermark, {goal} should be");
    ensure!(vmstat("allocstall_")? == stalls, "allocstall has changed");
    ensure!(vmstat("pgscan_direct ")? == scans, "the kernel reclaimed directly");
    holder.check()?;
    Ok(format!("{counts:?}, {left} pages left above the high watermark, no stall"))
}

/// Without admission the kernel runs into the full node; outcomes are still true.
fn overfull_node(machine: &Machine) -> Checked {
    let _hog = fill(machine, 0)?;
    let pages = machine.spare(SMALL)? + machine.node(SMALL)?.watermarks.high_pages + 4096;
    let mut holder = Holder::start(machine, "locked", pages, SLOW)?;
    let moves = moves(machine, &holder)?;
    let mut mover = machine.reckless_mover()?;
    let ends = run(&mut mover, holder.pid(), SMALL, &moves)?;
    truthful(machine, &holder, SMALL, &ends)?;
    let counts = tally(&ends);
    let full = counts.get(&Outcome::NodeFull).copied().unwrap_or(0);
    ensure!(full > 0, "the node took them all: {counts:?}");
    holder.check()?;
    Ok(format!("{counts:?}"))
}
