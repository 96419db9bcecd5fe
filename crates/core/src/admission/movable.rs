//! Check: is the page's address known to the mover?

use crate::candidate::Candidate;
use crate::refusal::RefusalReason;
use crate::units::VirtPage;

/// log2 of the largest valid folio in base pages: 1 GiB, the largest huge page of x86-64. Evidence
/// of a larger one is invalid.
pub const ORDER_MAX: u8 = 18;

/// One more than the highest process number (Linux include/linux/threads.h, PID_MAX_LIMIT on 64
/// bits).
pub const PID_LIMIT: u32 = 1 << 22;

/// One more than the highest virtual page number of a user address (57 bits: five-level page
/// tables).
pub const VPN_LIMIT: u64 = 1 << (57 - crate::units::PAGE_SHIFT);

/// The page by which the mover can address the candidate's folio.
pub(super) fn check(candidate: &Candidate) -> Result<VirtPage, RefusalReason> {
    let page = candidate.page.ok_or(RefusalReason::NotMovable)?;
    let sane = candidate.order <= ORDER_MAX && page.pid.0 < PID_LIMIT && page.vpn < VPN_LIMIT;
    if sane { Ok(page) } else { Err(RefusalReason::NotMovable) }
}
