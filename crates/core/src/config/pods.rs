//! The section of the pods of Kubernetes that become scopes.

use serde::{Deserialize, Serialize};

use crate::config::names::{AbsolutePath, CgroupPath, OrNothing};
use crate::config::schema::Any;
use crate::section;

/// Name of a cgroup that is never there: a scope on it names nobody. Where no pod is managed it
/// stands among the scopes, because without any the whole machine would be.
pub const NOBODY: &str = "thermocline.nobody";

/// Whose memory is managed, of a node's pods.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PodsManaged {
    /// Of those that ask for it by an annotation.
    Annotated,
    /// Of all but those that an annotation excludes.
    All,
}

section! {
    /// `[pods]`: pods of Kubernetes on this node as scopes, by their annotations.
    Pods {
        /// File with the node's pods, as `kubectl get pods -o json` prints them, or a pod a line;
        /// another program keeps it up to date. Unset: pods are no scopes.
        file: Option<String> = None, "path", OrNothing(AbsolutePath), "ours";
        /// Pods that are managed: "annotated" for those with an annotation of `thermocline.dev`
        /// that does not exclude them; "all" for all but those that an annotation excludes. Scopes
        /// of the configuration count beside them, and whoever is in neither is left alone.
        manage: PodsManaged = PodsManaged::Annotated, "", Any("\"annotated\" or \"all\""), "ours: who did not ask is left alone";
        /// The kubelet's `cgroupRoot`, below which it keeps its `kubepods`; unset: /.
        cgroup_root: Option<String> = None, "path", CgroupPath, "the kubelet's default";
        /// Time between two looks at the file and at the pods' cgroups; other scopes are taken at
        /// most that often.
        look_ms: u64 = 5000, "ms", 1000..=600_000, "ours";
    }
}
