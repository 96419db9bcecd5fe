//! `perf_event_attr` as bytes: the argument of perf_event_open(2), for each kind of sampler.
//!
//! Offsets and flag bits are those of Linux include/uapi/linux/perf_event.h; the events are cited
//! where they are made.

use super::pmu::{Ibs, Pebs, PebsEvent, Pmu, Spe};
use crate::sys::perf::{ATTR_BYTES, Whose};

/// Fields of a sample (PERF_SAMPLE_*): process and thread, time, data address, CPU, latency, data
/// source, physical address, and the size of the page that maps the address (Linux 5.11).
pub const SAMPLE_TYPE: u64 = 1 << 1 | 1 << 2 | 1 << 3 | 1 << 7 | 1 << 14 | 1 << 15 | 1 << 19 | 1 << 22;

const DISABLED: u64 = 1 << 0;
const INHERIT: u64 = 1 << 1;
const EXCLUDE_KERNEL: u64 = 1 << 5;
const EXCLUDE_HV: u64 = 1 << 6;
const COMM: u64 = 1 << 9;
const TASK: u64 = 1 << 13;
const WATERMARK: u64 = 1 << 14;
const PRECISE_IP_SHIFT: u32 = 15;
const COMM_EXEC: u64 = 1 << 24;
const USE_CLOCKID: u64 = 1 << 25;

/// Requested skid: "requested to have 0 skid". Load latency needs at least this.
const PRECISE_IP: u64 = 2;
/// MEM_LOAD_RETIRED.L3_MISS (Intel SDM, event 0xd1 with unit mask 0x20; Haswell and later).
const L3_MISS: u64 = 0x20d1;
/// MEM_TRANS_RETIRED.LOAD_LATENCY (Linux 6.12 arch/x86/events/intel/core.c: mem-loads).
const LOAD_LATENCY: u64 = 0x1cd;
/// The required leader of the group of a load-latency event, if the event exists (Linux 6.12
/// arch/x86/events/intel/core.c: mem-loads-aux).
const LOAD_LATENCY_AUX: u64 = 0x8203;
/// IBS op counts micro-operations instead of cycles (Linux 6.12 arch/x86/include/asm/perf_event.h:
/// IBS_OP_CNT_CTL).
const IBS_COUNT_UOPS: u64 = 1 << 19;
/// IBS op drops samples that did not miss the L3 (IBS_OP_L3MISSONLY).
const IBS_L3_MISS_ONLY: u64 = 1 << 16;
/// IBS honours `exclude_kernel` by checking each sample (format/swfilt).
const IBS_SOFTWARE_FILTER: u64 = 1;
/// Arm SPE records physical addresses (Linux 6.12 drivers/perf/arm_spe_pmu.c: pa_enable).
const SPE_PA: u64 = 1 << 1;
/// Arm SPE varies the interval, so that it does not fall into step with a loop (jitter).
const SPE_JITTER: u64 = 1 << 16;
/// Arm SPE records loads and stores only (load_filter, store_filter).
const SPE_LOADS_AND_STORES: u64 = 1 << 33 | 1 << 34;

const PERF_TYPE_SOFTWARE: u32 = 1;
const PERF_TYPE_TRACEPOINT: u32 = 2;
/// PERF_SAMPLE_TIME and PERF_SAMPLE_RAW: when a tracepoint was passed, and its record.
const TRACEPOINT_SAMPLE_TYPE: u64 = 1 << 2 | 1 << 10;
const PERF_COUNT_SW_PAGE_FAULTS: u64 = 2;

/// The fields of `perf_event_attr` that a sampler needs; all others are zero.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EventAttr {
    /// Number of the PMU.
    pub pmu_type: u32,
    /// The event.
    pub config: u64,
    /// Its first extension.
    pub config1: u64,
    /// Its second extension.
    pub config2: u64,
    /// Events from one sample to the next; 0 for an event that only counts.
    pub sample_period: u64,
    /// Fields of a sample.
    pub sample_type: u64,
    /// The bit field from `disabled` on.
    pub flags: u64,
    /// Bytes in the ring that wake the reader.
    pub wakeup_watermark: u32,
    /// Bytes in the AUX area that wake the reader.
    pub aux_watermark: u32,
}

impl EventAttr {
    /// The same for `whose`: children of a thread are sampled only if requested.
    pub fn of(self, whose: Whose) -> EventAttr {
        let inherit = if whose == Whose::OwnThread { INHERIT } else { 0 };
        EventAttr { flags: self.flags | inherit, ..self }
    }

    /// The attribute as the kernel reads it, in the machine's byte order.
    pub fn bytes(&self) -> [u8; ATTR_BYTES] {
        let mut out = [0; ATTR_BYTES];
        let mut put = |at: usize, bytes: &[u8]| out[at..at + bytes.len()].copy_from_slice(bytes);
        put(0, &self.pmu_type.to_ne_bytes());
        put(4, &(ATTR_BYTES as u32).to_ne_bytes());
        put(8, &self.config.to_ne_bytes());
        put(16, &self.sample_period.to_ne_bytes());
        put(24, &self.sample_type.to_ne_bytes());
        put(40, &self.flags.to_ne_bytes());
        put(48, &self.wakeup_watermark.to_ne_bytes());
        put(56, &self.config1.to_ne_bytes());
        put(64, &self.config2.to_ne_bytes());
        let clock = if self.flags & USE_CLOCKID == 0 { 0 } else { libc::CLOCK_MONOTONIC };
        put(92, &clock.to_ne_bytes());
        put(104, &self.aux_watermark.to_ne_bytes());
        out
    }
}

/// The events to open on each CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Events {
    /// An event that only has to lead the group of the other.
    pub leader: Option<EventAttr>,
    /// The event that samples.
    pub sampler: EventAttr,
}

/// The events to request from a PMU: a sample every `period` events, waking the reader when
/// `watermark` bytes wait (in the AUX area, if samples come in one).
///
/// Times are CLOCK_MONOTONIC. On Intel that makes each sample an interrupt of its own: the kernel
/// then looks up the physical address at once, before the page may have moved (Linux 6.12
/// arch/x86/events/intel/core.c: intel_pmu_large_pebs_flags).
pub fn events(pmu: &Pmu, period: u32, watermark: u32) -> Events {
    let base = EventAttr {
        sample_period: pmu.nearest_period(period).into(),
        sample_type: SAMPLE_TYPE,
        flags: DISABLED | TASK | COMM | COMM_EXEC | WATERMARK | USE_CLOCKID,
        wakeup_watermark: watermark,
        ..EventAttr::default()
    };
    match pmu {
        Pmu::Ibs(ibs) => Events { leader: None, sampler: self::ibs(ibs, base) },
        Pmu::Pebs(pebs) => self::pebs(pebs, base),
        Pmu::Spe(spe) => Events { leader: None, sampler: self::spe(spe, base, watermark) },
        Pmu::PageFaults => {
            let event = EventAttr { pmu_type: PERF_TYPE_SOFTWARE, config: PERF_COUNT_SW_PAGE_FAULTS, ..base };
            Events { leader: None, sampler: event }
        }
    }
}

/// Every record of a tracepoint of this number, with its time, waking the reader when `watermark`
/// bytes wait.
pub fn tracepoint(id: u64, watermark: u32) -> EventAttr {
    EventAttr {
        pmu_type: PERF_TYPE_TRACEPOINT,
        config: id,
        sample_period: 1,
        sample_type: TRACEPOINT_SAMPLE_TYPE,
        flags: DISABLED | WATERMARK | USE_CLOCKID,
        wakeup_watermark: watermark,
        ..EventAttr::default()
    }
}

/// Linux 6.12 refuses every `exclude_*` on IBS (PERF_PMU_CAP_NO_EXCLUDE); with the software filter
/// of later kernels it is accepted.
fn ibs(ibs: &Ibs, base: EventAttr) -> EventAttr {
    let user_only = if ibs.software_filter { EXCLUDE_KERNEL } else { 0 };
    EventAttr {
        pmu_type: ibs.pmu_type,
        config: IBS_COUNT_UOPS | if ibs.l3_miss_only { IBS_L3_MISS_ONLY } else { 0 },
        config2: if ibs.software_filter { IBS_SOFTWARE_FILTER } else { 0 },
        flags: base.flags | user_only,
        ..base
    }
}

fn pebs(pebs: &Pebs, base: EventAttr) -> Events {
    let precise = base.flags | EXCLUDE_KERNEL | EXCLUDE_HV | PRECISE_IP << PRECISE_IP_SHIFT;
    let sampler = EventAttr { pmu_type: pebs.pmu_type, flags: precise, ..base };
    match pebs.event {
        PebsEvent::L3Miss => Events { leader: None, sampler: EventAttr { config: L3_MISS, ..sampler } },
        PebsEvent::LoadLatency { cycles } => {
            let sampler = EventAttr { config: LOAD_LATENCY, config1: cycles.into(), ..sampler };
            if !pebs.aux_leader {
                return Events { leader: None, sampler };
            }
            // The group starts with its leader: the member itself is not to be switched on.
            let leader = EventAttr {
                pmu_type: pebs.pmu_type,
                config: LOAD_LATENCY_AUX,
                flags: DISABLED | EXCLUDE_KERNEL | EXCLUDE_HV,
                ..EventAttr::default()
            };
            let sampler = EventAttr { flags: sampler.flags & !DISABLED, ..sampler };
            Events { leader: Some(leader), sampler }
        }
    }
}

fn spe(spe: &Spe, base: EventAttr, watermark: u32) -> EventAttr {
    EventAttr {
        pmu_type: spe.pmu_type,
        config: SPE_PA | SPE_JITTER | SPE_LOADS_AND_STORES,
        flags: base.flags | EXCLUDE_KERNEL | EXCLUDE_HV,
        // The ring itself only contains the positions of samples in the AUX area: each such record
        // is worth waking for.
        wakeup_watermark: 1,
        aux_watermark: watermark,
        ..base
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tracepoint_tells_of_every_time_it_is_passed() {
        let bytes = tracepoint(734, 4096).of(Whose::Thread(7)).bytes();
        assert_eq!((u32_at(&bytes, 0), u64_at(&bytes, 8), u64_at(&bytes, 16)), (2, 734, 1));
        assert_eq!(u64_at(&bytes, 24), 0x404, "TIME and RAW");
        // Of a single thread on any CPU there is a ring only without inheritance; what the kernel
        // does must not be left out.
        assert_eq!(u64_at(&bytes, 40), 1 | 1 << 14 | 1 << 25);
    }

    fn u32_at(bytes: &[u8], at: usize) -> u32 {
        u32::from_ne_bytes(bytes[at..at + 4].try_into().unwrap())
    }

    fn u64_at(bytes: &[u8], at: usize) -> u64 {
        u64::from_ne_bytes(bytes[at..at + 8].try_into().unwrap())
    }

    /// type, config, sample_period, config1, config2, precise_ip, exclude_kernel, disabled.
    fn table(attr: &EventAttr) -> (u32, u64, u64, u64, u64, u64, u64, u64) {
        let b = attr.bytes();
        let flags = u64_at(&b, 40);
        let bit = |n: u32| flags >> n & 1;
        (
            u32_at(&b, 0),
            u64_at(&b, 8),
            u64_at(&b, 16),
            u64_at(&b, 56),
            u64_at(&b, 64),
            flags >> 15 & 3,
            bit(5),
            bit(0),
        )
    }

    #[test]
    fn what_all_samplers_have_in_common_is_where_the_kernel_looks_for_it() {
        let b = events(&Pmu::PageFaults, 1, 4096).sampler.bytes();
        assert_eq!(b.len(), 128);
        assert_eq!((u32_at(&b, 0), u32_at(&b, 4), u64_at(&b, 8)), (1, 128, 2), "PERF_COUNT_SW_PAGE_FAULTS");
        // TID 2, TIME 4, ADDR 8, CPU 0x80, WEIGHT 0x4000, DATA_SRC 0x8000, PHYS_ADDR 0x80000,
        // DATA_PAGE_SIZE 0x400000.
        assert_eq!(u64_at(&b, 24), 0x48_c08e);
        assert_eq!(u64_at(&b, 32), 0, "read_format");
        // disabled, comm, task, watermark, comm_exec, use_clockid.
        assert_eq!(u64_at(&b, 40), 1 | 1 << 9 | 1 << 13 | 1 << 14 | 1 << 24 | 1 << 25);
        assert_eq!((u32_at(&b, 48), u32_at(&b, 92), u32_at(&b, 104)), (4096, 1, 0), "CLOCK_MONOTONIC is 1");
        assert!(b[108..].iter().all(|byte| *byte == 0));
    }

    #[test]
    fn ibs_counts_micro_operations_and_excludes_nothing_unless_the_kernel_filters() {
        let ibs = |l3_miss_only, software_filter| {
            let pmu = Pmu::Ibs(Ibs { pmu_type: 11, l3_miss_only, software_filter });
            events(&pmu, 10_001, 64).sampler
        };
        assert_eq!(table(&ibs(true, false)), (11, 0x9_0000, 10_000, 0, 0, 0, 0, 1));
        assert_eq!(table(&ibs(false, false)), (11, 0x8_0000, 10_000, 0, 0, 0, 0, 1));
        assert_eq!(table(&ibs(true, true)), (11, 0x9_0000, 10_000, 0, 1, 0, 1, 1));
        assert_eq!(ibs(true, false).flags & (EXCLUDE_KERNEL | EXCLUDE_HV), 0);
    }

    #[test]
    fn pebs_samples_l3_misses_or_slow_loads_behind_the_leader_where_it_is_needed() {
        let pebs = |event, aux_leader| events(&Pmu::Pebs(Pebs { pmu_type: 4, event, aux_leader }), 5000, 64);
        let miss = pebs(PebsEvent::L3Miss, true);
        assert_eq!((miss.leader, table(&miss.sampler)), (None, (4, 0x20d1, 5000, 0, 0, 2, 1, 1)));
        let slow = pebs(PebsEvent::LoadLatency { cycles: 30 }, false);
        assert_eq!((slow.leader, table(&slow.sampler)), (None, (4, 0x1cd, 5000, 30, 0, 2, 1, 1)));
        let led = pebs(PebsEvent::LoadLatency { cycles: 30 }, true);
        assert_eq!(table(&led.sampler), (4, 0x1cd, 5000, 30, 0, 2, 1, 0), "its leader switches it on");
        let leader = led.leader.unwrap();
        assert_eq!(table(&leader), (4, 0x8203, 0, 0, 0, 0, 1, 1));
        assert_eq!((leader.sample_type, u32_at(&leader.bytes(), 92)), (0, 0));
    }

    #[test]
    fn spe_asks_for_physical_addresses_of_loads_and_stores_in_the_aux_area() {
        let spe = Pmu::Spe(Spe { pmu_type: 9, min_interval: 1024, cpus: vec![0] });
        let attr = events(&spe, 10_000, 1 << 19).sampler;
        assert_eq!(table(&attr), (9, 1 << 1 | 1 << 16 | 1 << 33 | 1 << 34, 10_000, 0, 0, 0, 1, 1));
        assert_eq!((attr.wakeup_watermark, u32_at(&attr.bytes(), 104)), (1, 1 << 19));
        assert_eq!(events(&spe, 16, 64).sampler.sample_period, 1024, "no shorter than the hardware can");
    }
}
