//! Pods of Kubernetes as scopes: reads the file that `pods.file` names, finds the pods' cgroups,
//! and puts the pods into the configuration, each exactly like a `[[scope]]` on its cgroup.
//!
//! A pod that cannot be a scope is left out, the others stay. A file that cannot be used changes
//! nothing.

use std::os::unix::fs::MetadataExt;
use std::path::Path;

use thermocline_core::cgroup::is_within;
use thermocline_core::config::schema::Violation;
use thermocline_core::config::{Config, ConfigError, DemotionMode, ManagerName, NOBODY, PodsManaged, Scope};
use thermocline_core::demotion::reach;
use thermocline_front::config::FileError;
use thermocline_linux::configuration;
use thermocline_linux::finding::{self, Finding};
use thermocline_linux::regular;
use thermocline_linux::root::Root;
use thermocline_linux::scope::cgroup;
use thermocline_wire::pods::{Asked, BYTES_MAX, CgroupDriver, Pods, asked};

use crate::escape;

/// Scope of all pods.
const ALL: &str = "pods";
/// Scope that stands for pods where none is managed.
const NONE: &str = "no pods";
/// Scopes that a line of the log names as come or gone.
const NAMED: usize = 5;

/// The pods as they were last seen.
#[derive(Debug, Default)]
pub struct PodScopes {
    root: Root,
    /// The last file that could be used; `None` before there was one.
    good: Option<Pods>,
    /// The state of the file when it was last read, for better or worse.
    seen: Option<Stamp>,
    /// Why the file cannot be used.
    unreadable: Option<String>,
    /// Why pods are not scopes as they ask to be.
    left_out: Vec<String>,
}

/// What tells a file from the one that was there before: a renamed one has another number.
#[derive(Debug, PartialEq, Eq)]
struct Stamp {
    inode: u64,
    bytes: u64,
    changed_ns: i128,
}

impl PodScopes {
    /// For the machine at `root`.
    pub fn new(root: &Root) -> PodScopes {
        PodScopes { root: root.clone(), ..PodScopes::default() }
    }

    /// The configuration with the pods of now in it; `base` is without them.
    ///
    /// # Errors
    /// No pods could be scopes under this configuration.
    pub fn compose(&mut self, base: &Config) -> Result<Config, FileError> {
        self.left_out.clear();
        let Some(file) = &base.pods.file else {
            *self = PodScopes { root: self.root.clone(), ..PodScopes::default() };
            return Ok(base.clone());
        };
        self.read(Path::new(file));
        let mount = cgroup::mount(&self.root).ok().flatten();
        let is_there =
            |path: &String| mount.as_ref().is_some_and(|mount| cgroup::folder(mount, path).is_dir());
        let kubelet = cgroup::normal(base.pods.cgroup_root.as_deref().unwrap_or("/"));
        let mut scopes = Vec::new();
        for pod in self.good.iter().flat_map(|good| &good.pods) {
            let mut paths = CgroupDriver::ALL.into_iter().flat_map(|driver| driver.of_pod(&kubelet, pod));
            // One whose cgroup is not there is about to begin or has just ended.
            let Some(path) = paths.find(is_there) else { continue };
            match asked(pod) {
                Asked::Scope(scope) => scopes.push(Scope { cgroup: Some(path), ..*scope }),
                Asked::LeftAlone(told) => {
                    self.left_out.extend(told);
                    scopes.extend(left_alone(base, &pod.name, path));
                }
                Asked::Nothing(told) => self.left_out.push(told),
            }
        }
        self.left_out.extend(self.good.iter().flat_map(|good| &good.left_out).cloned());
        let all = CgroupDriver::ALL.map(|driver| driver.all_pods(&kubelet));
        let all = all.iter().find(|path| is_there(path)).unwrap_or(&all[0]);
        let of = |name: &str, path: String| Scope {
            name: name.to_owned(),
            cgroup: Some(path),
            ..Scope::default()
        };
        let nobody = of(NONE, format!("{all}/{NOBODY}"));
        let last = match base.pods.manage {
            PodsManaged::All => vec![of(ALL, all.clone())],
            // Without any scope the whole machine would be managed.
            PodsManaged::Annotated => {
                let mut others = scopes.iter().chain(&base.scope);
                if others.all(|scope| scope.exclude) { vec![nobody.clone()] } else { Vec::new() }
            }
        };
        // Also while no pod asks for it: a pod must not end demotion, and none goes down that asked
        // to be left alone.
        if is_limited_to_scopes(base) && may_exclude(base, all) {
            return Err(FileError::Invalid(
                "pods.file: pods may ask to be left alone, and the kernel may demote their memory too once demotion is enabled; set \
                 demotion.mode = \"on\" to accept that, or \"off\""
                    .to_owned(),
            ));
        }
        if self.good.is_none() {
            // Who asked to be left alone is not known yet, by scopes of the configuration neither.
            return self.fit(&Config { scope: Vec::new(), ..base.clone() }, Vec::new(), &[nobody]);
        }
        self.fit(base, scopes, &last)
    }

    /// Adds the scopes that the configuration can be used with: pods first, because their limits
    /// hold only where no scope before them takes their processes.
    fn fit(&mut self, base: &Config, pods: Vec<Scope>, last: &[Scope]) -> Result<Config, FileError> {
        let with = |pods: &[Scope]| {
            let scope = [pods, &base.scope, last].concat();
            Config { scope, ..base.clone() }
        };
        let check = |config: &Config| {
            configuration::check(config).map_err(|error| first_of(&error))?;
            match reach(config) {
                Err(why) if is_limited_to_scopes(base) => Err(why.to_string()),
                _ => Ok(()),
            }
        };
        if let Err(error) = check(&with(&[])) {
            return Err(FileError::Invalid(format!(
                "pods.file cannot be used with this configuration: {error}"
            )));
        }
        let mut taken: Vec<Scope> = Vec::new();
        let mut rest = vec![pods];
        while let Some(mut batch) = rest.pop() {
            let before = taken.len();
            taken.extend_from_slice(&batch);
            let Err(why) = check(&with(&taken)) else { continue };
            taken.truncate(before);
            if batch.len() > 1 {
                // The order is kept: the first half is tried first.
                let second = batch.split_off(batch.len() / 2);
                rest.extend([second, batch]);
                continue;
            }
            let name = batch.first().map(|scope| scope.name.as_str()).unwrap_or_default();
            self.left_out.push(format!("pod {name} is treated as one without annotations: {why}"));
        }
        Ok(with(&taken))
    }

    /// Reads the file if it is another one than before.
    fn read(&mut self, file: &Path) {
        let stamp = std::fs::metadata(file).map(|meta| Stamp {
            inode: meta.ino(),
            bytes: meta.len(),
            changed_ns: i128::from(meta.mtime()) * 1_000_000_000 + i128::from(meta.mtime_nsec()),
        });
        if stamp.as_ref().is_ok_and(|stamp| self.seen.as_ref() == Some(stamp)) {
            return;
        }
        self.seen = stamp.ok();
        let read = regular::read_at_most(file, BYTES_MAX).map_err(|error| error.to_string());
        match read.and_then(|bytes| Pods::parse(&bytes).map_err(|error| error.to_string())) {
            Ok(pods) => (self.good, self.unreadable) = (Some(pods), None),
            Err(why) => {
                let then = match self.good {
                    Some(_) => "the pods that were read before stay as they are",
                    None => "no pod is known, and no memory is managed until one is",
                };
                self.unreadable =
                    Some(format!("{} is not the list of this node's pods: {why}; {then}", file.display()));
            }
        }
    }

    /// What is wrong with the file and with pods.
    pub fn findings(&self) -> Vec<Finding> {
        finding::pods(self.unreadable.as_deref(), &self.left_out)
    }
}

/// The first violation in a sentence; some of them begin with the key already.
fn first_of(ConfigError(violations): &ConfigError) -> String {
    let told = |v: &Violation| match v.message.starts_with(&v.key) {
        true => v.message.clone(),
        false => format!("{}: {}", v.key, v.message),
    };
    violations.first().map(told).unwrap_or_default()
}

/// Whether cold pages go down, and only as long as the scopes are such that this touches nobody
/// else's memory.
fn is_limited_to_scopes(base: &Config) -> bool {
    let mode = (base.manager.name, base.demotion.mode);
    mode == (ManagerName::Thermocline, DemotionMode::Auto) && reach(base).is_ok()
}

/// Whether a pod may have to be excluded from a larger scope; `all` is the cgroup of all pods.
fn may_exclude(base: &Config, all: &str) -> bool {
    let may_take = |scope: &Scope| {
        let path = cgroup::normal(scope.cgroup.as_deref().unwrap_or("/"));
        !scope.exclude && (is_within(all, &path) || is_within(&path, all))
    };
    base.pods.manage == PodsManaged::All || base.scope.iter().any(may_take)
}

/// The scope that leaves a pod alone; `None` if no other scope would take it.
fn left_alone(base: &Config, name: &str, path: String) -> Option<Scope> {
    let may_take = |scope: &Scope| {
        let above = scope.cgroup.as_deref().is_none_or(|above| is_within(&path, &cgroup::normal(above)));
        !scope.exclude && above
    };
    let taken = base.pods.manage == PodsManaged::All || base.scope.iter().any(may_take);
    taken.then(|| Scope { name: name.to_owned(), cgroup: Some(path), exclude: true, ..Scope::default() })
}

/// A line of the log: what has become of the scopes.
pub fn changes(before: &[Scope], after: &[Scope]) -> String {
    let missing = |of: &[Scope], from: &[Scope]| {
        let names: std::collections::BTreeSet<&str> = from.iter().map(|scope| scope.name.as_str()).collect();
        let missing = of.iter().map(|scope| scope.name.as_str()).filter(|name| !names.contains(name));
        missing.map(|name| escape::name(name).into_owned()).collect::<Vec<String>>()
    };
    let told = |what: &str, names: Vec<String>| match names.len() {
        0 => String::new(),
        len if len > NAMED => format!(", {what} {} and {} more", names[..NAMED].join(" "), len - NAMED),
        _ => format!(", {what} {}", names.join(" ")),
    };
    let (new, gone) = (missing(after, before), missing(before, after));
    let scopes = if after.len() == 1 { "scope" } else { "scopes" };
    format!("pods: {} {scopes} now{}{}", after.len(), told("new:", new), told("gone:", gone))
}

#[cfg(test)]
mod tests;
