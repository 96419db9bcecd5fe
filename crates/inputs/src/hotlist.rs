//! The memory of the lab's hot list filled with anything: registers, marks and entries before the
//! source opens it, and while it reads.
//!
//! The first two bytes choose the settings. Each ten bytes of the rest write a number of eight
//! somewhere, those of the second half after the list was opened. Whatever they write: no panic,
//! every reading ends and tells no more than it was asked for, and every access is of a frame of
//! the slow node's.

use thermocline_core::access::Detail;
use thermocline_core::config::{ChmuSource as Keys, HotListMode};
use thermocline_core::topology::Topology;
use thermocline_core::units::{Nanos, Pfn, Pid, VirtPage};
use thermocline_linux::reverse::Resident;
use thermocline_linux::source::Owners;
use thermocline_linux::source::chmu::ChmuSource;
use thermocline_linux::topology::PfnMap;

use crate::machine::{Device, SLOW, nodes};

const SLOTS: u64 = 64;
/// Where the registers are.
const AT: usize = 4096;
const BYTES: usize = AT + 4096 + SLOTS as usize * 8;
/// Accesses asked for at once.
const MAX: usize = 50;

thread_local! {
    static MACHINE: (Device, (PfnMap, Topology)) = (Device::new(sound()), nodes(3 << 19));
}

/// Of every four frames the first is nobody's and the second is in a huge page.
struct Somebody;

impl Owners for Somebody {
    fn owner(&mut self, pfn: Pfn) -> Option<Resident> {
        let order = if pfn.0 % 4 == 1 { 9 } else { 0 };
        let pfn_of_head = Pfn(pfn.0 >> order << order);
        let page = VirtPage { pid: Pid(1), vpn: pfn_of_head.0 };
        (!pfn.0.is_multiple_of(4)).then_some(Resident { page, pfn: pfn_of_head, order })
    }
}

/// Panics where the bytes broke a law.
pub fn check(bytes: &[u8]) {
    let Some(([unit, mode], bytes)) = bytes.split_first_chunk() else { return };
    MACHINE.with(|(device, (frames, topology))| {
        device.reset();
        let (before, after) = bytes.split_at(bytes.len() / 2);
        device.scribble(before);
        let keys = Keys {
            unit_bytes: 1 << (8 + unit % 23),
            mode: if mode % 2 == 0 { HotListMode::Epoch } else { HotListMode::AlwaysOn },
            downsampling: 1 << (mode >> 4),
            ..Keys::default()
        };
        let Ok(mut list) = ChmuSource::open(&device.root, &keys, Nanos(0)) else { return };
        device.scribble(after);
        let known = (frames, topology);
        for at in 1..5 {
            let (before, mut accesses) = (list.stats(), Vec::new());
            let looked = list.read(MAX, Nanos(at), known, &mut Somebody, &mut accesses);
            let now = list.stats();
            assert!(looked <= MAX && accesses.len() <= looked && now.waiting <= 1 << 20);
            let grown = |of: fn(&thermocline_linux::source::chmu::Stats) -> u64| of(&now) - of(&before);
            assert_eq!(grown(|s| s.looked_up), accesses.len() as u64);
            assert_eq!(
                looked as u64,
                grown(|s| s.looked_up) + grown(|s| s.not_memory) + grown(|s| s.top_tier)
            );
            for access in accesses {
                assert!(access.node == SLOW && access.time == Nanos(at) && access.pfn.is_some());
                assert!(matches!(access.detail, Detail::Count { count: 1.., .. }));
            }
        }
    });
}

/// An empty list of a device of 1 GiB, of which the host sees 2 GiB together with another device's.
fn sound() -> Vec<u8> {
    let mut bytes = vec![0; BYTES];
    let words = [
        (0, u64::from_le_bytes(*b"TLCSAMP1")),
        (24, AT as u64),
        (AT, u64::from_le_bytes(*b"TLCCHMU1")),
        (AT + 8, SLOTS | 16 << 32),
        (AT + 24, 1 << 30),
        (AT + 32, 1),
        (AT + 40, 4 << 30),
        (AT + 48, 2 << 30),
        (AT + 56, 2 | 256 << 32),
    ];
    for (at, number) in words {
        bytes[at..at + 8].copy_from_slice(&number.to_le_bytes());
    }
    bytes
}
