//! Check: is this direction switched on?

use crate::config;
use crate::moves::Direction;
use crate::refusal::RefusalReason;

pub(super) fn check(config: &config::Admission, direction: Direction) -> Result<(), RefusalReason> {
    let on = match direction {
        Direction::Promote => config.promote,
        Direction::Demote => config.demote,
        Direction::Balance => config.balance,
    };
    if on { Ok(()) } else { Err(RefusalReason::DirectionOff) }
}
