//! Files of pods from anywhere.
//!
//! Whatever the file holds: no panic; no more pods than are allowed, each once; a pod's cgroup is
//! one of the kubelet's, and a scope has the pod's name and no other criterion.

use std::collections::BTreeSet;

use thermocline_core::config::Scope;
use thermocline_wire::pods::{Asked, CgroupDriver, PODS_MAX, Pods, asked};

/// Panics where the bytes broke a law.
pub fn check(bytes: &[u8]) {
    let Ok(Pods { pods, .. }) = Pods::parse(bytes) else { return };
    let names: BTreeSet<&str> = pods.iter().map(|pod| pod.name.as_str()).collect();
    assert!(names.len() == pods.len() && pods.len() <= PODS_MAX);
    for pod in &pods {
        for driver in CgroupDriver::ALL {
            for path in driver.of_pod("/", pod) {
                let below = path.strip_prefix(&driver.all_pods("/")).expect("it is the kubelet's");
                assert!(below.starts_with('/') && !below.contains("..") && !below.contains('\0'));
            }
        }
        if let Asked::Scope(scope) = asked(pod) {
            assert_eq!(scope.name, pod.name);
            assert!(scope.top_tier_cap_mib.is_none_or(|cap| scope.top_tier_floor_mib <= cap));
            let others = Scope {
                name: String::new(),
                rate_share_percent: Scope::default().rate_share_percent,
                top_tier_floor_mib: 0,
                top_tier_cap_mib: None,
                top_tier_share_mib: 0,
                never_slow: false,
                ..*scope
            };
            assert_eq!(others, Scope::default());
        }
    }
}
