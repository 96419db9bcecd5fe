//! What `perf script` prints of memory samples and page faults, a line per sample.
//!
//! ```text
//!   true 10035/10035   324.919384:          1 page-faults:     55d9c48da1e0
//! ```
//!
//! A sample of memory has a period if its event counts accesses. A page fault is a sample without
//! one: it shows one access, and not how many there were. So are samples of events that count
//! instructions or cycles (IBS, SPE).

mod line;

use std::collections::BTreeSet;

use thermocline_core::access::{Access, Detail};
use thermocline_core::units::{NodeId, PAGE_SHIFT, Pfn, Pid, VirtPage};

use super::fields::COMMAND;
use super::lines::Lines;
use super::out::Out;
use super::{Fields, ImportError};

pub use line::{Sample, sample};

/// The setting that names the events.
const EVENTS: &str = "events";
/// Names of events that are kept.
const EVENTS_MAX: usize = 64;
/// Addresses from here on are the kernel's.
const KERNEL: u64 = 1 << 63;

/// Reads samples.
pub fn read(lines: &mut Lines<'_>, fields: Option<&Fields>, out: &mut Out<'_>) -> Result<(), ImportError> {
    let (mut events, mut before) = (BTreeSet::new(), false);
    while let Some(text) = lines.next_line()? {
        // Call chains follow their sample, indented by a tab.
        if text.is_empty() || text.starts_with('#') || (before && text.starts_with('\t')) {
            continue;
        }
        let found = match sample(&text, fields) {
            Ok(found) => found,
            Err(what) => return Err(lines.flaw(what)),
        };
        before = true;
        if events.len() < EVENTS_MAX && !events.contains(found.event) {
            events.insert(found.event.to_owned());
            out.setting(EVENTS, events.iter().cloned().collect::<Vec<_>>().join(" "))?;
        }
        match access(&found) {
            Ok(access) => out.access(access)?,
            Err(why) => out.leave_out(why, 1),
        }
    }
    if !before {
        return Err(lines.flaw(format!("there is no sample in it; print samples with {COMMAND}")));
    }
    Ok(())
}

/// The access that a sample shows, or why it shows none.
fn access(sample: &Sample<'_>) -> Result<Access, &'static str> {
    let pfn = sample.physical.filter(|address| *address != 0).map(|address| Pfn(address >> PAGE_SHIFT));
    let page = match (sample.pid, sample.address) {
        (_, 0) => Err("samples without an address"),
        (_, KERNEL..) => Err("samples of the kernel's memory"),
        (None | Some(0), _) => Err("samples without a process"),
        (Some(pid), address) => Ok(VirtPage { pid: Pid(pid), vpn: address >> PAGE_SHIFT }),
    };
    if pfn.is_none() {
        page?;
    }
    let period = if counts_accesses(sample.event) { sample.period } else { None };
    Ok(Access {
        time: sample.time,
        pfn,
        page: page.ok(),
        order: 0,
        node: NodeId::UNKNOWN,
        accessor: None,
        detail: Detail::Sample {
            latency_cycles: sample.weight.unwrap_or(0),
            store: sample.store,
            period: period.unwrap_or(0),
        },
    })
}

/// Whether a period of this event is a number of accesses.
fn counts_accesses(event: &str) -> bool {
    let event = event.to_ascii_lowercase();
    ["mem-loads", "mem-stores", "mem_load", "mem_store", "mem_inst", "mem_trans", "mem_uops"]
        .iter()
        .any(|name| event.contains(name))
}

#[cfg(test)]
mod tests {
    use thermocline_core::units::Nanos;

    use super::*;

    fn of(event: &'static str, pid: Option<u32>, address: u64, physical: Option<u64>) -> Sample<'static> {
        let (period, weight) = (Some(1000), Some(321));
        Sample { pid, time: Nanos(5), period, event, address, store: Some(true), weight, physical }
    }

    #[test]
    fn a_period_is_one_of_accesses_or_unknown() {
        for (event, period) in [
            ("cpu/mem-loads,ldlat=30/P", 1000),
            ("mem_load_retired.l3_miss:pp", 1000),
            ("page-faults", 0),
            ("ibs_op//", 0),
            ("arm_spe_0/load_filter=1/", 0),
            ("cycles:P", 0),
        ] {
            let found = access(&of(event, Some(7), 0x5000, None)).unwrap();
            let wanted = Detail::Sample { latency_cycles: 321, store: Some(true), period };
            assert_eq!((found.detail, found.node, found.pfn), (wanted, NodeId::UNKNOWN, None), "{event}");
            assert_eq!(found.page, Some(VirtPage { pid: Pid(7), vpn: 5 }));
        }
    }

    #[test]
    fn what_shows_no_page_is_left_out() {
        let why = |pid, address| access(&of("page-faults", pid, address, Some(0))).unwrap_err();
        assert_eq!(why(Some(7), 0), "samples without an address");
        assert_eq!(why(Some(7), u64::MAX), "samples of the kernel's memory");
        assert_eq!(why(None, 0x5000), "samples without a process");
        // A frame is a page, whoever accessed it.
        let found = access(&of("page-faults", None, 0x5000, Some(0x9abc))).unwrap();
        assert_eq!((found.pfn, found.page), (Some(Pfn(9)), None));
    }
}
