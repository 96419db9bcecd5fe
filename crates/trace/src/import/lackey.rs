//! Valgrind's lackey, `--trace-mem=yes`: a line per instruction, load, store and modification.
//!
//! ```text
//! ==10016== Lackey, an example Valgrind tool
//! I  0401ab70,3
//!  S 1fff000758,8
//!  L 04a17de0,8
//!  M 04a48a80,4
//! ```
//!
//! A load or store becomes an access of every page that it touches: a sample of period 1, since
//! every access is there. A modification becomes a load and a store. Instructions are time: the
//! format knows no other. They are no accesses here, although each is fetched from memory.

use thermocline_core::access::{Access, Detail};
use thermocline_core::units::{Nanos, NodeId, PAGE_SHIFT, Pid, VirtPage};

use super::lines::Lines;
use super::out::Out;
use super::{ImportError, TIMES as KEY};

/// What times are where instructions are there.
pub const TIMES: &str = "instructions executed before, no ns";
/// What they are where a trace begins with an access: its instructions were left out.
const TIMES_OF_ACCESSES: &str = "accesses traced before, no ns";
/// Largest access of an instruction, in bytes: what saves the state of a processor takes some KiB.
const BYTES_MAX: u64 = 1 << 16;

/// A line of a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Line {
    /// An instruction.
    Instruction,
    /// A load, a store or both, of so many bytes at an address.
    Access { load: bool, store: bool, address: u64, bytes: u64 },
    /// What Valgrind says, and the process that it speaks of.
    Said(u32),
}

/// Reads a line; `None` if lackey writes no such line.
pub fn line(text: &str) -> Option<Line> {
    let said = |mark| {
        let (pid, _) = text.strip_prefix(mark)?.split_once(mark)?;
        pid.parse().ok().map(Line::Said)
    };
    if let Some(said) = said("==").or_else(|| said("--")).or_else(|| said("**")) {
        return Some(said);
    }
    let (kind, place) = text.split_at_checked(3)?;
    let (address, bytes) = place.split_once(',')?;
    let hexadecimal = address.bytes().all(|byte| byte.is_ascii_hexdigit());
    let decimal = bytes.bytes().all(|byte| byte.is_ascii_digit());
    let address = u64::from_str_radix(address, 16).ok().filter(|_| hexadecimal)?;
    let bytes: u64 = bytes.parse().ok().filter(|bytes| decimal && (1..=BYTES_MAX).contains(bytes))?;
    address.checked_add(bytes)?;
    let access = |load, store| Some(Line::Access { load, store, address, bytes });
    match kind {
        "I  " => Some(Line::Instruction),
        " L " => access(true, false),
        " S " => access(false, true),
        " M " => access(true, true),
        _ => None,
    }
}

/// Reads a trace.
pub fn read(lines: &mut Lines<'_>, out: &mut Out<'_>) -> Result<(), ImportError> {
    let (mut pid, mut by_instructions, mut instructions, mut accesses) = (None, None, 0, 0);
    loop {
        let parsed = match lines.next_line()? {
            None => break,
            Some(text) => line(&text),
        };
        match parsed {
            None => {
                return Err(lines.flaw(
                    "it is no line of lackey's; if the program's own output is among them, \
                     have Valgrind write to a file with --log-file",
                ));
            }
            Some(Line::Said(of)) => {
                if *pid.get_or_insert(of) != of {
                    return Err(lines.flaw(format!(
                        "process {of} writes to the trace of another, and which access is whose is not \
                         known; have each write to its own with --log-file=trace.%p"
                    )));
                }
            }
            Some(Line::Instruction) => {
                by_instructions.get_or_insert(true);
                instructions += 1;
            }
            Some(Line::Access { load, store, address, bytes }) => {
                if by_instructions.is_none() {
                    by_instructions = Some(false);
                    out.setting(KEY, TIMES_OF_ACCESSES.to_owned())?;
                }
                let time = if by_instructions == Some(true) { instructions } else { accesses };
                accesses += 1;
                let pid = pid.map_or(Pid::UNKNOWN, Pid);
                for (_, store) in [(load, false), (store, true)].into_iter().filter(|(is, _)| *is) {
                    for vpn in address >> PAGE_SHIFT..=(address + bytes - 1) >> PAGE_SHIFT {
                        out.access(Access {
                            time: Nanos(time),
                            pfn: None,
                            page: Some(VirtPage { pid, vpn }),
                            order: 0,
                            node: NodeId::UNKNOWN,
                            accessor: None,
                            detail: Detail::Sample { latency_cycles: 0, store: Some(store), period: 1 },
                        })?;
                    }
                }
            }
        }
    }
    if instructions > 0 {
        out.leave_out("instruction fetches", instructions);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_what_lackey_prints() {
        let access = |load, store, address, bytes| Some(Line::Access { load, store, address, bytes });
        for (text, wanted) in [
            ("I  0401ab70,3", Some(Line::Instruction)),
            (" S 1fff000758,8", access(false, true, 0x1f_ff00_0758, 8)),
            (" L 04a17de0,16", access(true, false, 0x04a1_7de0, 16)),
            (" M 04a48a80,4", access(true, true, 0x04a4_8a80, 4)),
            ("==10016== Counted 0 calls to main()", Some(Line::Said(10016))),
            ("--10016-- REDIR", Some(Line::Said(10016))),
            ("", None),
            (" S 1fff000758", None),
            (" S 1fff000758,", None),
            (" S +1fff000758,8", None),
            (" S 1fff000758,+8", None),
            (" S 1fff000758,0", None),
            (" S ffffffffffffffff,8", None),
            (" X 1fff000758,8", None),
            ("I 0401ab70,3", None),
            ("hello, world", None),
            ("==abc== text", None),
        ] {
            assert_eq!(line(text), wanted, "{text}");
        }
    }
}
