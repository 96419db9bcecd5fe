//! The records of a perf ring, found in its bytes.

/// Bytes before each record's content: kind, flags, length.
pub const HEADER_BYTES: usize = 8;

/// Longest record: its length has 16 bits.
const RECORD_MAX: usize = 1 << 16;

/// The bytes of a ring that wait to be read, oldest first: in two pieces if they wrap around its
/// end.
#[derive(Clone, Copy, Debug)]
pub struct Waiting<'a> {
    /// Up to the end of the ring.
    pub first: &'a [u8],
    /// From its beginning on.
    pub second: &'a [u8],
}

/// The result of reading.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Read {
    /// Bytes that were consumed.
    pub bytes: usize,
    /// Records.
    pub records: usize,
    /// The rest was invalid and was discarded.
    pub broken: bool,
}

/// Space to assemble a record that wraps around the ring's end.
pub struct Scratch(Box<[u8; RECORD_MAX]>);

impl Default for Scratch {
    fn default() -> Scratch {
        Scratch(Box::new([0; RECORD_MAX]))
    }
}

impl std::fmt::Debug for Scratch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Scratch")
    }
}

impl<'a> Waiting<'a> {
    fn len(&self) -> usize {
        self.first.len() + self.second.len()
    }

    /// `len` bytes from `at` on, which must exist.
    fn bytes<'s>(&'s self, at: usize, len: usize, scratch: &'s mut Scratch) -> &'s [u8] {
        let first = self.first.len();
        if at + len <= first {
            return &self.first[at..at + len];
        }
        if at >= first {
            return &self.second[at - first..at - first + len];
        }
        let (head, tail) = scratch.0[..len].split_at_mut(first - at);
        head.copy_from_slice(&self.first[at..]);
        tail.copy_from_slice(&self.second[..len - (first - at)]);
        &scratch.0[..len]
    }

    /// Passes up to `records_max` records to `each`, in order, including headers. Allocates
    /// nothing; never panics on any bytes.
    pub fn read(&self, records_max: usize, scratch: &mut Scratch, mut each: impl FnMut(&[u8])) -> Read {
        let mut read = Read::default();
        while read.records < records_max && read.bytes < self.len() {
            let left = self.len() - read.bytes;
            let length = if left < HEADER_BYTES {
                0
            } else {
                let head = self.bytes(read.bytes, HEADER_BYTES, scratch);
                usize::from(u16::from_ne_bytes([head[6], head[7]]))
            };
            if length < HEADER_BYTES || length > left {
                return Read { bytes: self.len(), broken: true, ..read };
            }
            each(self.bytes(read.bytes, length, scratch));
            read.bytes += length;
            read.records += 1;
        }
        read
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn record(content: &[u8]) -> Vec<u8> {
        let mut out = vec![9, 0, 0, 0, 2, 0];
        out.extend(((HEADER_BYTES + content.len()) as u16).to_ne_bytes());
        out.extend(content);
        out
    }

    fn all(first: &[u8], second: &[u8], max: usize) -> (Read, Vec<Vec<u8>>) {
        let mut records = Vec::new();
        let read =
            Waiting { first, second }.read(max, &mut Scratch::default(), |r| records.push(r.to_owned()));
        (read, records)
    }

    #[test]
    fn records_are_whole_wherever_the_ring_ends() {
        let contents = [&b"abcdefgh"[..], b"", b"0123456789abcdef"];
        let bytes: Vec<u8> = contents.iter().flat_map(|c| record(c)).collect();
        for cut in 0..=bytes.len() {
            let (read, records) = all(&bytes[..cut], &bytes[cut..], 9);
            assert_eq!(read, Read { bytes: bytes.len(), records: 3, broken: false }, "cut at {cut}");
            assert_eq!(records, contents.map(record));
        }
        let (read, _) = all(&bytes, &[], 2);
        assert_eq!(read, Read { bytes: 16 + 8, records: 2, broken: false });
    }

    #[test]
    fn a_length_that_cannot_be_gives_the_rest_up() {
        let mut bytes = record(b"abcdefgh");
        bytes.extend([9, 0, 0, 0, 2, 0, 7, 0]);
        assert_eq!(all(&bytes, &[], 9).0, Read { bytes: 24, records: 1, broken: true });
        bytes[22] = 255;
        assert_eq!(all(&bytes, &[], 9).0, Read { bytes: 24, records: 1, broken: true });
    }

    proptest! {
        #[test]
        fn any_bytes_end(bytes in prop::collection::vec(any::<u8>(), 0..200), cut in 0usize..200) {
            let cut = cut.min(bytes.len());
            let (read, records) = all(&bytes[..cut], &bytes[cut..], 100);
            prop_assert!(read.bytes <= bytes.len());
            prop_assert_eq!(read.records, records.len());
        }
    }
}
