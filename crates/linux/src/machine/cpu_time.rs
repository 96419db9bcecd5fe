//! `/proc/stat`: the CPU time that the machine's programs have used.
//!
//! That of kernel threads is in it too, because the kernel sums up by CPU and not by task. A sum
//! over the managed processes would leave them out, but needs a file of each, time and again.

use thermocline_core::units::Nanos;

use crate::root::{KernelFileError, Root, read_optional};

/// Length of a clock tick as procfs counts them (Linux include/asm-generic/param.h, USER_HZ).
const TICK: Nanos = Nanos::from_ms(10);

/// Time spent in programs and in the kernel on their behalf since boot, all CPUs together; `None`
/// if the kernel does not tell.
///
/// # Errors
/// The file cannot be read or understood.
pub(super) fn read(root: &Root) -> Result<Option<Nanos>, KernelFileError> {
    let path = root.proc.join("stat");
    let Some(text) = read_optional(&path)? else { return Ok(None) };
    match parse(&text) {
        Some(cpu) => Ok(Some(cpu)),
        None => Err(KernelFileError::malformed(&path, "is not what proc(5) describes")),
    }
}

/// User, nice and system time of the line of all CPUs. Time of guests is part of user time.
fn parse(text: &str) -> Option<Nanos> {
    let line = text.lines().find_map(|line| line.strip_prefix("cpu "))?;
    let ticks: Vec<u64> = line.split_ascii_whitespace().take(3).map_while(|n| n.parse().ok()).collect();
    let [user, nice, system] = ticks[..] else { return None };
    let ticks = user.checked_add(nice)?.checked_add(system)?;
    Some(Nanos(ticks.checked_mul(TICK.0)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn idle_time_and_interrupts_are_nobodys_work() {
        let text = "cpu  100 20 3 5000 60 7 8 9 50 0\ncpu0 100 20 3 5000 60 7 8 9 50 0\nintr 1\n";
        assert_eq!(parse(text), Some(Nanos::from_ms(1230)));
    }

    #[test]
    fn what_is_cut_off_is_refused() {
        for text in ["", "cpu  1 2", "cpu  1 x 3", "cpu0 1 2 3 4", "cpu  18446744073709551615 1 1"] {
            assert_eq!(parse(text), None, "{text:?}");
        }
    }
}
