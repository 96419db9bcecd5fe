//! The law of `thermocline_inputs::samples`, for cargo-fuzz.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| thermocline_inputs::samples::check(bytes));
