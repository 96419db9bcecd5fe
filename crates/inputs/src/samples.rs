//! Bytes of a perf ring or of an Arm SPE area, from anywhere, all the way to the
//! accesses that the engine is shown.
//!
//! The first byte says which of the two they are; of a ring, the next two say where its end is.
//! Whatever the bytes: no panic, no more memory than is asked for at the start, every record told
//! of once, and every access in bounds.

use std::cell::RefCell;

use thermocline_core::access::Access;
use thermocline_core::units::{Nanos, Pid};
use thermocline_linux::source::hwsample::record::{Record, decode};
use thermocline_linux::source::hwsample::spe;
use thermocline_linux::source::hwsample::useful::{Judge, Sighting, Tally, Useless};
use thermocline_linux::sys::perf::ring::{HEADER_BYTES, Scratch, Waiting};

use crate::machine::{SLOW, nodes};

const FRAMES: u64 = 1 << 40;

thread_local! {
    static MACHINE: RefCell<(Judge, Scratch)> = {
        let (frames, topology) = nodes(FRAMES);
        RefCell::new((Judge::new(frames, &topology, false), Scratch::default()))
    };
}

/// Panics where the bytes broke a law.
pub fn check(bytes: &[u8]) {
    let Some(([kind, low, high], bytes)) = bytes.split_first_chunk() else { return };
    MACHINE.with_borrow_mut(|(judge, scratch)| match kind % 3 {
        0 => ring(judge, scratch, u16::from_le_bytes([*low, *high]), bytes),
        1 => ring(&judge.clone().of_page_faults(), scratch, u16::from_le_bytes([*low, *high]), bytes),
        _ => area(judge, bytes),
    });
}

fn ring(judge: &Judge, scratch: &mut Scratch, end: u16, bytes: &[u8]) {
    let (first, second) = bytes.split_at(usize::from(end) % (bytes.len() + 1));
    let whole = Waiting { first: bytes, second: &[] };
    let mut tally = Tally::default();
    let mut decoded = Vec::new();
    let read = Waiting { first, second }.read(usize::MAX, scratch, |bytes| {
        let record = decode(bytes);
        if let Ok(Record::Sample(raw)) = record {
            hold(judge.judge(&Sighting::from(&raw), |pid| pid.0 % 2 == 0), &mut tally);
        }
        decoded.push(record);
    });
    assert!(read.bytes <= bytes.len() && read.records <= bytes.len() / HEADER_BYTES);
    assert_eq!(read.records, decoded.len());
    balance(&tally, read.records);
    // Where the ring ends makes no difference, nor does reading it one by one.
    let mut same = decoded.iter();
    let again = whole.read(usize::MAX, scratch, |bytes| assert_eq!(same.next(), Some(&decode(bytes))));
    assert_eq!(again, read);
    let one = whole.read(1, scratch, |bytes| assert_eq!(decoded.first(), Some(&decode(bytes))));
    assert!(one.records <= 1);
}

fn area(judge: &Judge, bytes: &[u8]) {
    let mut tally = Tally::default();
    let decoded = spe::decode(bytes, |sample| {
        assert!(sample.physical >> 56 == 0);
        let pid = sample.tid.map(Pid);
        hold(judge.judge(&Sighting::of_spe(sample, pid, Nanos(5), 0), |pid| pid.0 % 2 == 0), &mut tally);
    });
    assert!(decoded.samples + decoded.malformed_bytes <= bytes.len() as u64);
    assert_eq!(decoded.samples, tally.taken);
    balance(&tally, bytes.len());
}

fn hold(judged: Result<Access, Useless>, tally: &mut Tally) {
    tally.count(&judged);
    let Ok(access) = judged else { return };
    assert_eq!(access.node, SLOW);
    assert!(access.pfn.is_some_and(|pfn| pfn.0 < FRAMES && pfn.0 % access.pages() == 0));
    let page = access.page;
    assert!(
        page.is_none_or(|page| page.pid.0 % 2 == 0 && page.vpn < 1 << 51 && page.vpn % access.pages() == 0)
    );
}

fn balance(t: &Tally, most: usize) {
    let others =
        t.not_user + t.no_access + t.cache_hit + t.no_physical + t.not_memory + t.top_tier + t.out_of_scope;
    assert_eq!(t.taken, t.useful + t.local + others);
    assert!(t.taken <= most as u64);
}
