//! One thing that happens to an engine, readable from bytes so that the fuzzer and the property
//! tests share it.

/// What happens.
#[derive(Clone, Debug)]
pub enum Step {
    /// Accesses from a small world, most of them sane; each in 8 bytes.
    Accesses(Vec<[u8; 8]>),
    /// An access of arbitrary numbers.
    Nonsense([u64; 4]),
    /// A region of arbitrary numbers.
    Region([u64; 3]),
    /// Time advances by a number of ms (signed: clocks that jump back), with a number of free pages
    /// on each node.
    Tick {
        /// ms.
        advance: i16,
        /// By node.
        free_pages: Option<[u16; 4]>,
    },
    /// The outcome of a batch in flight: which one, and the seed of its moves' ends.
    Outcome {
        /// By age.
        which: u8,
        /// How its moves end.
        ends: u8,
    },
    /// The outcome that came last comes again.
    Again,
    /// The outcome of a batch in flight with too few or too many entries.
    Malformed {
        /// By age.
        which: u8,
        /// Entries.
        len: u8,
    },
    /// A process exits.
    Exit(u8),
    /// A process belongs to a scope.
    Process {
        /// The process.
        pid: u8,
        /// The scope, of which there may be fewer.
        scope: u8,
    },
    /// Frames disappear.
    Offline {
        /// In units of 256 frames.
        start: u8,
        /// In units of 256 frames.
        end: u8,
    },
    /// Nodes come or go, or change their tier: which machine it is then.
    Topology(u8),
    /// More sound accesses at once than the smallest queue holds.
    Flood(u8),
    /// Somebody asks.
    Explain(u8),
}

/// Reads steps until the bytes run out.
pub fn steps(mut bytes: &[u8]) -> Vec<Step> {
    let mut out = Vec::new();
    while let Some(step) = step(&mut bytes) {
        out.push(step);
    }
    out
}

fn step(bytes: &mut &[u8]) -> Option<Step> {
    Some(match take::<1>(bytes)?[0] % 16 {
        0..=3 => {
            let n = take::<1>(bytes)?[0] % 32;
            Step::Accesses((0..n).map_while(|_| take(bytes)).collect())
        }
        4 => Step::Nonsense([word(bytes)?, word(bytes)?, word(bytes)?, word(bytes)?]),
        5 => Step::Region([word(bytes)?, word(bytes)?, word(bytes)?]),
        6..=8 => {
            let advance = i16::from_le_bytes(take(bytes)?);
            let free_pages = if advance & 7 == 0 {
                let [a, b, c, d, e, f, g, h] = take(bytes)?;
                Some([[a, b & 15], [c, d], [e, f], [g, h]].map(u16::from_le_bytes))
            } else {
                None
            };
            Step::Tick { advance, free_pages }
        }
        9..=11 => {
            let [which, ends] = take(bytes)?;
            Step::Outcome { which, ends }
        }
        12 => {
            let [which, len] = take(bytes)?;
            if len & 1 == 0 { Step::Again } else { Step::Malformed { which, len } }
        }
        13 => {
            let [pid] = take(bytes)?;
            match pid & 0x70 {
                0x20 => Step::Topology(pid),
                other if other & 0x10 == 0 => Step::Exit(pid),
                _ => Step::Explain(pid),
            }
        }
        14 => {
            let [pid, scope] = take(bytes)?;
            if pid & 16 == 0 {
                Step::Process { pid, scope }
            } else {
                Step::Offline { start: pid, end: scope }
            }
        }
        _ => Step::Flood(take::<1>(bytes)?[0]),
    })
}

fn take<const N: usize>(bytes: &mut &[u8]) -> Option<[u8; N]> {
    let (head, tail) = bytes.split_first_chunk()?;
    *bytes = tail;
    Some(*head)
}

fn word(bytes: &mut &[u8]) -> Option<u64> {
    take(bytes).map(u64::from_le_bytes)
}
