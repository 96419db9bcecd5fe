//! Tests of files, environment and options, and of the messages about wrong ones.

use super::*;
use proptest::prelude::*;
use thermocline_core::config::{ManagerName, Scope};

fn error(text: &str) -> String {
    parse(text, "t.toml", |_| {}).unwrap_err()
}

#[test]
fn an_empty_file_is_the_defaults() {
    assert_eq!(parse("", "t.toml", |_| {}).unwrap(), Config::default());
}

#[test]
fn an_unknown_key_is_shown_with_the_one_that_was_meant() {
    let e = error("[admission]\nrate_limt_mbps = 3\n");
    assert!(e.contains("t.toml:2:1"), "{e}");
    assert!(e.contains("rate_limt_mbps = 3"), "{e}");
    assert!(e.contains("did you mean `admission.rate_limit_mbps`?"), "{e}");
}

#[test]
fn a_value_out_of_range_is_shown_with_its_range() {
    let e = error("[engine]\ntick_ms = 100\n\n[admission]\nbatch_pages = 4096\n");
    assert!(e.contains("t.toml:5:15"), "{e}");
    assert!(e.contains("batch_pages is 1 to 512 pages"), "{e}");
}

#[test]
fn a_value_of_another_type_is_shown_with_its_range() {
    let e = error("[admission]\nrate_limit_mbps = \"fast\"\n");
    assert!(e.contains("t.toml:2:19"), "{e}");
    assert!(e.contains("`admission.rate_limit_mbps` is 1 to 65536 MB/s"), "{e}");
}

#[test]
fn a_violation_in_a_list_of_scopes_is_found() {
    let e = error("[[scope]]\nname = \"a\"\n[[scope]]\nname = \"b\"\nrate_share_percent = 0\n");
    assert!(e.contains("t.toml:5:22"), "{e}");
}

#[test]
fn scopes_that_run_refuses_are_no_configuration() {
    let named = "[[scope]]\nname = \"a\"\npids = [1]\n";
    for (text, place, said) in [
        ("[[scope]]\nname = \"a\"\n".to_owned(), "t.toml:1:1", "scope[0] names no process"),
        ("[[scope]]\ncommand = \"(\"\n".to_owned(), "t.toml:2:11", "regex parse error"),
        (named.repeat(2), "t.toml:5:8", "is the name of an earlier scope"),
    ] {
        let e = error(&text);
        assert!(e.contains(place) && e.contains(said), "{e}");
    }
}

#[test]
fn of_thousands_of_errors_some_are_shown_and_the_others_counted() {
    let e = error(&"[[scope]]\nrate_share_percent = 0\n".repeat(5000));
    assert_eq!(e.matches("rate_share_percent is 1 to 100").count(), SHOWN_MAX);
    // One more than the scopes, because the first one also fails to name a process.
    assert!(e.ends_with("\nand 4981 more"), "{e}");
}

#[test]
fn long_names_and_many_scopes_are_answered_in_little_time() {
    let start = std::time::Instant::now();
    let long = "k".repeat(200 << 10);
    assert!(error(&format!("{long} = 1\n")).contains("lists every key"));
    assert!(error(&format!("[rule]\nname = \"{long}\"\n")).contains("unknown variant"));
    assert!(error(&"[[scope]]\n".repeat(26_000)).contains("names no process"));
    let limited = |n| format!("[[scope]]\ncgroup='/{n}'\ntop_tier_cap_mib=1\n");
    let limited: String = (0..5500).map(limited).collect();
    assert_eq!(parse(&limited, "t.toml", |_| {}).unwrap().scope.len(), 5500);
    assert!(start.elapsed().as_secs() < 10, "{:?}", start.elapsed());
}

#[test]
fn what_the_command_line_says_is_checked_and_has_no_line() {
    let by_pid = |config: &mut Config| {
        config.scope = vec![Scope { pids: vec![1], ..Scope::default() }];
        config.manager.name = ManagerName::Numab2;
    };
    let told = parse("[engine]\ntick_ms = 50\n", "t.toml", by_pid).unwrap_err();
    assert!(told.starts_with("error: manager.name: numab2") && !told.contains("tick_ms"), "{told}");
    assert!(parse("", "the command line", by_pid).is_err());
    // This configuration is wrong for the manager that it names, but right for the requested one.
    let blind = "[source.hintfault]\nenabled = false\n";
    assert!(error(blind).contains("no source is switched on"));
    assert!(parse(blind, "t.toml", |c| c.manager.name = ManagerName::Damon).is_ok());
}

#[test]
fn a_configuration_of_another_program_is_named() {
    let told = error("policy:\n  name: age\n  config: |\n    intervalms: 1000\n");
    assert!(told.starts_with("t.toml is a configuration of memtierd"), "{told}");
    assert!(told.contains("engine.tick_ms") && told.contains("`thermocline config`"), "{told}");
}

#[test]
fn what_is_no_file_of_text_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("c.toml");
    assert!(matches!(load(&Asked::file(&path), |_| {}), Err(FileError::Read { .. })));
    let device = load(&Asked::file(Path::new("/dev/zero")), |_| {}).unwrap_err().to_string();
    assert!(device.contains("it is a device, not a file"), "{device}");
    std::fs::write(&path, b"# fine\n\xff\xfe").unwrap();
    assert!(matches!(load(&Asked::file(&path), |_| {}), Err(FileError::NotText { line: 2, .. })));
    std::fs::write(&path, vec![b'#'; 1 << 20]).unwrap();
    assert!(matches!(load(&Asked::file(&path), |_| {}), Err(FileError::TooLong { .. })));
}

proptest! {
    #[test]
    fn no_text_panics(text in "\\PC*") {
        let _ = parse(&text, "t.toml", |_| {});
    }

    #[test]
    fn a_truncated_configuration_is_an_error_or_a_configuration(cut in 0usize..400) {
        let whole = toml::to_string(&Config::default()).unwrap();
        let _ = parse(&whole[..cut.min(whole.len())], "t.toml", |_| {});
    }
}

#[test]
fn every_key_that_is_wrong_is_told_at_once() {
    let e = error(
        "[admission]\nrate_limt_mbps = 3\nbatch_pages = \"a\"\n[engin]\n[engine]\ntick_ms = true\n[queue.capacity]\n",
    );
    for place in ["t.toml:2:1", "t.toml:3:15", "t.toml:4:2", "t.toml:6:11", "t.toml:7:8"] {
        assert!(e.contains(place), "{place}: {e}");
    }
    assert!(
        e.contains("did you mean `engine`?") && e.contains("`queue.capacity` is a key, not a section"),
        "{e}"
    );
    let e = error("scope = 3\n");
    assert!(e.contains("[[scope]] is a section, not a value"), "{e}");
}

/// The layers of a file, a file in conf.d, a variable and an option.
fn layered() -> Vec<Layer> {
    vec![
        Layer::file(
            "t.toml",
            "[admission]\nrate_limit_mbps = 1\nfree_goal_mib = 2\nbatch_pages = 3\n[[scope]]\nname = \"a\"\npids = [1]\n[[scope]]\nname = \"b\"\npids = [2]\n",
        ),
        Layer::file(
            "conf.d/1.toml",
            "[[scope]]\nname = \"a\"\npids = [7]\n[[scope]]\nname = \"c\"\npids = [3]\n[admission]\nrate_limit_mbps = 10\nfree_goal_mib = 20\n",
        ),
        Layer::variable("THERMOCLINE_ADMISSION_RATE_LIMIT_MBPS", "admission.rate_limit_mbps", "100"),
        layer::of_option("engine.tick_ms=50").unwrap(),
    ]
}

#[test]
fn the_last_value_counts_and_its_origin_is_told() {
    let loaded = of_layers(layered(), |_| {}).unwrap();
    let (admission, scope) = (&loaded.config.admission, &loaded.config.scope);
    assert_eq!((admission.rate_limit_mbps, admission.free_goal_mib, admission.batch_pages), (100, 20, 3));
    let scopes: Vec<(&str, u32)> = scope.iter().map(|s| (s.name.as_str(), s.pids[0])).collect();
    assert_eq!(scopes, [("a", 7), ("b", 2), ("c", 3)]);
    for (key, origin) in [
        ("admission.rate_limit_mbps", "environment THERMOCLINE_ADMISSION_RATE_LIMIT_MBPS"),
        ("admission.free_goal_mib", "conf.d/1.toml:9"),
        ("admission.batch_pages", "t.toml:4"),
        ("admission.residency_ms", "default"),
        ("engine.tick_ms", "--set engine.tick_ms"),
        ("scope[0].pids", "conf.d/1.toml:3"),
        ("scope[1].pids", "t.toml:10"),
        ("scope[2].pids", "conf.d/1.toml:6"),
        ("scope[2].cgroup", "default"),
    ] {
        assert_eq!(loaded.origin(key), origin, "{key}");
    }
}

#[test]
fn what_is_wrong_is_shown_where_the_value_comes_from() {
    let mut layers = layered();
    layers.push(layer::of_option("admission.batch_pages=4096").unwrap());
    layers
        .push(Layer::file("conf.d/2.toml", "[[scope]]\nname = \"c\"\nrate_share_percent = 0\npids = [1]\n"));
    let e = of_layers(layers, |_| {}).unwrap_err();
    assert!(e.contains("--set admission.batch_pages:1:25") && e.contains("batch_pages is 1 to 512"), "{e}");
    assert!(e.contains("conf.d/2.toml:3:22"), "{e}");
}

#[test]
fn the_folder_beside_a_file_is_read_in_order() {
    let dir = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| std::fs::write(dir.path().join(name), text).unwrap();
    let file = dir.path().join("t.toml");
    write("t.toml", "[engine]\ntick_ms = 11\n");
    let tick = || load(&Asked::file(&file), |_| {}).map(|loaded| loaded.config.engine.tick_ms);
    assert_eq!(tick().unwrap(), 11);
    std::fs::create_dir(dir.path().join("conf.d")).unwrap();
    write("conf.d/20.toml", "[engine]\ntick_ms = 13\n");
    write("conf.d/10.toml", "[engine]\ntick_ms = 12\n");
    write("conf.d/README", "not TOML");
    write("conf.d/.30.toml", "not TOML");
    assert_eq!(tick().unwrap(), 13);
    let by_option = Asked { changes: vec!["engine.tick_ms=14".to_owned()], ..Asked::file(&file) };
    assert_eq!(load(&by_option, |_| {}).unwrap().config.engine.tick_ms, 14);
    write("conf.d/30.toml", "[engine]\ntick_ms = 1\n");
    let told = tick().unwrap_err().to_string();
    assert!(told.contains("conf.d/30.toml:2:11"), "{told}");
}
