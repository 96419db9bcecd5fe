//! `thermocline sweep` from outside: killed, sharded, on folders that are not its own.

use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

fn sweep(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_thermocline"));
    command.arg("sweep").args(args).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

fn output(args: &[&str]) -> Output {
    sweep(args).output().expect("it starts")
}

fn done(args: &[&str]) -> String {
    let out = output(args);
    assert!(out.status.success(), "{args:?}: {}", String::from_utf8_lossy(&out.stderr));
    String::from_utf8_lossy(&out.stdout).into_owned()
}

/// A folder with a grid of 24 runs, of about this many accesses each.
fn folder_with_grid(accesses_per_page: u32) -> (tempfile::TempDir, String) {
    let folder = tempfile::tempdir().expect("a folder");
    let grid = format!(
        "scenarios = [\"chunks-small\"]\nmanagers = [\"numab2\", \"thermocline:adaptive\"]\nseeds = 6\n\
         [parameters]\nprocess.0.footprint = [\"64MiB\"]\nprocess.0.pattern.chunk = [\"4MiB\"]\n\
         process.0.pattern.visits = [20]\nprocess.0.pattern.accesses_per_page = [{accesses_per_page}]\n\
         machine.node.0.memory = [\"32MiB\", \"48MiB\"]\n"
    );
    std::fs::write(folder.path().join("grid.toml"), grid).expect("the folder can be written");
    let path = text(&folder.path().join("grid.toml"));
    (folder, path)
}

fn text(path: &Path) -> String {
    path.to_str().expect("a plain path").to_owned()
}

fn merged(folder: &str) -> Vec<u8> {
    done(&["--merge", folder]);
    std::fs::read(Path::new(folder).join("sweep.parquet")).expect("it was merged")
}

/// Starts a sweep and ends it by a signal once a few runs are in its journal. Returns its exit
/// status.
fn interrupt(args: &[&str], journal: &Path, signal: Signal) -> Option<i32> {
    let mut child = sweep(args).env("RAYON_NUM_THREADS", "1").spawn().expect("it starts");
    let begun = Instant::now();
    // The first line is no run's.
    while std::fs::read_to_string(journal).unwrap_or_default().lines().count() < 4 {
        assert!(begun.elapsed() < Duration::from_secs(60), "it does nothing");
        assert!(
            child.try_wait().expect("it can be asked").is_none(),
            "it was done before it was interrupted"
        );
        std::thread::sleep(Duration::from_millis(1));
    }
    kill_process(Pid::from_child(&child), signal).expect("it is running");
    child.wait().expect("it ends").code()
}

#[test]
fn what_a_killed_sweep_has_done_is_not_done_again_and_the_bytes_are_those_of_one_that_was_not_killed() {
    let (folder, grid) = folder_with_grid(400);
    let [whole, killed] = ["whole", "killed"].map(|name| text(&folder.path().join(name)));
    let journal = Path::new(&killed).join("part-1-of-1.journal");
    let args = [grid.as_str(), "--out", &killed];

    assert_eq!(interrupt(&args, &journal, Signal::KILL), None);
    let runs = std::fs::read_to_string(&journal).expect("it is kept").lines().count() - 1;
    assert!((3..24).contains(&runs), "{runs} runs");
    // As if it had been killed in the middle of a line.
    let torn = std::fs::read_to_string(&journal).expect("it is kept") + "[23,[true,0.4";
    std::fs::write(&journal, torn).expect("it can be written");
    assert!(!Path::new(&killed).join("part-1-of-1.parquet").exists());
    let out = output(&["--merge", &killed]);
    let error = String::from_utf8_lossy(&out.stderr).into_owned();
    assert_eq!(out.status.code(), Some(2), "{error}");
    assert!(
        error.contains("of 24 runs are missing: chunks-small under ")
            && error.contains("machine.node.0.memory = "),
        "{error}"
    );

    // Ctrl-C is no different, but for what it says.
    std::fs::rename(&journal, folder.path().join("aside")).expect("it can be moved");
    assert_eq!(interrupt(&args, &journal, Signal::INT), Some(130));
    std::fs::rename(folder.path().join("aside"), &journal).expect("it can be moved");

    let said = done(&args);
    let before: usize =
        said.split(", ").last().and_then(|s| s.split(' ').next()?.parse().ok()).expect("a number");
    assert!(before >= runs && said.contains("24 runs"), "{said}, {runs} in the journal");
    assert!(!journal.exists());
    assert!(done(&args).contains("24 of them done before"));

    done(&[&grid, "--out", &whole]);
    assert!(merged(&whole) == merged(&killed), "the bytes differ");
}

#[test]
fn shards_in_any_order_and_on_any_number_of_cores_make_the_same_bytes() {
    let (folder, grid) = folder_with_grid(20);
    let one = text(&folder.path().join("one"));
    done(&[&grid, "--out", &one]);
    let expected = merged(&one);
    assert!(expected.starts_with(b"PAR1"));
    for (name, shards, cores) in [
        ("a", vec!["3/3", "1/3", "2/3"], "1"),
        ("b", vec!["2/2", "1/2"], "4"),
        ("c", (1..=26).map(|_| "").collect(), "2"),
    ] {
        let dir = text(&folder.path().join(name));
        for (i, shard) in shards.iter().enumerate() {
            // More shards than runs: some have nothing to do.
            let shard = if shard.is_empty() { format!("{}/26", 26 - i) } else { (*shard).to_owned() };
            let out =
                sweep(&[&grid, "--out", &dir, "--shard", &shard]).env("RAYON_NUM_THREADS", cores).output();
            assert!(out.expect("it starts").status.success(), "{shard}");
        }
        assert!(merged(&dir) == expected, "{name}: the bytes differ");
    }
}

#[test]
fn shards_at_the_same_time_do_not_disturb_each_other() {
    let (folder, grid) = folder_with_grid(20);
    let [one, many] = ["one", "many"].map(|name| text(&folder.path().join(name)));
    done(&[&grid, "--out", &one]);
    let shards = ["1/4", "2/4", "3/4", "4/4"];
    let running: Vec<_> = shards
        .iter()
        .map(|s| sweep(&[&grid, "--out", &many, "--shard", s]).spawn().expect("it starts"))
        .collect();
    for child in running {
        let out = child.wait_with_output().expect("it ends");
        assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    }
    assert!(merged(&one) == merged(&many), "the bytes differ");
}

#[test]
fn bad_input_is_one_error_with_place_and_remedy_and_status_2() {
    let (folder, grid) = folder_with_grid(20);
    let file = |name: &str, text: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, text).expect("the folder can be written");
        path.to_str().expect("a plain path").to_owned()
    };
    let out = text(&folder.path().join("out"));
    done(&[&grid, "--out", &out]);
    let changed =
        file("changed.toml", &std::fs::read_to_string(&grid).expect("it is there").replace("= 6", "= 7"));
    let unknown = file("unknown.toml", "scenarios = [\"redis\"]\nseeds = 1\nmanger = [\"ibs\"]\n");
    let empty = file("empty.toml", "scenarios = [\"redis\"]\nseeds = 1\n[parameters]\nlimit = []\n");
    let huge = file("huge.toml", "scenarios = [\"redis\"]\nseeds = 100_000_000\n");
    let long = file("long.toml", &"#".repeat(100 << 20));
    let negative = file(
        "negative.toml",
        "scenarios = [\"redis\"]\nseeds = 1\n[parameters]\nprocess.0.footprint = [\"-1GiB\"]\n",
    );
    let lost = file("lost.toml", "scenarios = [\"lost-scenario.toml\"]\nseeds = 1\n");
    let nowhere = text(&folder.path().join("nowhere"));
    for (args, said) in [
        (vec![changed.as_str(), "--out", &out], "holds the results of another grid"),
        (vec![unknown.as_str(), "--out", &nowhere], "unknown.toml:3: unknown field `manger`"),
        (vec![empty.as_str(), "--out", &nowhere], "parameters.limit: has no values; give at least one"),
        (vec![huge.as_str(), "--out", &nowhere], "are more than 1000000 runs; shorten"),
        (vec![long.as_str(), "--out", &nowhere], "is too long for a specification; stay below 1048576 bytes"),
        (vec![negative.as_str(), "--out", &nowhere], "is negative"),
        (vec![lost.as_str(), "--out", &nowhere], "lost-scenario.toml: cannot be read"),
        (vec!["/nothing/grid.toml", "--out", &nowhere], "cannot be read"),
        (vec!["--merge", &nowhere], "give the --out of a sweep"),
        (vec![grid.as_str(), "--out", &nowhere, "--shard", "4/3"], "with K from 1 to N"),
        (vec![grid.as_str(), "--out", &nowhere, "--shard", "0/3"], "with K from 1 to N"),
        (vec![grid.as_str()], "--out"),
    ] {
        let out = output(&args);
        let text = String::from_utf8_lossy(&out.stderr).into_owned();
        assert_eq!(out.status.code(), Some(2), "{args:?}: {text}");
        assert!(text.starts_with("error: ") && text.contains(said), "{args:?}: {text}");
        assert!(out.stdout.is_empty() && !Path::new(&nowhere).exists(), "{args:?}");
    }
}

#[test]
fn a_folder_that_cannot_be_used_is_named_with_a_remedy() {
    let (folder, grid) = folder_with_grid(20);
    let out = text(&folder.path().join("out"));
    for nowhere in ["/proc/no-such-folder", &grid] {
        let out = output(&[&grid, "--out", nowhere]);
        let error = String::from_utf8_lossy(&out.stderr).into_owned();
        assert_eq!(out.status.code(), Some(1), "{error}");
        assert!(error.contains(nowhere) && error.contains("give another --out"), "{error}");
    }
    // A full disk: no file may grow beyond 8 KiB, which is enough for the plan.
    let full = format!(
        "trap '' XFSZ; ulimit -f 16; exec {} sweep {grid} --out {out}",
        env!("CARGO_BIN_EXE_thermocline")
    );
    let result =
        Command::new("sh").args(["-c", &full]).env("RAYON_NUM_THREADS", "2").output().expect("it starts");
    let error = String::from_utf8_lossy(&result.stderr).into_owned();
    assert_eq!(result.status.code(), Some(1), "{error}");
    assert!(
        error.contains("part-1-of-1") && error.contains("make room, then the same command goes on"),
        "{error}"
    );
    let left = std::fs::read_dir(&out).expect("it is there").flatten().map(|e| e.file_name());
    let left: Vec<String> = left.filter_map(|n| n.into_string().ok()).collect();
    assert!(
        !left.iter().any(|n| n.ends_with(".new") || n.ends_with(".parquet")),
        "nothing half written: {left:?}"
    );
    assert!(done(&[&grid, "--out", &out]).contains("24 runs"));

    let part = Path::new(&out).join("part-1-of-1.parquet");
    let bytes = std::fs::read(&part).expect("it is there");
    std::fs::write(&part, &bytes[..bytes.len() / 2]).expect("it can be written");
    let result = output(&["--merge", &out]);
    let error = String::from_utf8_lossy(&result.stderr).into_owned();
    assert_eq!(result.status.code(), Some(1), "{error}");
    assert!(error.contains("remove it and run its shard again"), "{error}");
}

#[test]
fn a_shard_is_run_by_one_process_at_a_time() {
    let (folder, grid) = folder_with_grid(20);
    let out = folder.path().join("out");
    done(&[&grid, "--out", &text(&out)]);
    let journal = std::fs::File::create(out.join("part-1-of-1.journal")).expect("the folder can be written");
    journal.lock().expect("it can be locked");
    let result = output(&[&grid, "--out", &text(&out)]);
    let error = String::from_utf8_lossy(&result.stderr).into_owned();
    assert_eq!(result.status.code(), Some(1), "{error}");
    assert!(error.contains("shard 1/1 is being run by another process"), "{error}");
}

#[test]
fn sweeps_whose_processes_have_the_same_number_do_not_meet() {
    let (folder, grid) = folder_with_grid(5);
    let out = text(&folder.path().join("out"));
    std::fs::create_dir(&out).expect("the folder can be written");
    let before = std::fs::read_dir(&out).expect("it can be listed").count();
    assert_eq!(before, 0);
    // What a process of the same number in another container has under way.
    let mut child = sweep(&[&grid, "--out", &out]);
    // The shell's number is the command's: it takes the shell's place.
    let script = format!(
        "mkdir {out}/sweep.json.$$.new {out}/part-1-of-1.parquet.$$.new; exec {} sweep {grid} --out {out}",
        child.get_program().to_str().expect("a plain path")
    );
    child = Command::new("sh");
    let ended = child.args(["-c", &script]).output().expect("it starts");
    assert!(ended.status.success(), "{}", String::from_utf8_lossy(&ended.stderr));
}

#[test]
fn damage_of_a_part_is_an_error_that_names_it_and_never_another_figure() {
    let (folder, grid) = folder_with_grid(5);
    let out = text(&folder.path().join("out"));
    done(&[&grid, "--out", &out]);
    let part = Path::new(&out).join("part-1-of-1.parquet");
    let whole = std::fs::read(&part).expect("it was written");
    let right = merged(&out);
    // A linear congruential generator (D. Knuth's constants), from a fixed seed.
    let mut state: u64 = 1;
    for case in 0..400 {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let at = (state >> 16) as usize % whole.len();
        let mut damaged = whole.clone();
        damaged[at] ^= 1 << (state >> 61);
        std::fs::write(&part, &damaged).expect("it can be written");
        let ended = output(&["--merge", &out]);
        if ended.status.success() {
            let merged = std::fs::read(Path::new(&out).join("sweep.parquet")).expect("it was merged");
            assert_eq!(merged, right, "case {case}: byte {at}");
        } else {
            let error = String::from_utf8_lossy(&ended.stderr);
            assert!(error.contains("part-1-of-1.parquet"), "case {case}: byte {at}: {error}");
            assert!(error.contains("remove it and run its shard again"), "case {case}: byte {at}: {error}");
        }
    }
}

#[test]
fn devices_and_fifos_are_refused_at_once() {
    let (folder, grid) = folder_with_grid(5);
    let out = text(&folder.path().join("out"));
    for (name, args) in [("grid", vec!["/dev/zero", "--out", &out]), ("folder", vec!["--merge", &out])] {
        if name == "folder" {
            std::fs::create_dir(&out).expect("the folder can be written");
            std::os::unix::fs::symlink("/dev/zero", format!("{out}/sweep.json")).expect("it can be made");
        }
        let error = String::from_utf8_lossy(&output(&args).stderr).into_owned();
        assert!(error.contains("it is a device, not a file"), "{name}: {error}");
    }
    std::fs::remove_file(format!("{out}/sweep.json")).expect("it is there");
    std::os::unix::fs::symlink("/dev/zero", format!("{out}/part-1-of-1.journal")).expect("it can be made");
    let error = String::from_utf8_lossy(&output(&[&grid, "--out", &out]).stderr).into_owned();
    assert!(error.contains("it is a device, not a file"), "{error}");
}

#[test]
fn a_journal_that_is_longer_than_its_sweep_is_refused() {
    let (folder, grid) = folder_with_grid(5);
    let out = text(&folder.path().join("out"));
    std::fs::create_dir(&out).expect("the folder can be written");
    let journal = std::fs::File::create(format!("{out}/part-1-of-1.journal")).expect("it can be made");
    // Holes: it takes no room, and would take a tebibyte of memory.
    journal.set_len(1 << 40).expect("the file system has holes");
    let error = String::from_utf8_lossy(&output(&[&grid, "--out", &out]).stderr).into_owned();
    assert!(error.contains("is longer than") && error.contains("remove it"), "{error}");
}
