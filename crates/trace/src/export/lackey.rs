//! Accesses as Valgrind's lackey writes them.
//!
//! A line is an access to a page: its address is that of the page, its size the least that an
//! access has. What is not known to be a store is written as a load. Times, periods, nodes and
//! frames are lost, and pages without an address are left out.

use std::io::Write;

use thermocline_core::access::Detail;
use thermocline_core::units::Pid;

use super::ExportError;
use crate::piece::Piece;
use crate::reader::Reader;

/// What was written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lackey {
    /// Accesses.
    pub accesses: u64,
    /// Accesses of which it is not known that they were loads, among them.
    pub unknown: u64,
    /// Accesses without an address, which were left out.
    pub without_address: u64,
    /// Accesses of other processes, which were left out.
    pub of_others: u64,
}

/// Writes the accesses of a process, or of the only one.
///
/// # Errors
/// There are several processes and none is named, or it cannot be written.
pub fn lackey(reader: &mut Reader<'_>, only: Option<Pid>, to: &mut dyn Write) -> Result<Lackey, ExportError> {
    let (mut done, mut first) = (Lackey::default(), None);
    while let Some((_, _, piece)) = reader.next_event() {
        let Piece::Accesses(batch, _) = piece else { continue };
        for access in batch {
            let Some(page) = access.page else {
                done.without_address += 1;
                continue;
            };
            if only.is_some_and(|only| only != page.pid) {
                done.of_others += 1;
                continue;
            }
            match first {
                Some(first) if first != page.pid => return Err(ExportError::Several(first, page.pid)),
                Some(_) => {}
                None => {
                    first = Some(page.pid);
                    if page.pid != Pid::UNKNOWN {
                        writeln!(to, "=={}== Pages of a recording, exported by thermocline", page.pid.0)?;
                    }
                }
            }
            let store = match access.detail {
                Detail::Sample { store, .. } => store,
                Detail::HintFault { .. } | Detail::Count { .. } => None,
            };
            done.accesses += 1;
            done.unknown += u64::from(store.is_none());
            let kind = if store == Some(true) { 'S' } else { 'L' };
            writeln!(to, " {kind} {:08x},1", page.address())?;
        }
    }
    to.flush()?;
    Ok(done)
}
