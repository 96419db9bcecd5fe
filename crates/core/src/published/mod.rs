//! The published arithmetic: each formula once, with no more state than its authors keep.
//!
//! The rules and the simulator's models of the kernel build on it. Series: S0 "Hot page promotion
//! optimization for large address space" (2024-03), S1 "Using Hardware Hints for Optimal Page
//! Placement" (2023-11), S2 "mm: Add speculative numa fault support" (2021-12), S4 "mm: Hot page
//! tracking and promotion infrastructure" (2026-03); the rest is Linux 6.12, mostly
//! `kernel/sched/fair.c`.

pub mod damon;
pub mod fault_count;
pub mod pghot;
pub mod scan_period;
pub mod stamp;
pub mod threshold;
pub mod window;
