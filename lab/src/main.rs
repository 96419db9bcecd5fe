//! The `lab` command: boots the tiered machine.

fn main() {}
