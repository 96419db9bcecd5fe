//! Section of what a move must gain.

use crate::config::schema::Any;
use crate::section;

section! {
    /// `[payoff]`: what promotions, and the evidence for them, may cost. For rule adaptive; the
    /// published rules decide as published.
    Payoff {
        /// Refuse promotions that gain less than a move costs, and keep to the budget what is spent
        /// to find out.
        enabled: bool = true, "", Any("true or false"), "ours", restart;
        /// CPU time that may be spent before it is known what promotions gain: on hint faults, on
        /// trials and on demotion for them. A share of the CPU time that the machine's programs
        /// use.
        budget_percent: u8 = 1, "%", 1..=100, "ours", restart;
        /// The budget of so much time may be spent in advance.
        loan_s: u64 = 200, "s", 0..=3600, "ours, measured in simulation", restart;
        /// A page that is held out is watched for so long. What a page gains is counted for as
        /// long, or for up to ten times as long if held-out pages stay as hot.
        watch_s: u64 = 60, "s", 10..=3600, "ours", restart;
        /// Cost of promoting a page and demoting another one for it.
        move_ns: u32 = 10_000, "ns", 1..=10_000_000, "assumed 4000 up; 5880 down, fitted to S0", restart;
        /// Cost of a hint fault, with its part of the scan and of what the daemon does with it.
        fault_ns: u32 = 1500, "ns", 1..=10_000_000, "assumed 1200; S1: 92 for the mark", restart;
        /// Time that an access to the top tier saves, if the firmware does not report latencies.
        saved_ns: u32 = 150, "ns", 1..=10_000, "assumed", restart;
    }
}
