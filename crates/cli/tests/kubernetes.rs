//! The manifests for Kubernetes and the sidecar's script, as far as they can be tested without a
//! cluster.

// Helpers of tests, which clippy takes for other code.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use thermocline_wire::pods;

const WORKSPACE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");

fn read(file: &str) -> String {
    fs::read_to_string(Path::new(WORKSPACE).join(file)).unwrap_or_else(|error| panic!("{file}: {error}"))
}

fn manifests() -> String {
    read("deploy/kubernetes/thermocline.yaml")
}

/// The text of a key `NAME: |` of a ConfigMap.
fn block(yaml: &str, name: &str) -> String {
    let lines = yaml.lines().skip_while(|line| line.trim() != format!("{name}: |")).skip(1);
    let within = lines.take_while(|line| line.is_empty() || line.starts_with("    "));
    within.map(|line| format!("{}\n", line.strip_prefix("    ").unwrap_or_default())).collect()
}

#[test]
fn the_container_has_the_capabilities_of_the_unit_and_is_not_privileged() {
    let unit = read("deploy/thermocline.service");
    let of_unit = unit.lines().filter_map(|line| line.strip_prefix("CapabilityBoundingSet="));
    let of_unit = of_unit.flat_map(|line| line.split(' ')).map(|name| name.strip_prefix("CAP_").unwrap());
    let yaml = manifests();
    let added = yaml.split("add:\n").nth(1).unwrap().lines().map(str::trim);
    let added = added.take_while(|line| line.starts_with(['#', '-'])).filter_map(|l| l.strip_prefix("- "));
    assert_eq!(added.collect::<BTreeSet<_>>(), of_unit.collect::<BTreeSet<_>>());
    assert!(yaml.contains("privileged: false") && !yaml.contains("privileged: true"));
    assert_eq!(yaml.matches("drop: [\"ALL\"]").count(), 3, "of each container");
    assert_eq!(yaml.matches("readOnlyRootFilesystem: true").count(), 3);
    assert_eq!(yaml.matches("seccompProfile:").count(), 3);
    let ours = yaml.lines().find(|line| line.trim().starts_with(pods::PREFIX));
    assert_eq!(ours, None, "the daemon would take it for what its own pod asks for");
}

#[test]
fn the_profile_allows_what_the_unit_does() {
    let profile: serde_json::Value =
        serde_json::from_str(&read("deploy/helm/thermocline/files/seccomp.json")).unwrap();
    assert_eq!(profile["defaultAction"], "SCMP_ACT_ERRNO");
    let lists = profile["syscalls"].as_array().unwrap();
    assert!(lists.iter().all(|list| list["action"] == "SCMP_ACT_ALLOW"));
    let names = lists.iter().flat_map(|list| list["names"].as_array().unwrap());
    let names: Vec<&str> = names.map(|name| name.as_str().unwrap()).collect();
    let unit = read("deploy/thermocline.service");
    let filter = unit.lines().find_map(|line| line.strip_prefix("SystemCallFilter=")).unwrap();
    for name in filter.split(' ').filter(|name| !name.starts_with('@')) {
        assert!(names.contains(&name), "{name}");
    }
    for refused in ["mount", "init_module", "kexec_load", "ptrace", "reboot", "swapon", "pivot_root"] {
        assert!(!names.contains(&refused), "{refused}");
    }
}

#[test]
fn the_configuration_of_the_manifests_can_be_used() {
    let yaml = manifests();
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir(dir.path().join("conf.d")).unwrap();
    let file = dir.path().join("thermocline.toml");
    fs::write(&file, block(&yaml, "thermocline.toml")).unwrap();
    fs::write(dir.path().join("conf.d/kubernetes.toml"), block(&yaml, "kubernetes.toml")).unwrap();
    let run = |verb: &[&str]| -> Output {
        Command::new(env!("CARGO_BIN_EXE_thermocline")).args(verb).arg(&file).output().unwrap()
    };
    let checked = run(&["config", "check"]);
    assert!(checked.status.success(), "{}", String::from_utf8_lossy(&checked.stderr));
    let shown = String::from_utf8(run(&["config", "show"]).stdout).unwrap();
    assert!(shown.contains("\nname = \"observe\" "), "{shown}");
    assert!(shown.contains("\nfile = \"/run/thermocline-pods/pods.json\" "), "{shown}");
}

#[test]
fn the_chart_has_the_version_of_the_program() {
    let chart = read("deploy/helm/thermocline/Chart.yaml");
    for key in ["version", "appVersion"] {
        assert!(chart.contains(&format!("\n{key}: {}\n", env!("CARGO_PKG_VERSION"))), "{key}");
    }
}

#[test]
fn the_book_has_every_annotation() {
    let book = read("docs/src/kubernetes.md");
    for name in pods::names() {
        assert!(book.contains(&format!("\n| `{}{name}` |", pods::PREFIX)), "{name}");
    }
}

/// The sidecar's script, with programs of a test in the place of kubectl and thermocline.
struct Sidecar {
    dir: tempfile::TempDir,
    child: Option<Child>,
}

impl Sidecar {
    fn new() -> Sidecar {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir_all(dir.path().join("config/conf.d")).unwrap();
        fs::create_dir(dir.path().join("bin")).unwrap();
        let sidecar = Sidecar { dir, child: None };
        sidecar.write("config/thermocline.toml", "one");
        // Lists what the test has put there, with what an API server that fails may leave behind.
        sidecar.program(
            "kubectl",
            "case \"$*\" in
                *--watch-only*) [ ! -e events ] || { rm events; echo pod/a; }; exec sleep 0.2 ;;
                *label*) echo \"$*\" >>labels ;;
                *) [ \"$*\" = 'get pods --all-namespaces --field-selector spec.nodeName=n1 --output json' ] ||
                       exit 9
                   echo >>lists; if [ -e pods ]; then cat pods; else printf '{\"items\":['; exit 1; fi ;;
            esac",
        );
        sidecar.program(
            "thermocline",
            "case \"$*\" in
                reload) echo >>reloads; exit 1 ;;
                'doctor --json') echo '{\"nodes\":[{\"tier\":0},{\"tier\": 1},{\"tier\":1}]}'; exit 1 ;;
            esac",
        );
        sidecar
    }

    fn path(&self, file: &str) -> PathBuf {
        self.dir.path().join(file)
    }

    fn write(&self, file: &str, text: &str) {
        // At once, as the kubelet does.
        fs::write(self.path("written"), text).unwrap();
        fs::rename(self.path("written"), self.path(file)).unwrap();
    }

    fn program(&self, name: &str, text: &str) {
        let file = self.path("bin").join(name);
        fs::write(&file, format!("#!/bin/bash\ncd '{}'\n{text}\n", self.dir.path().display())).unwrap();
        fs::set_permissions(file, fs::Permissions::from_mode(0o755)).unwrap();
    }

    fn start(&mut self, variables: &[(&str, &str)]) {
        let path = format!("{}:{}", self.path("bin").display(), std::env::var("PATH").unwrap());
        let mut command = Command::new("bash");
        command.arg(Path::new(WORKSPACE).join("deploy/helm/thermocline/files/pods.sh"));
        command.env("PATH", path).env("NODE_NAME", "n1").env("SETTLE_SECONDS", "0");
        command.env("PODS_FILE", self.path("out")).env("CONFIG_FOLDER", self.path("config"));
        command.envs(variables.iter().copied()).stderr(Stdio::null());
        self.child = Some(command.spawn().unwrap());
    }

    fn lines(&self, file: &str) -> usize {
        fs::read_to_string(self.path(file)).unwrap_or_default().lines().count()
    }

    fn wait_for(&self, what: &str, is_so: impl Fn(&Sidecar) -> bool) {
        let start = Instant::now();
        while !is_so(self) {
            assert!(start.elapsed() < Duration::from_secs(60), "{what}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    fn has(&self, text: &str) -> bool {
        fs::read_to_string(self.path("out")).is_ok_and(|out| out == text)
    }
}

impl Drop for Sidecar {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            let pid = rustix::process::Pid::from_child(&child);
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
            let _ = child.wait();
        }
    }
}

#[test]
fn the_sidecar_replaces_whole_files_and_keeps_the_last_when_a_list_fails() {
    let mut sidecar = Sidecar::new();
    sidecar.write("pods", "first");
    sidecar.start(&[("LIST_SECONDS", "1")]);
    sidecar.wait_for("the first list", |s| s.has("first"));
    let mode = fs::metadata(sidecar.path("out")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    fs::remove_file(sidecar.path("pods")).unwrap();
    let lists = sidecar.lines("lists");
    sidecar.wait_for("lists that fail", |s| s.lines("lists") > lists + 1);
    assert!(sidecar.has("first"));
    sidecar.write("pods", "");
    let lists = sidecar.lines("lists");
    sidecar.wait_for("an empty list", |s| s.lines("lists") > lists + 1);
    assert!(sidecar.has("first"));
    sidecar.write("pods", "second");
    sidecar.wait_for("the list after that", |s| s.has("second"));
    assert_eq!(sidecar.lines("labels"), 0, "nobody asked for it");
}

#[test]
fn the_sidecar_lists_after_an_event_takes_the_configuration_and_labels_the_node() {
    let mut sidecar = Sidecar::new();
    sidecar.write("pods", "first");
    sidecar.start(&[("LIST_SECONDS", "3600"), ("LABEL_NODE", "true")]);
    sidecar.wait_for("the first list", |s| s.has("first") && s.lines("labels") == 1);
    let labels = fs::read_to_string(sidecar.path("labels")).unwrap();
    assert_eq!(labels, "label node n1 --overwrite thermocline.dev/tiers=2\n");
    assert_eq!(sidecar.lines("reloads"), 0, "the daemon has read it itself");
    sidecar.write("pods", "second");
    sidecar.write("config/conf.d/a.toml", "two");
    sidecar.write("events", "");
    sidecar.wait_for("the list after an event", |s| s.has("second") && s.lines("reloads") == 1);
    sidecar.write("pods", "third");
    sidecar.write("events", "");
    sidecar.wait_for("the next event", |s| s.has("third"));
    assert_eq!((sidecar.lines("reloads"), sidecar.lines("labels")), (1, 1), "once for each change");
}

#[test]
fn the_sidecar_ends_when_no_list_succeeds() {
    let mut sidecar = Sidecar::new();
    sidecar.start(&[("LIST_SECONDS", "1"), ("FAILS_MAX", "2")]);
    let status = sidecar.child.take().unwrap().wait().unwrap();
    assert_eq!(status.code(), Some(1));
    assert!(!sidecar.path("out").exists());
}
