//! The real ring: page faults of the test's own thread, on this machine.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};
use rustix::thread::{CpuSet, sched_getcpu, sched_setaffinity};
use rustix::time::{ClockId, clock_gettime};
use thermocline_core::access::{Access, Detail, Source};
use thermocline_core::config::{HwSample, SamplerName, TierMap};
use thermocline_core::units::{Nanos, PAGE_SIZE, Pfn, Pid, VirtPage};

use crate::node_state::NodeStateReader;
use crate::root::Root;
use crate::source::hwsample::useful::Judge;
use crate::source::hwsample::{HwSampleSource, OpenError};
use crate::source::{AccessSource, Event};
use crate::sys::perf::Whose;
use crate::topology::{PfnMap, discover};

const PAGES: usize = 4000;
/// Number of attempts at something that a busy machine may disturb.
const TRIES: u32 = 10;

fn now() -> Nanos {
    let time = clock_gettime(ClockId::Monotonic);
    Nanos(time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64)
}

fn own() -> Pid {
    Pid(std::process::id())
}

/// The source on page faults, or `None` if this user may not open it.
fn open(ring_kib: u32) -> Option<HwSampleSource> {
    let root = Root::default();
    let topology = discover(&root, &TierMap::default()).unwrap().topology;
    let mut nodes = NodeStateReader::new(&root);
    nodes.read().unwrap();
    let frames = PfnMap::read(&root, nodes.zones()).unwrap();
    // This machine may have no lower tier: the top tier is kept.
    let judge = Judge::new(frames, &topology, true);
    let config = HwSample { sampler: SamplerName::PageFaults, ring_kib, ..HwSample::default() };
    match HwSampleSource::open_for(&root, &config, Whose::OwnThread, judge, now()) {
        Ok(source) => Some(source),
        Err(OpenError::NotPermitted { .. }) => {
            println!("skipped: sampling with physical addresses needs CAP_PERFMON");
            None
        }
        Err(error) => panic!("{error}"),
    }
}

/// Touches `pages` fresh base pages and passes their first virtual page number to `then` before
/// they are unmapped.
fn touch(pages: usize, then: impl FnOnce(u64)) {
    let bytes = pages * PAGE_SIZE as usize;
    let flags = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE);
    // SAFETY: a new mapping at an address of the kernel's choice overlaps nothing of ours.
    let start = unsafe { mmap_anonymous(std::ptr::null_mut(), bytes, flags.0, flags.1) }.unwrap();
    // SAFETY: exactly that mapping; the advice keeps what is in it. A kernel without huge pages
    // refuses it, and has none to use.
    let _ = unsafe { madvise(start, bytes, Advice::LinuxNoHugepage) };
    for page in 0..pages {
        // SAFETY: within the mapping.
        unsafe { start.cast::<u8>().add(page * PAGE_SIZE as usize).write_volatile(1) };
    }
    then(start.addr() as u64 / PAGE_SIZE);
    // SAFETY: exactly that mapping, which nothing refers to any more.
    unsafe { munmap(start, bytes) }.unwrap();
}

/// Reads until `done`, for at most ten seconds.
fn read_until(source: &mut HwSampleSource, mut done: impl FnMut(Event) -> bool) -> bool {
    let start = Instant::now();
    let mut found = false;
    while !found && start.elapsed() < Duration::from_secs(10) {
        source.poll(1 << 16, now(), |pid| pid == own(), |event| found |= done(event));
    }
    found
}

#[test]
fn page_faults_of_this_process_come_through_the_ring_with_process_address_and_frame() {
    // A page that the kernel is busy with has no frame at its fault, and such faults are left out.
    let complete = (0..TRIES).any(|_| {
        let Some(mut source) = open(1024) else { return true };
        every_fault_is_told(&mut source)
    });
    assert!(complete, "of {TRIES} times {PAGES} pages some were always without a frame");
}

/// Whether each of some fresh pages was delivered with its frame.
fn every_fault_is_told(source: &mut HwSampleSource) -> bool {
    let before = now();
    let mut seen: BTreeMap<u64, Access> = BTreeMap::new();
    let mut complete = false;
    touch(PAGES, |first| {
        let told = |event| {
            if let Event::Access(access) = event {
                let page: VirtPage = access.page.unwrap();
                assert_eq!(page.pid, own());
                seen.insert(page.vpn, access);
            }
        };
        source.poll(1 << 16, now(), |pid| pid == own(), told);
        let pagemap = crate::pagemap::Pagemap::open("/proc".as_ref(), own()).unwrap();
        let found: Vec<(Option<Pfn>, &Access)> = (first..first + PAGES as u64)
            .filter_map(|vpn| Some((pagemap.entry(vpn).unwrap().unwrap().pfn(), seen.get(&vpn)?)))
            .collect();
        complete = found.len() == PAGES;
        for (_, access) in &found {
            assert!(access.time >= before && access.time <= now(), "CLOCK_MONOTONIC");
            assert_eq!(access.detail.source(), Source::HwSample);
            assert!(matches!(access.detail, Detail::Sample { .. }));
        }
        // The kernel may move a page meanwhile, for a huge one of somebody else's.
        let same = found.iter().filter(|(pfn, access)| access.pfn == *pfn).count();
        assert!(same * 100 >= found.len() * 99, "{same} of {} frames are those of pagemap", found.len());
    });
    let stats = source.stats();
    println!("{stats:?}");
    // On a machine of one node all of it lies where it is accessed from.
    let delivered = stats.samples.useful + stats.samples.local;
    assert!(stats.samples.taken >= PAGES as u64);
    assert!(delivered + stats.samples.no_physical >= PAGES as u64);
    assert_eq!((stats.lost, stats.malformed), (0, 0));
    complete
}

#[test]
fn what_a_full_ring_loses_is_counted() {
    // A ring of two pages holds 113 samples. A loss on a CPU is reported with the next record
    // there, so stay on one.
    let mut here = CpuSet::new();
    here.set(sched_getcpu());
    sched_setaffinity(None, &here).unwrap();
    let Some(mut source) = open(8) else { return };
    touch(PAGES, |_| {});
    // The kernel reports the loss with the first record that finds space again.
    source.poll(1 << 16, now(), |_| true, |_| {});
    touch(50, |_| {});
    source.poll(1 << 16, now(), |_| true, |_| {});
    let stats = source.stats();
    println!("{stats:?}");
    assert!(stats.lost > 0, "{stats:?}");
    assert!(stats.samples.taken + stats.lost >= PAGES as u64, "{stats:?}");
    assert_eq!(stats.malformed, 0);
}

#[test]
fn a_process_that_starts_and_ends_is_told_of() {
    let Some(mut source) = open(1024) else { return };
    let mut child = std::process::Command::new("true").spawn().unwrap();
    let pid = Pid(child.id());
    child.wait().unwrap();
    let (mut exec, mut exit) = (false, false);
    let both = read_until(&mut source, |event| {
        exec |= event == Event::Exec(pid);
        exit |= event == Event::Exit(pid);
        exec && exit
    });
    assert!(both, "exec {exec}, exit {exit}, {:?}", source.stats());
}
