//! Files of pods, as they are and as they should not be.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

fn pod(name: &str, created: &str, annotations: Value) -> Value {
    let metadata = json!({
        "name": name, "namespace": "db", "uid": format!("uid-{name}"), "creationTimestamp": created,
        "annotations": annotations, "labels": { "app": "x" },
    });
    let spec =
        json!({ "nodeName": "n1", "containers": [{ "name": "c", "env": [{ "name": "A", "value": "b" }] }] });
    json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec,
        "status": { "phase": "Running", "qosClass": "Burstable" },
    })
}

fn managed() -> Value {
    json!({ "thermocline.dev/manage": "true", "other/annotation": "x" })
}

fn list(items: &[Value]) -> Vec<u8> {
    json!({ "apiVersion": "v1", "kind": "List", "items": items, "metadata": { "resourceVersion": "" } })
        .to_string()
        .into_bytes()
}

fn names(pods: &Pods) -> Vec<&str> {
    pods.pods.iter().map(|pod| pod.name.as_str()).collect()
}

#[test]
fn a_list_and_a_pod_a_line_say_the_same() {
    let pods = [pod("b", "2026-01-02T00:00:00Z", managed()), pod("a", "2026-01-03T00:00:00Z", managed())];
    let listed = Pods::parse(&list(&pods)).unwrap();
    assert_eq!(names(&listed), ["db/b", "db/a"], "the oldest first");
    let first = &listed.pods[0];
    assert_eq!((first.uid.as_str(), first.class.as_deref()), ("uid-b", Some("Burstable")));
    assert_eq!(first.annotations.iter().collect::<Vec<_>>(), [(&"manage".to_owned(), &"true".to_owned())]);
    let lines = format!("{}\n{}\n", pods[0], pods[1]);
    assert_eq!(Pods::parse(lines.as_bytes()).unwrap(), listed);
    assert_eq!(Pods::parse(&list(&[])).unwrap(), Pods::default());
}

#[test]
fn only_pods_that_ask_for_something_and_run_count() {
    let mut ended = pod("ended", "", managed());
    ended["status"]["phase"] = "Succeeded".into();
    let mut without = pod("without", "", managed());
    without["metadata"].as_object_mut().unwrap().remove("annotations");
    let silent = pod("silent", "", json!({ "other/annotation": "x" }));
    let mut young = pod("young", "", managed());
    young["status"] = json!({});
    young["metadata"]["creationTimestamp"] = Value::Null;
    let pods = Pods::parse(&list(&[ended, without, silent, young])).unwrap();
    assert_eq!((names(&pods), &pods.pods[0].class), (vec!["db/young"], &None));
    assert_eq!(pods.left_out, [""; 0]);
}

#[test]
fn a_static_pod_has_the_kubelets_uid() {
    let annotations = json!({ "thermocline.dev/manage": "true", "kubernetes.io/config.mirror": "0123abcd" });
    let pods = Pods::parse(&list(&[pod("etcd-n1", "", annotations)])).unwrap();
    assert_eq!(pods.pods[0].uid, "0123abcd");
    let another = json!({ "thermocline.dev/manage": "true", "kubernetes.io/config.mirror": "uid-b" });
    let pods = Pods::parse(&list(&[pod("a", "", another)])).unwrap();
    assert_eq!(pods.pods[0].uid, "uid-a", "nobody speaks for another pod");
}

#[test]
fn what_is_no_list_of_pods_is_refused_as_a_whole() {
    let whole = list(&[pod("a", "", managed())]);
    for cut in 1..whole.len() {
        assert!(matches!(Pods::parse(&whole[..cut]), Err(PodsError::Json(_))), "cut at {cut}");
    }
    for (bytes, why) in [
        (&b""[..], "it is empty"),
        (b" \n\0", "not the JSON"),
        (b"\n\n", "it is empty"),
        (b"[]", "not the JSON"),
        (b"{\"kind\":\"NodeList\",\"items\":[]}", "\"NodeList\""),
        (b"{\"items\":[]}", "list without a kind"),
        (b"{\"kind\":\"Status\",\"code\":401}", "\"Status\""),
        (b"{\"metadata\":{\"annotations\":{\"a\":1}}}", "not the JSON"),
        (b"error: You must be logged in to the server", "not the JSON"),
    ] {
        let told = Pods::parse(bytes).unwrap_err().to_string();
        assert!(told.contains(why), "{told}");
    }
    let deep = "{\"a\":".repeat(100_000);
    assert!(Pods::parse(deep.as_bytes()).is_err());
    assert!(matches!(Pods::parse(&vec![b' '; BYTES_MAX as usize + 1]), Err(PodsError::TooLong)));
}

#[test]
fn names_and_uids_lead_nowhere_else() {
    let with = |key: &str, value: &str| {
        let mut pod = pod("a", "", managed());
        pod["metadata"][key] = value.into();
        Pods::parse(&list(&[pod])).unwrap()
    };
    for uid in ["../../init.scope", "", "a/b", "a.b", "a\0", &"a".repeat(65)] {
        let pods = with("uid", uid);
        assert!(pods.pods.is_empty() && pods.left_out[0].contains("db/a is left out"), "{uid}");
    }
    for name in ["", "a/b", "A", "a\nb", &"a".repeat(254)] {
        let pods = with("name", name);
        assert!(pods.pods.is_empty() && pods.left_out[0].contains("is no name"), "{name}");
    }
}

#[test]
fn beyond_the_limit_the_newest_are_left_out() {
    let made = |n: usize| pod(&format!("p{n}"), &format!("2026-01-01T{:05}", PODS_MAX + 9 - n), managed());
    let pods: Vec<Value> = (0..PODS_MAX + 2).map(made).chain([made(5)]).collect();
    let pods = Pods::parse(&list(&pods)).unwrap();
    assert_eq!(pods.pods.len(), PODS_MAX);
    assert!(!names(&pods).contains(&"db/p0") && names(&pods).contains(&"db/p2"));
    assert_eq!(
        pods.left_out,
        [
            "pod db/p5 stands twice in the file; the older one counts",
            "1026 pods have annotations, and at most 1024 become scopes: the newest 2 are left out"
        ]
    );
}

proptest! {
    #[test]
    fn no_bytes_panic(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        let _ = Pods::parse(&bytes);
    }

    #[test]
    fn no_damage_panics_and_every_pod_that_is_read_can_be_asked(
        at in 0usize..400, byte: u8, value in "\\PC{0,20}",
    ) {
        let annotations = json!({ "thermocline.dev/top-tier-floor": value, "thermocline.dev/exclude": "x" });
        let mut bytes = list(&[pod("a", "2026", annotations)]);
        let place = at % bytes.len();
        bytes[place] = byte;
        for pod in Pods::parse(&bytes).map(|pods| pods.pods).unwrap_or_default() {
            asked(&pod);
            for driver in CgroupDriver::ALL {
                for path in driver.of_pod("/", &pod) {
                    prop_assert!(path.starts_with(&driver.all_pods("/")) && !path.contains(".."));
                }
            }
        }
    }
}
