//! The law of `thermocline_inputs::faults`, for cargo-fuzz.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| thermocline_inputs::faults::check(bytes));
