//! Maps a device's own addresses to the host's: the inverse of HDM decoders.
//!
//! A device numbers its memory from 0 (DPA). Its decoders give the host's address of a byte (HPA):
//! each maps a range of the host's addresses, which may be interleaved over several devices,
//! `granularity` bytes from each in turn. Chunk `n` of this device's part is therefore chunk `n *
//! ways + position` of the range. Source: CXL 3.2, 8.2.4.20 (HDM decoder capability), modulo
//! arithmetic; interleaving by XOR of address bits, which the firmware's CXIMS tables describe, is
//! not supported.

use std::ops::Range;

use thermocline_core::units::{PAGE_SHIFT, PAGE_SIZE, Pfn};

/// Numbers of ways in CXL 3.2.
const WAYS: [u32; 8] = [1, 2, 3, 4, 6, 8, 12, 16];
/// Granularities in CXL 3.2, in bytes.
const GRANULARITY: std::ops::RangeInclusive<u32> = 256..=16 << 10;
/// No host has higher addresses.
const HOST_END: u64 = 1 << 52;

/// A range of the host's addresses to which a device contributes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Decoder {
    base: u64,
    bytes: u64,
    ways: u64,
    granularity: u64,
    position: u64,
}

impl Decoder {
    /// The range of `bytes` from `base` on, of which a device has the chunks at `position` of every
    /// `ways`.
    ///
    /// # Errors
    /// Values that no decoder can have.
    pub fn new(
        base: u64,
        bytes: u64,
        ways: u32,
        granularity: u32,
        position: u32,
    ) -> Result<Decoder, &'static str> {
        if !WAYS.contains(&ways) || position >= ways {
            return Err("its memory is interleaved in a way that there is not");
        }
        if !granularity.is_power_of_two() || !GRANULARITY.contains(&granularity) {
            return Err("its memory is interleaved with a granularity that there is not");
        }
        let (ways, granularity) = (u64::from(ways), u64::from(granularity));
        let end = base.checked_add(bytes).filter(|end| *end <= HOST_END);
        if end.is_none() || !base.is_multiple_of(PAGE_SIZE) || !bytes.is_multiple_of(PAGE_SIZE) {
            return Err("its memory lies at no address of the host's");
        }
        if bytes == 0 || !bytes.is_multiple_of(ways * granularity) {
            return Err("its memory cannot be shared out among the ways");
        }
        Ok(Decoder { base, bytes, ways, granularity, position: position.into() })
    }

    /// Memory that the device contributes, in bytes.
    pub fn device_bytes(&self) -> u64 {
        self.bytes / self.ways
    }

    /// The host's address of byte `offset` of the device's part, and the number of bytes for which
    /// both are contiguous; `None` beyond its end.
    fn host(&self, offset: u64) -> Option<(u64, u64)> {
        if offset >= self.device_bytes() {
            return None;
        }
        if self.ways == 1 {
            return Some((self.base + offset, self.bytes - offset));
        }
        let (chunk, within) = (offset / self.granularity, offset % self.granularity);
        // No term is beyond the range, which ends below 2^52.
        let start = self.base + (chunk * self.ways + self.position) * self.granularity;
        Some((start + within, self.granularity - within))
    }
}

/// All decoders of a device, in the order of its own addresses, which they cover without gaps.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decoders(Vec<Decoder>);

impl Decoders {
    /// The decoders of a device.
    pub fn new(decoders: Vec<Decoder>) -> Decoders {
        Decoders(decoders)
    }

    /// Memory of the device that the host sees, in bytes.
    pub fn device_bytes(&self) -> u64 {
        self.0.iter().fold(0, |sum, decoder| sum.saturating_add(decoder.device_bytes()))
    }

    /// The host's address of one of the device's; `None` if the host does not map it.
    pub fn host(&self, address: u64) -> Option<u64> {
        self.run(address).map(|(host, _)| host)
    }

    fn run(&self, address: u64) -> Option<(u64, u64)> {
        let mut offset = address;
        for decoder in &self.0 {
            match decoder.host(offset) {
                Some(found) => return Some(found),
                None => offset -= decoder.device_bytes(),
            }
        }
        None
    }

    /// Iterates over the frames of the device's `addresses`: returns the next one, or `None` if the
    /// host maps no more of them. A frame of which the device has several chunks in a row is
    /// returned once.
    pub fn next_frame(&self, addresses: &mut Range<u64>) -> Option<Pfn> {
        let mut frame = None;
        while addresses.start < addresses.end {
            let Some((host, side_by_side)) = self.run(addresses.start) else { break };
            let found = Pfn(host >> PAGE_SHIFT);
            if frame.is_some_and(|frame| frame != found) {
                break;
            }
            frame = Some(found);
            let step = side_by_side.min(PAGE_SIZE - host % PAGE_SIZE);
            addresses.start = addresses.start.saturating_add(step);
        }
        frame
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const GIB: u64 = 1 << 30;

    fn one(ways: u32, granularity: u32, position: u32) -> Decoders {
        // A multiple of all ways and granularities.
        let decoder = Decoder::new(4 * GIB, 3 * GIB, ways, granularity, position).unwrap();
        Decoders::new(vec![decoder])
    }

    fn frames(decoders: &Decoders, mut addresses: Range<u64>) -> Vec<u64> {
        std::iter::from_fn(|| decoders.next_frame(&mut addresses)).map(|pfn| pfn.0).collect()
    }

    #[test]
    fn alone_a_device_lies_where_its_decoder_begins() {
        let decoders = one(1, 256, 0);
        assert_eq!(decoders.host(0), Some(4 * GIB));
        assert_eq!(decoders.host(3 * GIB - 1), Some(7 * GIB - 1));
        assert_eq!(decoders.host(3 * GIB), None);
        assert_eq!(frames(&decoders, 0x1000..0x2000), [0x10_0001]);
        assert_eq!(frames(&decoders, 0x1f00..0x2100), [0x10_0001, 0x10_0002]);
        assert_eq!(frames(&decoders, 3 * GIB - 0x1000..3 * GIB + 0x1000), [0x1b_ffff], "no more is seen");
    }

    #[test]
    fn chunks_of_several_devices_take_turns() {
        // The second of two, 4 KiB each: every odd page.
        let decoders = one(2, 4096, 1);
        assert_eq!(decoders.host(0x1234), Some(4 * GIB + 0x3234));
        assert_eq!(frames(&decoders, 0..0x3000), [0x10_0001, 0x10_0003, 0x10_0005]);
        // The third of three, 16 KiB each.
        let decoders = one(3, 16384, 2);
        assert_eq!(decoders.host(0), Some(4 * GIB + 32768));
        assert_eq!(decoders.host(16384), Some(4 * GIB + 5 * 16384));
        // With two devices of 256 bytes each, a page of the device is half of two pages; with
        // sixteen, a sixteenth of sixteen.
        assert_eq!(frames(&one(2, 256, 0), 0x1000..0x2000), [0x10_0002, 0x10_0003]);
        assert_eq!(frames(&one(16, 256, 5), 0..0x1000), (0x10_0000..0x10_0010).collect::<Vec<_>>());
        // With 1 KiB each of twelve, every third page has a chunk of it.
        assert_eq!(frames(&one(12, 1024, 0), 0..0x1000), [0x10_0000, 0x10_0003, 0x10_0006, 0x10_0009]);
    }

    #[test]
    fn decoders_share_the_devices_addresses_out() {
        let low = Decoder::new(GIB, GIB / 2, 1, 256, 0).unwrap();
        let high = Decoder::new(4 * GIB, GIB, 2, 4096, 0).unwrap();
        let decoders = Decoders::new(vec![low, high]);
        assert_eq!(decoders.device_bytes(), GIB);
        assert_eq!(decoders.host(GIB / 2 - 1), Some(GIB + GIB / 2 - 1));
        assert_eq!(decoders.host(GIB / 2), Some(4 * GIB));
        assert_eq!(decoders.host(GIB / 2 + 4096), Some(4 * GIB + 8192));
        assert_eq!(decoders.host(GIB), None);
        assert_eq!(frames(&decoders, GIB / 2 - 0x1000..GIB / 2 + 0x1000), [0x5_ffff, 0x10_0000]);
    }

    #[test]
    fn what_no_decoder_can_be_set_to_is_refused() {
        let refused = |base, bytes, ways, granularity, position| {
            Decoder::new(base, bytes, ways, granularity, position).is_err()
        };
        assert!(refused(0, GIB, 5, 256, 0) && refused(0, GIB, 0, 256, 0) && refused(0, GIB, 2, 256, 2));
        assert!(refused(0, GIB, 1, 128, 0) && refused(0, GIB, 1, 300, 0) && refused(0, GIB, 1, 32768, 0));
        assert!(refused(0, 0, 1, 256, 0) && refused(100, GIB, 1, 256, 0) && refused(0, GIB, 3, 256, 0));
        assert!(refused(u64::MAX - 4095, 4096, 1, 256, 0) && refused(1 << 52, 4096, 1, 256, 0));
    }

    proptest! {
        /// Every host address of an interleaved range is one address of exactly one of its devices.
        #[test]
        fn ways_share_the_piece_out(
            ways in prop::sample::select(&WAYS[..]), shift in 8u32..=14, at in 0u64..3 * GIB,
        ) {
            let all: Vec<Decoders> = (0..ways).map(|position| one(ways, 1 << shift, position)).collect();
            // By definition: whose turn it is at this chunk, and how many chunks it had before.
            let chunk = at >> shift;
            let (position, own) = (chunk % u64::from(ways), chunk / u64::from(ways));
            let address = (own << shift) + at % (1 << shift);
            let found = all[position as usize].host(address);
            prop_assert_eq!(found, (4 * GIB + chunk / u64::from(ways) * u64::from(ways) * (1 << shift) < 7 * GIB).then_some(4 * GIB + at));
        }

        #[test]
        fn frames_are_those_of_the_bytes(
            ways in prop::sample::select(&WAYS[..]), shift in 8u32..=14, start in 0u64..GIB / 8, bytes in 1u64..20_000,
        ) {
            let decoders = one(ways, 1 << shift, ways - 1);
            let mut expected: Vec<u64> =
                (start..start + bytes).filter_map(|address| decoders.host(address)).map(|at| at >> 12).collect();
            expected.dedup();
            prop_assert_eq!(frames(&decoders, start..start + bytes), expected);
        }
    }
}
