//! Whatever file a verb is given, it ends soon, with an error that fits on a screen.

// Helpers of tests, which clippy takes for other code.
#![allow(clippy::unwrap_used)]

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rustix::fs::{CWD, FileType, Mode, mknodat};

/// What no verb takes for its file, each with the ending that is asked for.
fn files(dir: &Path, ending: &str) -> Vec<PathBuf> {
    let named = |name: &str| dir.join(format!("{name}.{ending}"));
    let text = |name: &str, text: &[u8]| {
        fs::write(named(name), text).unwrap();
        named(name)
    };
    mknodat(CWD, named("fifo"), FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
    fs::create_dir(named("folder")).unwrap();
    symlink("/dev/zero", named("zero")).unwrap();
    symlink(named("circle"), named("circle")).unwrap();
    fs::File::create(named("huge")).unwrap().set_len(100 << 20).unwrap();
    let keys: String = (0..10_000).map(|n| format!("k{n} = 1\n")).collect();
    let tables: String = (0..10_000).map(|n| format!("[a{n}]\n")).collect();
    let expression = format!("[[scope]]\ncommand = \"{}\"\n", "(".repeat(100_000));
    let name = format!("[manager]\nname = \"{}\"\n", "x".repeat(100_000));
    vec![
        named("fifo"),
        named("folder"),
        named("zero"),
        named("circle"),
        named("huge"),
        named("absent"),
        text("bytes", &(0..200_000u32).map(|n| (n * 7 % 251) as u8).collect::<Vec<u8>>()),
        text("nothing", &[0; 100_000]),
        text("lists", &[b'['; 100_000]),
        text("objects", "{\"a\":".repeat(40_000).as_bytes()),
        text("dots", format!("{}=1\n", vec!["a"; 50_000].join(".")).as_bytes()),
        text("keys", keys.as_bytes()),
        text("tables", tables.as_bytes()),
        text("expression", expression.as_bytes()),
        text("name", name.as_bytes()),
        text("commands", b"\x1b]0;x\x07 = 1\n\"\\u001b[2J\" = 2\n"),
    ]
}

/// Runs the verb, which is to fail, and checks what it says.
fn refuses(words: &[&str]) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_thermocline"));
    let start = Instant::now();
    let output = command.args(words).stdin(Stdio::null()).output().unwrap();
    let told = String::from_utf8_lossy(&output.stderr);
    let shown: String = told.chars().take(2000).collect();
    assert!(matches!(output.status.code(), Some(1 | 2)), "{words:?}: {:?}, {shown}", output.status);
    assert!(told.starts_with("error: ") && told.len() < 4000, "{words:?}: {} bytes, {shown}", told.len());
    assert!(!told.contains('\x1b') && !told.contains("panicked"), "{words:?}: {shown}");
    assert!(!told.contains("Usage: "), "the command is refused and not its file, {words:?}: {shown}");
    // Ten times as long as on a machine at rest.
    assert!(start.elapsed() < Duration::from_secs(20), "{words:?} took {:?}", start.elapsed());
}

#[test]
fn what_is_no_configuration_scenario_machine_or_grid_is_refused_soon() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("out").display().to_string();
    for file in files(dir.path(), "toml") {
        let file = file.display().to_string();
        refuses(&["config", "check", &file]);
        refuses(&["sim", &file]);
        refuses(&["sim", "lab-hotcold", "--machine", &file]);
        refuses(&["sweep", &file, "--out", &out]);
    }
    for file in files(dir.path(), "json") {
        refuses(&["sim", "lab-hotcold", "--machine", &file.display().to_string()]);
    }
    assert!(!Path::new(&out).exists());
}

#[test]
fn numbers_that_nothing_can_be_simulated_with_are_refused_soon() {
    for change in [
        "limit=\"-1s\"",
        "limit=\"1e300s\"",
        "process.0.cache_hit=nan",
        "process.0.compute_ns=inf",
        "process.0.lines_per_access=-1.0",
        "process.0.threads=4294967295",
        "process.0.count=4294967295",
        "process.0.footprint=\"1e400GiB\"",
        "process.0.reclaim={ every = \"1ns\", size = \"4KiB\" }",
        "machine.node.0.cpus=4294967295",
        "machine.node.0.read_ns=[nan, 1.0]",
        "machine.hz=0",
    ] {
        refuses(&["sim", "lab-hotcold", "--set", change]);
    }
}

#[test]
fn a_restore_log_of_nonsense_is_told_of_and_left() {
    let dir = tempfile::tempdir().unwrap();
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o700)).unwrap();
    let log = dir.path().join("restore.log");
    fs::write(&log, "nonsense\n".repeat(200_000)).unwrap();
    fs::set_permissions(&log, fs::Permissions::from_mode(0o600)).unwrap();
    let state = format!("--state-dir={}", dir.path().display());
    let output = Command::new(env!("CARGO_BIN_EXE_thermocline"))
        .args(["restore", "--dry-run", &state])
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let told = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(1), "{told}");
    assert!(told.contains("damaged") && told.len() < 1000, "{told}");
    assert_eq!(fs::metadata(&log).unwrap().len(), 9 * 200_000);
}
