//! The law of `thermocline_inputs::regions`, for cargo-fuzz.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| thermocline_inputs::regions::check(bytes));
