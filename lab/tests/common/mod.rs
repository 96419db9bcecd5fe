//! What several tests need.

use std::path::{Path, PathBuf};

/// One of the check programs in lab/examples, built before by `make test` or by
/// `cargo build --release --workspace --examples`.
pub fn example(name: &str) -> PathBuf {
    let program = Path::new(env!("CARGO_BIN_EXE_lab")).with_file_name("examples").join(name);
    assert!(
        program.exists(),
        "{} is absent: build it with cargo build --release --workspace --examples",
        program.display()
    );
    program
}
