//! `thermocline sim` from outside: what it prints, and its exit status.

use std::process::{Command, Output};

fn sim(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_thermocline")).arg("sim").args(args).output().expect("it starts")
}

/// A scenario that is over at once.
const QUICK: [&str; 5] = [
    "chunks-small",
    "--set=process.0.footprint=\"64MiB\"",
    "--set=process.0.pattern.chunk=\"4MiB\"",
    "--set=process.0.pattern.visits=5",
    "--set=process.0.pattern.accesses_per_page=10",
];

#[test]
fn bad_input_is_one_error_with_place_and_remedy_and_status_2() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = |name: &str, text: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, text).expect("the folder can be written");
        path.to_str().expect("a plain path").to_owned()
    };
    let unknown =
        file("unknown.toml", "name = \"x\"\nsummary = \"\"\nmachine = \"cxl-2tier\"\nthreats = 3\n");
    let large = file("large.toml", &"#".repeat(100 << 20));
    let device = folder.path().join("device.toml");
    std::os::unix::fs::symlink("/dev/zero", &device).expect("the folder can be written");
    let device = device.to_str().expect("a plain path").to_owned();
    let none = file("none.toml", "name = \"x\"\nsummary = \"\"\nmachine = \"cxl-2tier\"\nprocess = []\n");
    for (args, said) in [
        (vec!["nothing-of-that-name"], "sim --list"),
        (
            vec!["lost.toml"],
            "lost.toml: cannot be read: No such file or directory (os error 2); give the path",
        ),
        (vec!["chunks-small", "--machine=lost.toml"], "lost.toml: cannot be read"),
        (
            vec![folder.path().to_str().expect("a plain path"), "--machine=cxl-2tier"],
            "there is no recording in it; name a folder",
        ),
        (vec![unknown.as_str()], "unknown.toml:4: unknown field `threats`"),
        (vec![large.as_str()], "is too long for a specification"),
        (vec![device.as_str()], "it is a device, not a file"),
        (vec!["chunks-small", "--set=process.0.threads=4294967295"], "process[0].threads: is above 4096"),
        (vec!["chunks-small", "--set=process.0.count=4294967295"], "process[0].count: is above 1024"),
        (vec![none.as_str()], "process: there is none; add a [[process]]"),
        (vec!["chunks-small", "--set=process.0.footprint=\"-3GiB\""], "is negative"),
        (vec!["chunks-small", "--set=process.0.footprint=\"3TiB\""], "the machine has"),
        (vec!["chunks-small", "--set=process.0.threads=0"], "process[0].threads: is zero"),
        (vec!["chunks-small", "--manager=nobody"], "use one of none, numab2"),
        (vec!["chunks-small", "--rule=nothing"], "use one of none, numab2"),
        (vec!["chunks-small", "--set=nonsense"], "key=value"),
        (
            vec!["chunks-small", "--set=config.rule.name=latency"],
            "config.rule.name: has no effect under numab2, the scenario's default manager; it is for --manager \
             thermocline:latency",
        ),
        (
            vec!["chunks-small", "--manager=none", "--set=manager=damon"],
            "manager: has no effect beside --manager",
        ),
        (vec!["chunks-small", "--fit"], "give it a [fit]"),
    ] {
        let out = sim(&args);
        let text = String::from_utf8_lossy(&out.stderr).into_owned();
        let last = text.lines().last().unwrap_or_default();
        assert_eq!(out.status.code(), Some(2), "{args:?}: {text}");
        assert!(last.starts_with("error: ") && last.contains(said), "{args:?}: {text}");
        assert!(out.stdout.is_empty());
    }
}

#[test]
fn a_report_a_seed_in_json_and_means_in_text() {
    let args: Vec<&str> = QUICK.into_iter().chain(["--seeds=3", "--json"]).collect();
    let out = sim(&args);
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    let reports: Vec<serde_json::Value> = serde_json::from_slice(&out.stdout).expect("JSON");
    let seeds: Vec<_> = reports.iter().map(|r| r["seed"].as_u64()).collect();
    assert_eq!(seeds, [Some(1), Some(2), Some(3)]);
    assert!(reports.iter().all(|r| r["finished"] == true && r["counters"]["accesses"].as_u64() > Some(0)));
    let out = sim(&args[..6]);
    let text = String::from_utf8_lossy(&out.stdout).into_owned();
    assert!(
        text.contains("chunks-small under numab2 (the scenario's default manager)")
            && text.contains("time, s")
            && text.contains("+-"),
        "{text}"
    );
    assert!(
        text.contains("slowdown against")
            && text.contains("best static placement")
            && text.contains("reached"),
        "{text}"
    );
}

#[test]
fn the_list_names_everything() {
    let text = String::from_utf8_lossy(&sim(&["--list"]).stdout).into_owned();
    for name in ["chunks-192g", "bergamo-cxl", "numab2", "thermocline:adaptive"] {
        assert!(text.contains(name), "{name} is missing in\n{text}");
    }
}

#[test]
fn a_run_that_was_not_done_has_no_slowdown() {
    let args: Vec<&str> = QUICK.into_iter().chain(["--set=limit=\"1ms\""]).collect();
    let text = String::from_utf8_lossy(&sim(&args).stdout).into_owned();
    assert!(text.contains("not done within its limit"), "{text}");
    let line = text.lines().find(|line| line.contains("slowdown")).unwrap_or_default();
    assert!(line.ends_with(" unknown"), "{text}");
    let compare = |extra: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_thermocline"));
        let out =
            command.arg("compare").args(&args).args(["--manager=none", "--seeds=2"]).args(extra).output();
        String::from_utf8_lossy(&out.expect("it starts").stdout).into_owned()
    };
    let json: serde_json::Value = serde_json::from_str(&compare(&["--json"])).expect("it is JSON");
    assert!(json[0]["figures"]["slowdown"].is_null() && json[0]["unfinished"] == 2, "{json}");
    let text = compare(&[]);
    assert!(text.contains("  -  "), "{text}");
}
