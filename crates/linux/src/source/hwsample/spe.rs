//! Packets of Arm's statistical profiling extension: decodes the bytes of an AUX area to samples;
//! any bytes are handled.
//!
//! Layout: Arm Architecture Reference Manual, "Statistical Profiling Extension sample record
//! format". A header byte gives the kind of a packet and, in bits 4-5, log2 of the bytes that
//! follow; a record is all packets up to an end or a timestamp packet.

use super::record::{Level, Operation};

/// Index of a data address, virtual, in address packets.
const ADDRESS_DATA_VIRTUAL: u8 = 2;
/// Index of a data address, physical.
const ADDRESS_DATA_PHYSICAL: u8 = 3;
/// Index of the total latency in counter packets.
const COUNTER_TOTAL: u8 = 0;
/// Addresses have 56 bits; above them are tags and attributes.
const ADDRESS_MASK: u64 = (1 << 56) - 1;
/// Events: last-level cache miss (bit 9), access to another socket or device (bit 10).
const EVENT_MISS: u64 = 1 << 9 | 1 << 10;
/// Events: last-level cache access (bit 8): with it, the absence of a miss is a hit.
const EVENT_LLC_ACCESS: u64 = 1 << 8;
/// Data sources of Neoverse: 0xd another socket or device, 0xe DRAM. Others are caches; no code
/// stands for CXL.
const SOURCES_MEMORY: std::ops::RangeInclusive<u64> = 0xd..=0xe;

/// One sampled operation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SpeSample {
    /// The thread, if the kernel puts it into the context register (CONFIG_PID_IN_CONTEXTIDR).
    pub tid: Option<u32>,
    /// The data address, 0 if there was none. The top byte, a tag, is removed.
    pub address: u64,
    /// Its physical address, 0 where it was not recorded.
    pub physical: u64,
    /// Cycles from issue to completion.
    pub latency_cycles: u16,
    /// Its events (bits of the events packet).
    pub events: u64,
    /// Where it was served, in the processor's own code.
    pub data_source: Option<u64>,
    /// The operation's class (1 is load, store or atomic) and its details.
    pub operation: Option<(u8, u8)>,
}

impl SpeSample {
    /// Load or store.
    pub fn operation(&self) -> Operation {
        match self.operation {
            Some((1, details)) if details & 1 != 0 => Operation::Store,
            Some((1, _)) => Operation::Load,
            _ => Operation::Other,
        }
    }

    /// Memory or a cache, as far as events and data source show.
    pub fn level(&self) -> Level {
        let source = self.data_source.map(|source| SOURCES_MEMORY.contains(&source));
        match source {
            _ if self.events & EVENT_MISS != 0 => Level::Memory,
            Some(true) => Level::Memory,
            None if self.events & EVENT_LLC_ACCESS == 0 => Level::Unknown,
            _ => Level::NotMemory,
        }
    }
}

/// The result of decoding.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Decoded {
    /// Records.
    pub samples: u64,
    /// Bytes that begin no packet, or a packet that was cut off.
    pub malformed_bytes: u64,
}

/// Passes every complete record in `bytes` to `each`. A record that is cut off at the end is lost:
/// the kernel delivers complete records.
pub fn decode(bytes: &[u8], mut each: impl FnMut(&SpeSample)) -> Decoded {
    let mut decoded = Decoded::default();
    let mut sample = SpeSample::default();
    let mut begun = false;
    let mut rest = bytes;
    while let Some((&header, after)) = rest.split_first() {
        rest = after;
        // A long header carries two more bits of the index in its first byte.
        let (header, high) = match header {
            0x20..=0x23 => match rest.split_first() {
                // An alignment packet: nothing but padding follows it.
                Some((0, after)) => {
                    rest = after;
                    continue;
                }
                Some((&second, after)) => {
                    rest = after;
                    (second, (header & 3) << 3)
                }
                None => {
                    decoded.malformed_bytes += 1;
                    break;
                }
            },
            _ => (header, 0),
        };
        let ends = match header {
            0x00 => continue,
            0x01 => true,
            _ => false,
        };
        if !ends {
            let length = 1 << (header >> 4 & 3);
            let Some(kind) = Packet::of(header) else {
                decoded.malformed_bytes += 1;
                continue;
            };
            let Some((payload, after)) = rest.split_at_checked(length) else {
                decoded.malformed_bytes += 1 + rest.len() as u64;
                break;
            };
            rest = after;
            sample.take(kind, (header & 7) | high, header, little_endian(payload));
            begun = true;
            if kind != Packet::Timestamp {
                continue;
            }
        }
        if begun {
            decoded.samples += 1;
            each(&sample);
        }
        sample = SpeSample::default();
        begun = false;
    }
    decoded
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Packet {
    Timestamp,
    Events,
    DataSource,
    Context,
    Operation,
    Address,
    Counter,
}

impl Packet {
    fn of(header: u8) -> Option<Packet> {
        match header {
            0x71 => Some(Packet::Timestamp),
            _ if header & 0xcf == 0x42 => Some(Packet::Events),
            _ if header & 0xcf == 0x43 => Some(Packet::DataSource),
            _ if header & 0xfc == 0x64 => Some(Packet::Context),
            _ if header & 0xfc == 0x48 => Some(Packet::Operation),
            _ if header & 0xf8 == 0xb0 => Some(Packet::Address),
            _ if header & 0xf8 == 0x98 => Some(Packet::Counter),
            _ => None,
        }
    }
}

impl SpeSample {
    fn take(&mut self, kind: Packet, index: u8, header: u8, value: u64) {
        match kind {
            Packet::Events => self.events = value,
            Packet::DataSource => self.data_source = Some(value),
            Packet::Context => self.tid = Some(value as u32),
            Packet::Operation => self.operation = Some((header & 3, value as u8)),
            Packet::Address if index == ADDRESS_DATA_VIRTUAL => self.address = untagged(value),
            Packet::Address if index == ADDRESS_DATA_PHYSICAL => self.physical = value & ADDRESS_MASK,
            Packet::Counter if index == COUNTER_TOTAL => self.latency_cycles = value as u16,
            Packet::Timestamp | Packet::Address | Packet::Counter => {}
        }
    }
}

/// A data address without the tag in its top byte: bit 55 distinguishes kernel from user addresses.
const fn untagged(address: u64) -> u64 {
    if address >> 55 & 1 == 0 { address & ADDRESS_MASK } else { address | !ADDRESS_MASK }
}

fn little_endian(payload: &[u8]) -> u64 {
    payload.iter().rev().fold(0, |value, byte| value << 8 | u64::from(*byte))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn packet(header: &[u8], payload: u64, bytes: usize) -> Vec<u8> {
        [header, &payload.to_le_bytes()[..bytes]].concat()
    }

    fn all(bytes: &[u8]) -> (Decoded, Vec<SpeSample>) {
        let mut samples = Vec::new();
        let decoded = decode(bytes, |s| samples.push(*s));
        (decoded, samples)
    }

    /// A load that missed, as a Neoverse writes it: context, operation, latencies, addresses,
    /// events, source, timestamp.
    fn load() -> Vec<u8> {
        [
            packet(&[0xb0], 0x8000_0000_0040_1000, 8),
            packet(&[0x64], 4321, 4),
            packet(&[0x49], 0, 1),
            packet(&[0x99], 12, 2),
            packet(&[0x98], 400, 2),
            packet(&[0xb2], 0xb400_ffff_9000_1040, 8),
            packet(&[0x9a], 1, 2),
            packet(&[0x52], 1 << 1 | 1 << 3 | 1 << 8 | 1 << 9, 2),
            packet(&[0x43], 0xe, 1),
            packet(&[0xb3], 0x8000_0040_0000_1040, 8),
            packet(&[0x71], 999, 8),
        ]
        .concat()
    }

    #[test]
    fn a_record_is_all_packets_up_to_its_timestamp_or_end() {
        let (decoded, samples) = all(&load());
        assert_eq!(decoded, Decoded { samples: 1, malformed_bytes: 0 });
        let sample = samples[0];
        assert_eq!((sample.tid, sample.latency_cycles), (Some(4321), 400));
        assert_eq!(
            (sample.address, sample.physical),
            (0xffff_9000_1040, 0x40_0000_1040),
            "tags are taken off"
        );
        assert_eq!((sample.operation(), sample.level()), (Operation::Load, Level::Memory));
        let store = [packet(&[0x49], 1, 1), vec![0x01], load()].concat();
        let (decoded, samples) = all(&store);
        assert_eq!(decoded.samples, 2);
        assert_eq!((samples[0].operation(), samples[0].level()), (Operation::Store, Level::Unknown));
        assert_eq!(samples[1], sample, "nothing of one record is left in the next");
    }

    #[test]
    fn hits_are_told_from_misses() {
        let level =
            |events, source| SpeSample { events, data_source: source, ..SpeSample::default() }.level();
        assert_eq!(level(1 << 8, None), Level::NotMemory, "found in the last-level cache");
        assert_eq!(level(1 << 2, Some(0x8)), Level::NotMemory, "found in the L2");
        assert_eq!(level(1 << 10, None), Level::Memory, "elsewhere");
        assert_eq!(level(0, Some(0xd)), Level::Memory);
    }

    #[test]
    fn padding_alignment_and_long_headers_are_passed_over() {
        // Counters and addresses with long headers: index 8 and above has no known meaning.
        let bytes =
            [vec![0, 0, 0x23, 0], packet(&[0x21, 0xb2], 5, 8), packet(&[0x20, 0xb2], 0x1000, 8), vec![1]]
                .concat();
        let (decoded, samples) = all(&bytes);
        assert_eq!(decoded, Decoded { samples: 1, malformed_bytes: 0 });
        assert_eq!(samples[0].address, 0x1000);
        assert_eq!(all(&[0, 0, 1, 1, 0]).0, Decoded::default(), "an end without a beginning is no record");
    }

    #[test]
    fn a_kernel_address_keeps_its_sign() {
        let (_, samples) = all(&[packet(&[0xb2], 0x00ff_8000_1234_5678, 8), vec![1]].concat());
        assert_eq!(samples[0].address, 0xffff_8000_1234_5678);
    }

    #[test]
    fn what_is_cut_off_is_counted() {
        let load = load();
        for cut in 0..load.len() {
            let (decoded, samples) = all(&load[..cut]);
            assert_eq!((decoded.samples, samples.len()), (0, 0), "cut at {cut}");
        }
        assert_eq!(all(&[0xb2, 1, 2]).0.malformed_bytes, 3);
        assert_eq!(all(&[0xff, 0x01]).0, Decoded { samples: 0, malformed_bytes: 1 });
    }

    proptest! {
        #[test]
        fn any_bytes_end(bytes in prop::collection::vec(any::<u8>(), 0..256)) {
            let (decoded, samples) = all(&bytes);
            prop_assert_eq!(decoded.samples, samples.len() as u64);
            prop_assert!(decoded.malformed_bytes <= bytes.len() as u64);
        }
    }
}
