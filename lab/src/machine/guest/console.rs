//! What the kernel's console says of a bad end.

use std::collections::BTreeMap;

use crate::End;

/// Maximum number of console lines printed after a bad end.
const LINES_MAX: usize = 40;
/// Maximum number of earlier lines printed because they name a panic or a lockup.
const NAMED_MAX: usize = 20;
/// What a kernel prints when it panics.
const PANIC: &str = "Kernel panic";
/// What it prints when a processor has not scheduled for about 20 s; then comes its number.
const LOCKUP: &str = "soft lockup - CPU#";
/// Before the place of the instruction that it was at.
const PLACE: &str = "RIP: 0010:";
/// Places of a function's first instruction, which is what tracing patches: without and with a
/// landing pad for indirect branches before it.
const ENTRIES: [&str; 2] = ["+0x0/", "+0x4/"];

/// Determines from the console why the guest ended badly.
pub(super) fn diagnose(end: End, console: &str, command_started: bool) -> End {
    let ended_by_itself = matches!(end, End::Died(_));
    if ran_stale_code(console) && end != End::Interrupted {
        End::EmulatorFault { command_started }
    } else if ended_by_itself && console.contains(PANIC) {
        End::Panicked
    } else {
        end
    }
}

/// Whether QEMU executed a breakpoint that the kernel had removed before.
///
/// New kernels take that for their own error. Old ones, as 6.1, return to the instruction, which
/// QEMU takes for a breakpoint again, without end. Then a processor is reported as locked up at a
/// function's first instruction, and at the same one in the next report.
pub(super) fn ran_stale_code(console: &str) -> bool {
    if console.contains("Oops: int3:") {
        return true;
    }
    let mut lines = console.lines();
    let mut places = BTreeMap::new();
    while let Some(report) = lines.by_ref().find_map(|line| line.split_once(LOCKUP)) {
        let processor = report.1.split(' ').next().unwrap_or_default();
        let Some((_, place)) = lines.by_ref().find_map(|line| line.split_once(PLACE)) else { break };
        let stays = places.insert(processor, place) == Some(place);
        if stays && ENTRIES.iter().any(|entry| place.contains(entry)) {
            return true;
        }
    }
    false
}

/// The end of the console and of QEMU's messages, for a person to read. A panic's call trace may be
/// longer than that, so the line that names the panic is always included.
pub(super) fn last_lines(console: &str, messages: &str) -> String {
    let lines: Vec<&str> = console.lines().map(str::trim_end).collect();
    let (before, last) = lines.split_at(lines.len().saturating_sub(LINES_MAX));
    let mut text = String::new();
    let telling = |line: &&&str| [PANIC, LOCKUP, PLACE].iter().any(|what| line.contains(what));
    for line in before.iter().filter(telling).take(NAMED_MAX) {
        text.push_str("its kernel said: ");
        text.push_str(line);
        text.push('\n');
    }
    text.push_str(if lines.is_empty() { "its console is empty" } else { "the last lines of its console:" });
    for line in last {
        text.push_str("\n  ");
        text.push_str(line);
    }
    if !messages.trim().is_empty() {
        text.push_str("\nQEMU said: ");
        text.push_str(messages.trim());
    }
    text
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_stale_breakpoint_is_the_emulators_fault_and_other_panics_are_not() {
        let died = || End::Died("QEMU ended with exit status: 0".to_owned());
        let stale =
            "[ 2.0] Oops: int3: 0000 [#2] PREEMPT SMP\n[ 2.1] Kernel panic - not syncing: Fatal exception";
        assert_eq!(diagnose(died(), stale, false), End::EmulatorFault { command_started: false });
        assert_eq!(diagnose(End::Interrupted, stale, true), End::Interrupted);
        assert_eq!(
            diagnose(died(), "Kernel panic - not syncing: sysrq triggered crash", true),
            End::Panicked
        );
        assert_eq!(diagnose(died(), "", true), died());
        let limit = End::TimedOut(Duration::from_secs(1));
        assert_eq!(diagnose(limit.clone(), "Kernel panic", true), limit);
    }

    /// A report of a lockup, as 6.1 prints it.
    fn lockup(processor: u32, place: &str) -> String {
        format!(
            "[ 52.1] watchdog: BUG: soft lockup - CPU#{processor} stuck for 26s! [hotcold:212]\r\n\
             [ 52.1] Modules linked in: virtio_pci\r\n[ 52.1] RIP: 0010:{place}\r\n[ 52.1] Code: 90 90\r\n"
        )
    }

    #[test]
    fn a_processor_that_stays_at_a_functions_first_instruction_runs_stale_code() {
        let waits = lockup(0, "native_queued_spin_lock_slowpath+0x30/0x2a0");
        let stays = lockup(1, "numa_migrate_prep+0x0/0x80");
        let moves = lockup(1, "change_prot_numa+0x0/0x90");
        let limit = End::TimedOut(Duration::from_secs(1));
        let told = |reports: &[&String]| {
            let console: String = reports.iter().map(|report| report.as_str()).collect();
            diagnose(limit.clone(), &console, true)
        };
        assert_eq!(told(&[&waits, &stays, &waits, &stays]), End::EmulatorFault { command_started: true });
        assert_eq!(told(&[&waits, &stays]), limit, "once may be chance");
        assert_eq!(told(&[&stays, &moves, &stays]), limit, "a kernel that gets on, in a loop");
        assert_eq!(told(&[&waits, &waits]), limit, "a lock that is not released is the kernel's affair");
        assert_eq!(told(&[&stays, &lockup(0, "numa_migrate_prep+0x0/0x80")]), limit, "two processors");
    }

    #[test]
    fn a_lockup_is_named_however_much_follows() {
        let trace: String = (0..60).map(|n| format!("  ? frame {n}\r\n")).collect();
        let text = last_lines(&(lockup(1, "numa_migrate_prep+0x0/0x80") + &trace), "");
        assert!(
            text.contains("soft lockup - CPU#1") && text.contains("RIP: 0010:numa_migrate_prep"),
            "{text}"
        );
    }

    #[test]
    fn a_bad_end_shows_the_last_lines_and_what_qemu_said() {
        let console: String = (0..100).map(|n| format!("line {n}\r\n")).collect();
        let text = last_lines(&console, "no such device\n");
        assert!(
            text.contains("\n  line 99\n") && text.contains("\n  line 60\n") && !text.contains("line 59")
        );
        assert!(text.ends_with("QEMU said: no such device"), "{text}");
        assert_eq!(last_lines("", ""), "its console is empty");
    }

    #[test]
    fn a_panic_is_named_however_long_its_trace_is() {
        let panic = "[    2.1] Kernel panic - not syncing: sysrq triggered crash";
        for trace_lines in [10, 60] {
            let trace: String = (0..trace_lines).map(|n| format!("  ? frame {n}\r\n")).collect();
            let text = last_lines(&format!("up\r\n{panic}\r\n{trace}"), "");
            assert_eq!(text.matches(panic).count(), 1, "{text}");
            assert!(text.ends_with(&format!("? frame {}", trace_lines - 1)), "{text}");
        }
    }
}
