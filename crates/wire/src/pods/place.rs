//! Where the kubelet puts a pod's cgroup, by either of its drivers.

use super::Pod;

/// Classes of service, as `status.qosClass` has them, each with its folder; the guaranteed have
/// none.
const CLASSES: [(&str, &str); 3] =
    [("Burstable", "burstable"), ("BestEffort", "besteffort"), ("Guaranteed", "")];

/// How the kubelet names cgroups.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CgroupDriver {
    /// Slices of systemd.
    Systemd,
    /// Plain folders.
    Cgroupfs,
}

impl CgroupDriver {
    /// Both, the usual one first.
    pub const ALL: [CgroupDriver; 2] = [CgroupDriver::Systemd, CgroupDriver::Cgroupfs];

    /// The driver's name, as the kubelet's `cgroupDriver` has it.
    pub const fn name(self) -> &'static str {
        match self {
            CgroupDriver::Systemd => "systemd",
            CgroupDriver::Cgroupfs => "cgroupfs",
        }
    }

    /// The cgroup of all pods; `root` is the kubelet's `cgroupRoot`.
    pub fn all_pods(self, root: &str) -> String {
        self.path(root, &[])
    }

    /// The cgroups that may be the pod's: one, or one a class of service where the class is not
    /// known.
    pub fn of_pod(self, root: &str, pod: &Pod) -> Vec<String> {
        let named = CLASSES.iter().filter(|(class, _)| pod.class.as_deref().is_none_or(|is| is == *class));
        let pod = format!("pod{}", pod.uid);
        let path = |(_, folder): &(&str, &str)| match *folder {
            "" => self.path(root, &[&pod]),
            folder => self.path(root, &[folder, &pod]),
        };
        named.map(path).collect()
    }

    /// Systemd names a slice by all slices above it, joined by dashes, so that names themselves
    /// have none.
    fn path(self, root: &str, below: &[&str]) -> String {
        let names = root.split('/').filter(|name| !name.is_empty());
        let names = names.chain(["kubepods"]).chain(below.iter().copied());
        let mut slice = String::new();
        let mut folder = |name: &str| match self {
            CgroupDriver::Cgroupfs => format!("/{name}"),
            CgroupDriver::Systemd => {
                let dash = if slice.is_empty() { "" } else { "-" };
                slice = format!("{slice}{dash}{}", name.replace('-', "_"));
                format!("/{slice}.slice")
            }
        };
        names.map(&mut folder).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn paths(driver: CgroupDriver, root: &str, class: Option<&str>) -> Vec<String> {
        let pod = Pod { uid: "0a-1b".to_owned(), class: class.map(str::to_owned), ..Pod::default() };
        driver.of_pod(root, &pod)
    }

    #[test]
    fn paths_are_the_kubelets() {
        let (systemd, cgroupfs) = (CgroupDriver::Systemd, CgroupDriver::Cgroupfs);
        assert_eq!(
            paths(systemd, "/", Some("Burstable")),
            ["/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod0a_1b.slice"]
        );
        assert_eq!(paths(systemd, "/", Some("Guaranteed")), ["/kubepods.slice/kubepods-pod0a_1b.slice"]);
        assert_eq!(paths(cgroupfs, "/", Some("BestEffort")), ["/kubepods/besteffort/pod0a-1b"]);
        assert_eq!(paths(cgroupfs, "", Some("Guaranteed")), ["/kubepods/pod0a-1b"]);
        assert_eq!(systemd.all_pods("/"), "/kubepods.slice");
        assert_eq!(cgroupfs.all_pods("/k8s"), "/k8s/kubepods");
        assert_eq!(
            paths(systemd, "/my-node/kubelet", Some("Guaranteed")),
            [
                "/my_node.slice/my_node-kubelet.slice/my_node-kubelet-kubepods.slice/my_node-kubelet-kubepods-pod0a_1b.slice"
            ]
        );
    }

    #[test]
    fn a_pod_of_no_known_class_may_be_in_any_and_one_of_an_unknown_class_in_none() {
        assert_eq!(paths(CgroupDriver::Cgroupfs, "/", None).len(), 3);
        assert!(paths(CgroupDriver::Systemd, "/", Some("Golden")).is_empty());
    }
}
