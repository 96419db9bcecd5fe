//! Compiles the BPF programs with clang and generates their skeleton.

use std::env;
use std::path::PathBuf;
use std::process::{Command, exit};

use libbpf_cargo::SkeletonBuilder;

const SOURCE: &str = "src/bpf/hintfault.bpf.c";

fn main() {
    println!("cargo::rerun-if-changed=src/bpf");
    println!("cargo::rerun-if-env-changed=BPF_CLANG");
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    let mut args = vec!["-Wall".to_owned(), "-Wextra".to_owned(), "-Wno-unused-parameter".to_owned()];
    args.extend(multiarch_include());

    let mut builder = SkeletonBuilder::new();
    builder.source(SOURCE).obj(out.join("hintfault.bpf.o")).clang_args(args);
    if let Some(clang) = env::var_os("BPF_CLANG") {
        builder.clang(clang);
    }
    if let Err(error) = builder.build_and_generate(out.join("hintfault.skel.rs")) {
        eprintln!("cannot build {SOURCE}: {error:#}");
        eprintln!("clang 14 or newer is needed (Debian: apt-get install clang); BPF_CLANG names another one");
        exit(1);
    }
}

/// Debian keeps `asm/types.h` in a folder of the architecture, which clang does not search for the
/// BPF target.
fn multiarch_include() -> Option<String> {
    let output = Command::new("cc").arg("-print-multiarch").output().ok()?;
    let triple = String::from_utf8(output.stdout).ok()?;
    let triple = triple.trim();
    (!triple.is_empty()).then(|| format!("-I/usr/include/{triple}"))
}
