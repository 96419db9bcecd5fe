//! The keys of the example's rule, as they would stand in `config/rule.rs`.

pub mod rule {
    use thermocline_core::section;

    section! {
        /// `[rule.eager]`: at first sight.
        Eager {
            /// A page that waits longer than this for its fault is left alone.
            wait_max_ms: u64 = 1000, "ms", 1..=600_000, "ours";
        }
    }

    section! {
        /// `[rule]`, with the example's section in it.
        Rule {}
        sections {
            /// `[rule.eager]`.
            "eager" eager: Eager;
        }
    }
}
