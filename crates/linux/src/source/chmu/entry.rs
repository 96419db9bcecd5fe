//! An entry of a hot list, as CXL 3.2 lays it out.

use std::ops::Range;

/// Bits of an entry.
const BITS: u32 = 64;

/// How a device writes its entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Format {
    counter_bits: u32,
    unit_shift: u32,
}

/// A unit that was hot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Its number: its address on the device by its size.
    pub unit: u64,
    /// What was counted in the epoch, no more than the counter holds; meaningless for always-on
    /// devices.
    pub count: u64,
}

impl Format {
    /// Entries whose low `counter_bits` are the count, of units of `unit_bytes`.
    ///
    /// # Errors
    /// Such entries cannot exist.
    pub fn new(counter_bits: u32, unit_bytes: u32) -> Result<Format, &'static str> {
        if counter_bits == 0 || counter_bits >= BITS {
            return Err("its counters have no bits, or leave none for the unit");
        }
        if !unit_bytes.is_power_of_two() {
            return Err("its units are no power of two");
        }
        Ok(Format { counter_bits, unit_shift: unit_bytes.ilog2() })
    }

    /// Decodes an entry; any bits are valid.
    #[inline]
    pub fn decode(&self, bits: u64) -> Entry {
        Entry { unit: bits >> self.counter_bits, count: bits & ((1 << self.counter_bits) - 1) }
    }

    /// The device's addresses of a unit; `None` if there are no such addresses.
    pub fn addresses(&self, unit: u64) -> Option<Range<u64>> {
        let start = unit.checked_mul(1 << self.unit_shift)?;
        Some(start..start.checked_add(1 << self.unit_shift)?)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_count_is_below_the_unit() {
        let format = Format::new(16, 4096).unwrap();
        let entry = format.decode(0x12_3456_0007);
        assert_eq!(entry, Entry { unit: 0x12_3456, count: 7 });
        assert_eq!(format.addresses(entry.unit), Some(0x1_2345_6000..0x1_2345_7000));
        assert_eq!(format.decode(u64::MAX), Entry { unit: (1 << 48) - 1, count: 0xffff });
        assert_eq!(format.addresses(u64::MAX / 4096), None, "its end is beyond the last address");
        let narrow = Format::new(1, 256).unwrap();
        assert_eq!(narrow.decode(5), Entry { unit: 2, count: 1 });
        assert_eq!(narrow.addresses(2), Some(512..768));
    }

    #[test]
    fn entries_without_room_for_count_or_unit_are_refused() {
        assert!(Format::new(0, 4096).is_err() && Format::new(64, 4096).is_err());
        assert!(Format::new(16, 0).is_err() && Format::new(16, 5000).is_err());
    }

    proptest! {
        #[test]
        fn nothing_of_an_entry_is_lost(bits in any::<u64>(), counter_bits in 1u32..64, shift in 8u32..31) {
            let format = Format::new(counter_bits, 1 << shift).unwrap();
            let Entry { unit, count } = format.decode(bits);
            prop_assert_eq!(unit << counter_bits | count, bits);
            prop_assert!(count < 1 << counter_bits);
            if let Some(range) = format.addresses(unit) {
                prop_assert_eq!((range.start >> shift, (range.end - 1) >> shift), (unit, unit));
            }
        }
    }
}
