//! The open source: an event and a ring for each CPU, read in turn.

use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use thermocline_core::config::HwSample;
use thermocline_core::pace::SamplePeriod;
use thermocline_core::topology::Topology;
use thermocline_core::units::{Nanos, PAGE_SHIFT, Pid};

use super::OpenError;
use super::attr::{EventAttr, events};
use super::pmu::{Pmu, choose};
use super::record::{RawSample, Record, decode};
use super::spe;
use super::threads::Threads;
use super::useful::{Judge, Sighting, Tally, Useless};
use crate::aside::Aside;
use crate::clock::thread_cpu_time;
use crate::lists::parse_list;
use crate::pagemap::Pagemap;
use crate::process;
use crate::root::{KernelFileError, Root, read_optional};
use crate::source::{AccessSource, Event};
use crate::sys::perf::Whose;
use crate::sys::perf::ring::Scratch;
use crate::sys::perf::{self, Aux, Ring};
use crate::topology::PfnMap;

/// Time between two settings of the period: each is a system call per CPU.
const SET_EVERY: Nanos = Nanos::from_s(1);

/// Time limit for looking up the page of a fault, once for each process that hangs.
const LOOK_UP_MAX: Duration = Duration::from_millis(50);

thermocline_core::statistics! {
    /// Counters since the source was opened, and the period.
    Stats "hwsample" {
        /// CPUs that are sampled.
        cpus: u32, "CPUs", Gauge;
        /// CPUs that could not be sampled.
        cpus_failed: u32, "CPUs", Gauge trouble;
        /// Events from one sample to the next, now; none if it is not known yet.
        period: Option<u32>, "events", Gauge;
        /// The budget makes the period longer than the samples ask for, or leaves samples unread.
        budgeted: bool, "", Gauge;
        /// Records that the kernel lost because a ring was full.
        lost: u64, "records", Counter trouble;
        /// Times that the kernel stopped an event for the rest of a tick.
        throttled: u64, "times", Counter trouble;
        /// Times that the hardware or the kernel cut an AUX area short.
        truncated: u64, "times", Counter trouble;
        /// Records, or bytes of an AUX area, that could not be decoded.
        malformed: u64, "records or bytes", Counter trouble;
        /// Settings of the period that the kernel refused.
        period_refused: u64, "settings", Counter trouble;
        /// CPU time spent on reading.
        read_ns: Nanos, "ns", Counter;
        /// Bytes that wait in the rings.
        waiting_bytes: u64, "bytes", Gauge;
    }
    beside {
        /// The sampler.
        sampler: &'static str;
        /// Samples by result.
        samples: Tally;
    }
}

#[derive(Debug)]
struct Cpu {
    number: u32,
    /// Keeps the group alive; there is nothing to read from it.
    _leader: Option<perf::Event>,
    event: perf::Event,
    ring: Ring,
    aux: Option<Aux>,
}

/// Samples of all CPUs.
#[derive(Debug)]
pub struct HwSampleSource {
    pmu: Pmu,
    root: Root,
    aside: Aside,
    config: HwSample,
    whose: Whose,
    cpus: Vec<Cpu>,
    /// The CPU whose ring to read first next time, so that a busy one does not starve the others.
    next: usize,
    scratch: Scratch,
    judge: Judge,
    threads: Threads,
    period: SamplePeriod,
    period_set: u32,
    period_looked: Nanos,
    /// Pieces of the AUX area named by the ring, kept to avoid allocations.
    pieces: Vec<(u64, u64)>,
    stats: Stats,
}

impl HwSampleSource {
    /// Opens the sampler that the configuration names on every CPU that has it, and starts it.
    ///
    /// # Errors
    /// [`OpenError`], with the remedy; nothing stays open.
    pub fn open(
        root: &Root,
        config: &HwSample,
        judge: Judge,
        now: Nanos,
    ) -> Result<HwSampleSource, OpenError> {
        HwSampleSource::open_for(root, config, Whose::Everybody, judge, now)
    }

    /// The same for the accesses of `whose` only.
    ///
    /// # Errors
    /// As [`HwSampleSource::open`].
    pub fn open_for(
        root: &Root,
        config: &HwSample,
        whose: Whose,
        judge: Judge,
        now: Nanos,
    ) -> Result<HwSampleSource, OpenError> {
        let pmu = choose(root, config)?;
        let (config, mut judge) = match pmu {
            // Every fault is taken: there are few, and none represents others.
            Pmu::PageFaults => {
                let every = HwSample { period: 1, period_min: 1, period_max: 1, ..config.clone() };
                (every, judge.of_page_faults())
            }
            _ => (config.clone(), judge),
        };
        let online = pmu.cpus(&online_cpus(root)?);
        let period = SamplePeriod::new(&config, online.len(), now);
        judge.set_period(pmu.nearest_period(period.events()));
        let mut cpus = Vec::with_capacity(online.len());
        let mut failed = None;
        for &cpu in &online {
            match open_cpu(&pmu, &config, whose, cpu, period.events()) {
                Ok(cpu) => cpus.push(cpu),
                Err(error) => failed = failed.or(Some(error)),
            }
        }
        if let (true, Some(error)) = (cpus.is_empty(), failed) {
            return Err(error);
        }
        let stats = Stats {
            sampler: pmu.name(),
            cpus: cpus.len() as u32,
            cpus_failed: (online.len() - cpus.len()) as u32,
            ..Stats::default()
        };
        Ok(HwSampleSource {
            root: root.clone(),
            aside: Aside::new(root, "the page of a fault was looked up", LOOK_UP_MAX),
            config,
            whose,
            period_set: period.events(),
            period_looked: now,
            pmu,
            cpus,
            next: 0,
            scratch: Scratch::default(),
            judge,
            threads: Threads::new(root),
            period,
            pieces: Vec::new(),
            stats,
        })
    }

    fn read_cpu(
        &mut self,
        at: usize,
        records_max: usize,
        now: Nanos,
        in_scope: &impl Fn(Pid) -> bool,
        each: &mut impl FnMut(Event),
    ) -> usize {
        let HwSampleSource { cpus, scratch, judge, stats, pieces, threads, pmu, root, aside, .. } = self;
        let cpu = &mut cpus[at];
        let faults = matches!(pmu, Pmu::PageFaults);
        let read = cpu.ring.read(records_max, scratch, |record| match decode(record) {
            Ok(Record::Sample(mut raw)) => {
                if faults && raw.physical == 0 {
                    raw.physical = physical(aside, root, &raw);
                }
                let judged = judge.judge(&Sighting::from(&raw), in_scope);
                stats.samples.count(&judged);
                if let Ok(access) = judged {
                    each(Event::Access(access));
                }
            }
            Ok(Record::Lost(lost)) => stats.lost += lost,
            Ok(Record::Throttle) => stats.throttled += 1,
            // Only the first thread has ended.
            Ok(Record::Exit(pid)) if lives_on(root, pid) => {}
            Ok(Record::Exit(pid)) => each(Event::Exit(pid)),
            Ok(Record::Exec(pid)) => each(Event::Exec(pid)),
            Ok(Record::Aux { offset, bytes, flags }) => {
                stats.truncated += u64::from(flags != 0);
                pieces.push((offset, bytes));
            }
            Ok(Record::Other) => {}
            Err(_) => stats.malformed += 1,
        });
        stats.malformed += u64::from(read.broken);
        let Some(aux) = &mut cpu.aux else { return read.records };
        let mut samples = 0;
        for (offset, bytes) in pieces.drain(..) {
            let there = aux.read(&mut cpu.ring, offset, bytes, |first, second| {
                for piece in [first, second] {
                    let decoded = spe::decode(piece, |sample| {
                        let pid = sample.tid.map(|tid| threads.process(tid, now));
                        let judged = match pid {
                            // A thread that is gone has no memory to move.
                            Some(None) => Err(Useless::OutOfScope),
                            Some(pid) => {
                                judge.judge(&Sighting::of_spe(sample, pid, now, cpu.number), in_scope)
                            }
                            None => judge.judge(&Sighting::of_spe(sample, None, now, cpu.number), in_scope),
                        };
                        stats.samples.count(&judged);
                        if let Ok(access) = judged {
                            each(Event::Access(access));
                        }
                    });
                    samples += decoded.samples as usize;
                    stats.malformed += decoded.malformed_bytes;
                }
            });
            stats.malformed += u64::from(!there);
        }
        read.records + samples
    }

    /// Checks the budget and changes the kernel's period, once a second.
    fn keep_period(&mut self, now: Nanos) {
        self.period.look(now);
        if now.since(self.period_looked) < SET_EVERY {
            return;
        }
        self.period_looked = now;
        let wanted = self.pmu.nearest_period(self.period.events());
        if wanted == self.pmu.nearest_period(self.period_set) {
            return;
        }
        self.period_set = wanted;
        self.judge.set_period(wanted);
        for cpu in &self.cpus {
            // A CPU that is offline now is opened again when it comes back.
            self.stats.period_refused += u64::from(cpu.event.set_period(wanted.into()).is_err());
        }
    }

    /// Memory came or went.
    pub fn set_frames(&mut self, frames: PfnMap) {
        self.judge.set_frames(frames);
    }

    /// Nodes, tiers or CPUs have changed: new CPUs are sampled from now on, removed ones no longer.
    ///
    /// # Errors
    /// sysfs does not list the CPUs; those sampled before still are.
    pub fn set_topology(&mut self, topology: &Topology) -> Result<(), KernelFileError> {
        self.judge.set_topology(topology);
        let online = self.pmu.cpus(&online_cpus(&self.root)?);
        self.cpus.retain(|cpu| online.contains(&cpu.number));
        let known: Vec<u32> = self.cpus.iter().map(|cpu| cpu.number).collect();
        for &number in online.iter().filter(|number| !known.contains(number)) {
            self.cpus.extend(open_cpu(&self.pmu, &self.config, self.whose, number, self.period_set));
        }
        self.next = 0;
        self.stats.cpus = self.cpus.len() as u32;
        self.stats.cpus_failed = (online.len() - self.cpus.len()) as u32;
        Ok(())
    }

    /// The sampler.
    pub fn pmu(&self) -> &Pmu {
        &self.pmu
    }

    /// The counters, as of now.
    pub fn stats(&self) -> Stats {
        Stats {
            period: Some(self.pmu.nearest_period(self.period_set)),
            budgeted: self.period.budgeted(),
            waiting_bytes: self.cpus.iter().map(|cpu| cpu.ring.waiting()).sum(),
            ..self.stats.clone()
        }
    }
}

impl AccessSource for HwSampleSource {
    /// Allocates nothing a sample, except where Arm SPE names a thread for the first time, and with
    /// the sampler "page-faults", which reads pagemap for each.
    fn poll(
        &mut self,
        records_max: usize,
        now: Nanos,
        in_scope: impl Fn(Pid) -> bool,
        mut each: impl FnMut(Event),
    ) -> usize {
        let start = thread_cpu_time();
        let before = self.stats.samples;
        let throttled = self.stats.throttled;
        let count = self.cpus.len();
        let mut records = 0;
        for turn in 0..count {
            let at = (self.next + turn) % count;
            records += self.read_cpu(at, records_max - records, now, &in_scope, &mut each);
            if records >= records_max {
                self.next = at + 1;
                break;
            }
        }
        if records > 0 {
            let spent = thread_cpu_time().since(start);
            self.stats.read_ns = self.stats.read_ns.plus(spent);
            let throttled = self.stats.throttled > throttled;
            self.stats.samples.tell(&before, &mut self.period, spent, throttled);
        }
        self.keep_period(now);
        records
    }

    /// They become readable when a ring is half full.
    fn fds(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.cpus.iter().map(|cpu| cpu.event.as_fd())
    }
}

/// File descriptors that the sampler takes on the machine at `root`; none if there is no sampler.
pub fn descriptors(root: &Root, config: &HwSample) -> u64 {
    let (Ok(pmu), Ok(online)) = (choose(root, config), online_cpus(root)) else { return 0 };
    let of_cpu = 1 + u64::from(events(&pmu, 1, 1).leader.is_some());
    pmu.cpus(&online).len() as u64 * of_cpu
}

fn open_cpu(pmu: &Pmu, config: &HwSample, whose: Whose, number: u32, period: u32) -> Result<Cpu, OpenError> {
    let failed = |action, cause| OpenError::failed(pmu.name(), action, number, cause);
    let ring_bytes = config.ring_kib << 10;
    let aux_bytes = matches!(pmu, Pmu::Spe(_)).then_some(config.aux_kib << 10);
    let events = events(pmu, period, aux_bytes.unwrap_or(ring_bytes) / 2);
    let open = |attr: &EventAttr, leader| {
        perf::Event::open(&attr.of(whose).bytes(), whose, number, leader)
            .map_err(|e| failed("open the event", e))
    };
    let leader = events.leader.as_ref().map(|attr| open(attr, None)).transpose()?;
    let event = open(&events.sampler, leader.as_ref())?;
    let mut ring = Ring::map(&event, ring_bytes).map_err(|e| failed("map the ring", e))?;
    let aux = aux_bytes.map(|bytes| Aux::map(&event, &mut ring, bytes)).transpose();
    let aux = aux.map_err(|e| failed("map the AUX area", e))?;
    leader.as_ref().unwrap_or(&event).enable().map_err(|e| failed("start sampling", e))?;
    Ok(Cpu { number, _leader: leader, event, ring, aux })
}

fn online_cpus(root: &Root) -> Result<Vec<u32>, KernelFileError> {
    let path = root.sys.join("devices/system/cpu/online");
    match read_optional(&path)? {
        Some(text) => parse_list(&text).ok_or_else(|| {
            KernelFileError::malformed(&path, format!("{:?} is no list of CPUs", text.trim()))
        }),
        None => Err(KernelFileError::not_supported("the list of CPUs", &path, "mount sysfs")),
    }
}

/// The present physical address of a fault's page; 0 if it has none yet, or is not visible to us.
fn physical(aside: &Aside, root: &Root, raw: &RawSample) -> u64 {
    let (vpn, pid, proc) = (raw.address >> PAGE_SHIFT, raw.pid, root.proc.clone());
    let entry = aside.ask(pid, move || Pagemap::open(&proc, pid)?.entry(vpn));
    let pfn = entry.ok().and_then(Result::ok).flatten().and_then(|entry| entry.pfn());
    pfn.map_or(0, |pfn| pfn.0 << PAGE_SHIFT)
}

/// Whether a process whose first thread has ended has other threads left.
fn lives_on(root: &Root, pid: Pid) -> bool {
    process::stat(root, pid).ok().flatten().is_some_and(|stat| stat.threads > 1)
}
