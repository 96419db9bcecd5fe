//! Pods of Kubernetes as scopes: the JSON of `kubectl get pods -o json`, the annotations, and where
//! a pod's cgroup is.

mod annotations;
mod place;
mod quantity;

use std::collections::BTreeMap;

use serde::Deserialize;

pub use annotations::{Asked, PREFIX, asked, names};
pub use place::CgroupDriver;

/// Largest file of pods in bytes: some thousand pods with all their fields.
pub const BYTES_MAX: u64 = 32 << 20;
/// Pods with annotations of ours that become scopes; the kubelet's own limit is 110 by default.
pub const PODS_MAX: usize = 1024;
/// Longest name of a pod or namespace (RFC 1123).
const NAME_BYTES_MAX: usize = 253;
/// Longest uid: those of static pods have 32 characters, all others 36.
const UID_BYTES_MAX: usize = 64;
/// The uid by which the kubelet itself knows a static pod: a hash, which has no dash. One with
/// dashes would be another pod's.
const STATIC_UID: &str = "kubernetes.io/config.mirror";

/// A file that is no list of pods.
#[derive(Debug, thiserror::Error)]
pub enum PodsError {
    /// It is longer than is read.
    #[error("it has more than {} MiB", BYTES_MAX >> 20)]
    TooLong,
    /// It has nothing in it.
    #[error("it is empty: whoever writes it has not finished, or writes in place")]
    Empty,
    /// It ends early, or is something else.
    #[error("it is not the JSON of pods: {0}")]
    Json(#[from] serde_json::Error),
    /// A document is neither a pod nor a list of pods.
    #[error("it has a {0:?}, which is neither a pod nor a list of pods")]
    Other(String),
}

/// A pod that may have a cgroup on the node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pod {
    /// Namespace and name, with a slash between them.
    pub name: String,
    /// The uid that its cgroup is named by.
    pub uid: String,
    /// Class of service, as in `Burstable`; `None` if it is not decided.
    pub class: Option<String>,
    /// Annotations of ours, without [`PREFIX`].
    pub annotations: BTreeMap<String, String>,
    /// When it was made, as the API server writes it, which sorts as text.
    created: String,
}

/// What a file of pods says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pods {
    /// Pods with annotations of ours that have not ended, the oldest first.
    pub pods: Vec<Pod>,
    /// Why others are left out, each in a sentence.
    pub left_out: Vec<String>,
}

#[derive(Deserialize)]
struct Document {
    #[serde(default)]
    kind: Option<String>,
    items: Option<Vec<Item>>,
    #[serde(default)]
    metadata: Metadata,
    #[serde(default)]
    status: Status,
}

#[derive(Deserialize)]
struct Item {
    #[serde(default)]
    metadata: Metadata,
    #[serde(default)]
    status: Status,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Metadata {
    name: String,
    namespace: String,
    uid: String,
    creation_timestamp: Option<String>,
    annotations: Option<BTreeMap<String, String>>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Status {
    phase: Option<String>,
    qos_class: Option<String>,
}

impl Pods {
    /// Reads the bytes of a file: one list of pods, or pods one after the other.
    ///
    /// # Errors
    /// [`PodsError`]: nothing of the file is used.
    pub fn parse(bytes: &[u8]) -> Result<Pods, PodsError> {
        if bytes.len() as u64 > BYTES_MAX {
            return Err(PodsError::TooLong);
        }
        if bytes.trim_ascii().is_empty() {
            return Err(PodsError::Empty);
        }
        let mut pods = Pods::default();
        for document in serde_json::Deserializer::from_slice(bytes).into_iter::<Document>() {
            let Document { kind, items, metadata, status } = document?;
            match (kind.as_deref(), items) {
                (Some("PodList" | "List"), Some(items)) => items.into_iter().for_each(|item| pods.add(item)),
                (Some("Pod") | None, None) => pods.add(Item { metadata, status }),
                (kind, _) => return Err(PodsError::Other(kind.unwrap_or("list without a kind").to_owned())),
            }
        }
        pods.pods.sort_by(|a, b| (&a.created, &a.name).cmp(&(&b.created, &b.name)));
        pods.bound();
        Ok(pods)
    }

    fn add(&mut self, item: Item) {
        let Item { metadata, status } = item;
        let mut annotations = metadata.annotations.unwrap_or_default();
        let uid = annotations.remove(STATIC_UID).filter(|uid| !uid.contains('-')).unwrap_or(metadata.uid);
        let ours = |(name, value): (String, String)| Some((name.strip_prefix(PREFIX)?.to_owned(), value));
        let annotations: BTreeMap<String, String> = annotations.into_iter().filter_map(ours).collect();
        let has_ended = matches!(status.phase.as_deref(), Some("Succeeded" | "Failed"));
        if annotations.is_empty() || has_ended {
            return;
        }
        let name = format!("{}/{}", metadata.namespace, metadata.name);
        if !is_name(&metadata.namespace) || !is_name(&metadata.name) {
            self.left_out.push(format!("a pod is left out, because {:?} is no name", shortened(&name)));
        } else if !is_uid(&uid) {
            self.left_out.push(format!("pod {name} is left out, because {:?} is no uid", shortened(&uid)));
        } else {
            let created = metadata.creation_timestamp.unwrap_or_default();
            self.pods.push(Pod { name, uid, class: status.qos_class, annotations, created });
        }
    }

    /// Leaves out pods that stand twice, and those beyond [`PODS_MAX`].
    fn bound(&mut self) {
        let mut seen = std::collections::BTreeSet::new();
        let left_out = &mut self.left_out;
        self.pods.retain(|pod| {
            let is_new = seen.insert(pod.name.clone());
            if !is_new {
                left_out.push(format!("pod {} stands twice in the file; the older one counts", pod.name));
            }
            is_new
        });
        if self.pods.len() > PODS_MAX {
            let beyond = self.pods.split_off(PODS_MAX);
            left_out.push(format!(
                "{} pods have annotations, and at most {PODS_MAX} become scopes: the newest {} are left out",
                PODS_MAX + beyond.len(),
                beyond.len()
            ));
        }
    }
}

/// What a name of Kubernetes consists of.
fn is_name(name: &str) -> bool {
    let letter = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || matches!(b, b'-' | b'.');
    (1..=NAME_BYTES_MAX).contains(&name.len()) && name.bytes().all(letter)
}

/// A uid becomes a folder's name, so that it must not lead elsewhere.
fn is_uid(uid: &str) -> bool {
    let letter = |b: u8| b.is_ascii_alphanumeric() || b == b'-';
    (1..=UID_BYTES_MAX).contains(&uid.len()) && uid.bytes().all(letter)
}

/// As much of a text as a message shows.
fn shortened(text: &str) -> String {
    text.chars().take(NAME_BYTES_MAX).collect()
}

#[cfg(test)]
mod tests;
