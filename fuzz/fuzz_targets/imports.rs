//! The law of `thermocline_inputs::imports`, for cargo-fuzz.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| thermocline_inputs::imports::check(bytes));
