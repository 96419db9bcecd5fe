//! Pods on trees of cgroups as both drivers of the kubelet make them.

use std::fs;
use std::path::PathBuf;

use proptest::prelude::*;
use serde_json::{Value, json};
use tempfile::TempDir;
use thermocline_core::config::ManagerName;
use thermocline_core::label::Label;

use super::*;

/// A node: its cgroups, and the file of its pods.
struct Node {
    dir: TempDir,
    scopes: PodScopes,
    base: Config,
    pods: Vec<Value>,
}

impl Node {
    fn new(all_pods: &str) -> Node {
        let dir = tempfile::tempdir().unwrap();
        let root = Root::at(dir.path());
        fs::create_dir_all(root.proc.join("self")).unwrap();
        fs::write(root.proc.join("self/mounts"), "cgroup2 /sys/fs/cgroup cgroup2 rw 0 0\n").unwrap();
        let mut base = Config::default();
        base.demotion.mode = DemotionMode::On;
        base.pods.file = Some(dir.path().join("pods.json").display().to_string());
        let node = Node { scopes: PodScopes::new(&root), dir, base, pods: Vec::new() };
        node.make(all_pods);
        node
    }

    fn folder(&self, cgroup: &str) -> PathBuf {
        self.dir.path().join("sys/fs/cgroup").join(cgroup)
    }

    fn make(&self, cgroup: &str) {
        fs::create_dir_all(self.folder(cgroup)).unwrap();
    }

    /// Another pod, the newest.
    fn pod(&mut self, name: &str, class: &str, annotations: &[(&str, &str)]) {
        let annotations: serde_json::Map<String, Value> =
            annotations.iter().map(|(k, v)| (format!("thermocline.dev/{k}"), json!(v))).collect();
        let created = format!("2026-01-01T00:00:{:02}Z", self.pods.len());
        self.pods.push(json!({
            "kind": "Pod",
            "metadata": {
                "name": name, "namespace": "ns", "uid": format!("u-{name}"), "annotations": annotations,
                "creationTimestamp": created,
            },
            "status": { "phase": "Running", "qosClass": class },
        }));
    }

    /// Writes the file as a sidecar does.
    fn write(&self) {
        self.write_bytes(json!({ "kind": "List", "items": self.pods }).to_string().as_bytes());
    }

    fn write_bytes(&self, bytes: &[u8]) {
        let new = self.dir.path().join("pods.json.new");
        fs::write(&new, bytes).unwrap();
        fs::rename(new, self.dir.path().join("pods.json")).unwrap();
    }

    fn compose(&mut self) -> Config {
        self.scopes.compose(&self.base).unwrap()
    }

    /// Names, cgroups and whether they are excluded.
    fn scopes(&mut self) -> Vec<(String, String, bool)> {
        let scopes = self.compose().scope.into_iter();
        scopes.map(|scope| (scope.name, scope.cgroup.unwrap(), scope.exclude)).collect()
    }

    fn names(&mut self) -> Vec<String> {
        self.scopes().into_iter().map(|(name, ..)| name).collect()
    }

    fn findings(&self) -> Vec<(&'static str, String)> {
        self.scopes.findings().into_iter().map(|found| (found.id.name(), found.cause)).collect()
    }
}

/// What manages nobody.
fn nothing(all: &str) -> Vec<(String, String, bool)> {
    vec![("no pods".to_owned(), format!("{all}/{NOBODY}"), false)]
}

#[test]
fn annotations_become_what_a_scope_by_hand_would_be() {
    let mut node = Node::new("kubepods.slice");
    let path = "kubepods.slice/kubepods-burstable.slice/kubepods-burstable-podu_redis.slice";
    node.make(path);
    node.pod("redis", "Burstable", &[("top-tier-floor", "1Gi"), ("top-tier-cap", "2Gi")]);
    node.write();
    let by_hand = "[[scope]]\nname = \"ns/redis\"\ntop_tier_floor_mib = 1024\ntop_tier_cap_mib = 2048\n";
    let by_hand =
        thermocline_front::config::parse(&format!("{by_hand}cgroup = \"/{path}\"\n"), "t.toml", |_| {})
            .unwrap();
    let composed = node.compose();
    assert_eq!(composed.scope, by_hand.scope);
    assert_eq!(Config { scope: Vec::new(), ..composed }, node.base, "nothing else is touched");
    assert!(node.findings().is_empty());
}

#[test]
fn pods_are_found_by_either_driver_in_every_class() {
    let systemd = [
        "kubepods.slice/kubepods-podu_a.slice",
        "kubepods.slice/kubepods-burstable.slice/kubepods-burstable-podu_b.slice",
        "kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-podu_c.slice",
    ];
    let cgroupfs = ["kubepods/podu-a", "kubepods/burstable/podu-b", "kubepods/besteffort/podu-c"];
    for (all, paths) in [("kubepods.slice", systemd), ("kubepods", cgroupfs)] {
        let mut node = Node::new(all);
        for (name, class) in [("a", "Guaranteed"), ("b", "Burstable"), ("c", "BestEffort")] {
            node.pod(name, class, &[("manage", "true")]);
        }
        node.write();
        assert_eq!(node.scopes(), nothing(&format!("/{all}")), "no cgroup is there yet");
        paths.iter().for_each(|path| node.make(path));
        let expected = ["a", "b", "c"].iter().zip(paths);
        let expected: Vec<_> = expected.map(|(n, p)| (format!("ns/{n}"), format!("/{p}"), false)).collect();
        assert_eq!(node.scopes(), expected);
        fs::remove_dir(node.folder(paths[1])).unwrap();
        assert_eq!(node.names(), ["ns/a", "ns/c"], "it has ended");
    }
}

#[test]
fn below_another_root_of_the_kubelet() {
    let mut node = Node::new("kubelet.slice/kubelet-kubepods.slice");
    node.base.pods.cgroup_root = Some("/kubelet".to_owned());
    node.pod("a", "Guaranteed", &[("manage", "true")]);
    node.write();
    let path = "kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-podu_a.slice";
    node.make(path);
    assert_eq!(node.scopes(), [("ns/a".to_owned(), format!("/{path}"), false)]);
}

#[test]
fn without_annotations_nothing_is_managed_or_all_pods_are() {
    let mut node = Node::new("kubepods");
    node.write();
    assert_eq!(node.scopes(), nothing("/kubepods"));
    node.base.pods.manage = PodsManaged::All;
    assert_eq!(node.names(), ["pods"]);
    node.pod("a", "Guaranteed", &[("exclude", "true")]);
    node.pod("b", "Guaranteed", &[("top-tier-cap", "1Gi")]);
    node.write();
    ["kubepods/podu-a", "kubepods/podu-b"].iter().for_each(|path| node.make(path));
    let expected = [("ns/a", "/kubepods/podu-a", true), ("ns/b", "/kubepods/podu-b", false)];
    let expected = expected.iter().copied().chain([("pods", "/kubepods", false)]);
    let expected: Vec<_> = expected.map(|(n, p, e)| (n.to_owned(), p.to_owned(), e)).collect();
    assert_eq!(node.scopes(), expected);
    node.base.pods.manage = PodsManaged::Annotated;
    assert_eq!(node.names(), ["ns/b"], "nobody would take the other one");
}

#[test]
fn scopes_by_hand_stand_between_pods_and_the_rest() {
    let mut node = Node::new("kubepods");
    node.base.scope =
        vec![Scope { name: "hand".to_owned(), cgroup: Some("/".to_owned()), ..Scope::default() }];
    node.pod("a", "Guaranteed", &[("top-tier-cap", "1Gi")]);
    node.pod("b", "Guaranteed", &[("exclude", "true")]);
    assert_eq!(node.scopes(), nothing("/kubepods"), "a scope by hand may take who wants to be left alone");
    node.write();
    ["kubepods/podu-a", "kubepods/podu-b"].iter().for_each(|path| node.make(path));
    assert_eq!(node.names(), ["ns/a", "ns/b", "hand"]);
    node.base.pods.manage = PodsManaged::All;
    assert_eq!(node.names(), ["ns/a", "ns/b", "hand", "pods"]);
}

#[test]
fn a_file_that_cannot_be_used_keeps_the_pods_before() {
    let mut node = Node::new("kubepods");
    node.make("kubepods/podu-a");
    node.base.pods.manage = PodsManaged::All;
    assert_eq!(node.scopes(), nothing("/kubepods"), "who wants to be left alone is not known yet");
    let found = node.findings();
    assert!(found[0].0 == "pods.unreadable" && found[0].1.contains("no memory is managed"), "{found:?}");
    node.pod("a", "Guaranteed", &[("top-tier-cap", "1Gi")]);
    node.write();
    let good = node.compose();
    assert!(good.scope.len() == 2 && node.findings().is_empty());
    let whole = json!({ "kind": "List", "items": node.pods }).to_string();
    for bytes in [&whole.as_bytes()[..whole.len() - 1], b"", b"\xff\xfe", b"{}[", b"Error from server"] {
        node.write_bytes(bytes);
        assert_eq!(node.compose(), good);
        let found = node.findings();
        assert!(found[0].0 == "pods.unreadable" && found[0].1.contains("stay as they are"), "{found:?}");
    }
    fs::remove_file(node.dir.path().join("pods.json")).unwrap();
    assert_eq!(node.compose(), good);
    fs::create_dir(node.dir.path().join("pods.json")).unwrap();
    assert_eq!(node.compose(), good);
    fs::remove_dir(node.dir.path().join("pods.json")).unwrap();
    node.pods.clear();
    node.write();
    assert_eq!(node.names(), ["pods"]);
    assert!(node.findings().is_empty());
}

#[test]
fn a_pod_that_contradicts_itself_or_another_scope_is_left_out_alone() {
    let mut node = Node::new("kubepods");
    for name in ["a", "b", "c", "d", "hand"] {
        node.make(&format!("kubepods/podu-{name}"));
    }
    node.pod("a", "Guaranteed", &[("manage", "true")]);
    node.pod("b", "Guaranteed", &[("top-tier-floor", "2Gi"), ("top-tier-cap", "1Gi")]);
    node.pod("c", "Guaranteed", &[("top-tier-floor", "2Gi")]);
    node.pod("hand", "Guaranteed", &[("top-tier-cap", "2Gi")]);
    node.pod("d", "Guaranteed", &[("top-tier-cap", "1Gi")]);
    node.base.scope = vec![Scope {
        name: "ns/hand".to_owned(),
        cgroup: Some("/kubepods/podu-hand".to_owned()),
        ..Scope::default()
    }];
    node.write();
    assert_eq!(node.names(), ["ns/a", "ns/c", "ns/d", "ns/hand"]);
    let (kind, told) = node.findings().remove(0);
    assert_eq!(kind, "pods.left_out");
    assert!(told.contains("pod ns/b is treated as one without annotations: its floor"), "{told}");
    assert!(
        told.contains(
            "pod ns/hand is treated as one without annotations: scope[3].name: \"ns/hand\" is the name"
        ),
        "{told}"
    );
}

#[test]
fn what_no_pod_could_be_a_scope_of_is_refused() {
    let mut node = Node::new("kubepods");
    node.write();
    node.base.manager.name = ManagerName::Numab2;
    let told = node.scopes.compose(&node.base).unwrap_err().to_string();
    assert!(told.contains("pods.file cannot be used") && told.contains("numab2"), "{told}");
    node.base.pods.file = None;
    assert_eq!(node.compose(), node.base);
}

/// A pod must not end the demotion of the others' pages.
#[test]
fn where_demotion_keeps_to_the_scopes_pods_keep_to_what_it_can() {
    let mut node = Node::new("kubepods");
    node.base.demotion.mode = DemotionMode::Auto;
    for (name, annotation) in [("a", "top-tier-floor"), ("b", "top-tier-cap")] {
        node.make(&format!("kubepods/podu-{name}"));
        node.pod(name, "Guaranteed", &[(annotation, "1Gi")]);
    }
    node.make("kubepods/podu-c");
    node.pod("c", "Guaranteed", &[("exclude", "true")]);
    node.write();
    assert_eq!(node.names(), ["ns/b"]);
    let told = node.findings().remove(0).1;
    assert!(told.contains("pod ns/a is treated") && told.contains("demotion.mode = \"on\""), "{told}");
    let refused = |node: &mut Node| node.scopes.compose(&node.base).unwrap_err().to_string();
    node.base.pods.manage = PodsManaged::All;
    assert!(refused(&mut node).contains("pods may ask to be left alone"));
    node.base.pods.manage = PodsManaged::Annotated;
    let by_hand = |path: &str| Scope { cgroup: Some(path.to_owned()), ..Scope::default() };
    node.base.scope = vec![by_hand("/kubepods/burstable")];
    assert!(refused(&mut node).contains("pods may ask to be left alone"));
    node.base.scope = vec![by_hand("/system.slice")];
    assert_eq!(node.names(), ["ns/b", ""]);
    node.base.manager.name = ManagerName::Observe;
    assert_eq!(node.names(), ["ns/a", "ns/b", ""], "nothing goes down");
}

#[test]
fn the_log_names_some_that_came_and_went() {
    let scopes = |names: &[&str]| -> Vec<Scope> {
        names.iter().map(|name| Scope { name: (*name).to_owned(), ..Scope::default() }).collect()
    };
    let told = changes(&scopes(&["a", "b"]), &scopes(&["b", "c", "d"]));
    assert_eq!(told, "pods: 3 scopes now, new: c d, gone: a");
    let many: Vec<String> = (0..8).map(|n| n.to_string()).collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    assert_eq!(changes(&[], &scopes(&many)), "pods: 8 scopes now, new: 0 1 2 3 4 and 3 more");
}

#[test]
fn a_thousand_pods_half_of_them_wrong_are_sorted_out_in_little_time() {
    let mut node = Node::new("kubepods");
    for n in 0..1000 {
        let name = format!("p{n}");
        node.make(&format!("kubepods/podu-{name}"));
        node.pod(&name, "Guaranteed", &[("top-tier-floor", "1Gi")]);
    }
    // The first scope by hand takes processes of every other pod, and limits itself.
    node.base.scope = (0..500)
        .map(|n| Scope {
            cgroup: Some(format!("/kubepods/podu-p{}", 2 * n)),
            top_tier_cap_mib: Some(1),
            ..Scope::default()
        })
        .collect();
    node.write();
    let start = std::time::Instant::now();
    assert_eq!(node.compose().scope.len(), 1000);
    assert!(node.findings()[0].1.ends_with("and 497 more"));
    assert!(start.elapsed().as_secs() < 20, "{:?}", start.elapsed());
}

#[derive(Clone, Debug)]
enum Event {
    Comes(u8, u8),
    Goes(u8),
    Begins(u8),
    Ends(u8),
    Torn(u16),
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        (0u8..8, 0u8..8).prop_map(|(pod, asks)| Event::Comes(pod, asks)),
        (0u8..8).prop_map(Event::Goes),
        (0u8..8).prop_map(Event::Begins),
        (0u8..8).prop_map(Event::Ends),
        any::<u16>().prop_map(Event::Torn),
    ]
}

const ASKS: [&[(&str, &str)]; 8] = [
    &[("manage", "true")],
    &[("exclude", "true")],
    &[("top-tier-floor", "1Gi"), ("top-tier-cap", "2Gi")],
    &[("top-tier-floor", "2Gi"), ("top-tier-cap", "1Gi")],
    &[("mange", "true")],
    &[("top-tier-share", "1Gi"), ("top-tier-floor", "2Gi")],
    &[("never-slow", "true")],
    &[],
];

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]
    /// Whatever happens on the node: the configuration can be used, never manages what nobody asked
    /// for, and a pod that nothing happens to keeps its scope.
    #[test]
    fn pods_that_come_and_go_disturb_no_other(
        events in prop::collection::vec(event(), 1..60),
        all: bool,
    ) {
        let mut node = Node::new("kubepods");
        node.base.pods.manage = if all { PodsManaged::All } else { PodsManaged::Annotated };
        node.make("kubepods/podu-steady");
        node.pod("steady", "Guaranteed", &[("top-tier-cap", "3Gi")]);
        node.write();
        let steady = node.compose().scope[0].clone();
        for event in events {
            let named = |pod: u8| format!("p{pod}");
            let folder = |node: &Node, pod| node.folder(&format!("kubepods/podu-{}", named(pod)));
            match event {
                Event::Comes(pod, asks) => {
                    node.pods.retain(|known| known["metadata"]["name"] != named(pod));
                    node.pod(&named(pod), "Guaranteed", ASKS[usize::from(asks)]);
                    node.write();
                }
                Event::Goes(pod) => {
                    node.pods.retain(|known| known["metadata"]["name"] != named(pod));
                    node.write();
                }
                Event::Begins(pod) => fs::create_dir_all(folder(&node, pod)).unwrap(),
                Event::Ends(pod) => drop(fs::remove_dir(folder(&node, pod))),
                Event::Torn(at) => {
                    let whole = json!({ "kind": "List", "items": node.pods }).to_string();
                    node.write_bytes(&whole.as_bytes()[..usize::from(at) % whole.len()]);
                }
            }
            let config = node.compose();
            prop_assert_eq!(configuration::check(&config), Ok(()));
            prop_assert!(config.scope.contains(&steady));
            for scope in &config.scope {
                let path = scope.cgroup.as_deref().unwrap();
                let is_pod = path.starts_with("/kubepods/podu-");
                prop_assert!(is_pod || path == "/kubepods" && all, "{path}");
            }
        }
    }
}
