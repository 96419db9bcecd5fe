//! The simulator against what is known otherwise: its two modes against each other, and ground
//! truths.

mod caps;
#[path = "../../../core/tests/it/laws.rs"]
#[allow(dead_code)]
mod engine_laws;
mod evidence;
mod faults;
#[path = "../../../core/tests/it/faulty.rs"]
#[allow(dead_code)]
mod faulty;
mod generations;
#[path = "../../../core/tests/it/hunt.rs"]
mod hunt;
mod lab;
mod laws;
mod managers;
mod modes;
mod numab1;
mod numab2;
mod operations;
mod pace;
mod paired;
mod payoff;
mod published;
mod roles;
mod shares;
mod targets;
mod truths;
