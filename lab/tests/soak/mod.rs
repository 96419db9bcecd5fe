//! What is worth its time in `make soak` only.

/// Whether time is no matter.
pub fn soak() -> bool {
    std::env::var_os("THERMOCLINE_SOAK").is_some_and(|value| value == "1")
}

/// Runs a test on one more kernel, or of one more program, only where there is time for it.
pub fn where_time_is_no_matter(test: impl FnOnce()) {
    if soak() {
        test();
    } else {
        println!("skipped: one of its kind is enough for everyday; make soak does all");
    }
}
