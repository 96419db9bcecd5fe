//! Loads the BPF programs: the settings before loading, the possible errors, and their remedies.

use std::fs::File;
use std::io;
use std::mem::offset_of;
use std::os::fd::{AsFd, AsRawFd};
use std::path::{Path, PathBuf};

use thermocline_bpf::libbpf_rs::{
    self, Link, Map, MapCore, MapFlags, Object, ObjectBuilder, OpenObject, PrintLevel, ProgramMut,
};
use thermocline_bpf::{OBJECT, rodata, tc_filter};
use thermocline_core::units::Pid;

use super::btf::{Btf, BtfError, VMLINUX};
use super::layout::{ENTRIES, Entry, FolioFlags, probe};
use crate::scope::FILTER_CGROUPS_MAX as CGROUPS_MAX;

/// The program that only lab tests attach.
const STAMP_PROGRAM: &str = "kernel_stamp";
/// The program that attaches where the kernel has this function.
const TICK_PROGRAM: (&str, &str) = ("scan_tick", "flush_tlb_batched_pending");

/// The processes whose faults are reported. The kernel side filters.
///
/// A process is in scope if it is not excluded and one of these holds: `all` is set, it is listed,
/// or it runs in the subtree of a listed cgroup.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scope {
    /// The whole machine.
    pub all: bool,
    /// Whether processes may be listed, now or later ([`super::HintFaultSource::include`]).
    pub listed: bool,
    /// Whether processes may be excluded, now or later ([`super::HintFaultSource::exclude`]).
    pub exclusions: bool,
    /// cgroup v2 folders, at most 16. One that does not exist yet may be set later
    /// ([`super::HintFaultSource::set_cgroup`]).
    pub cgroups: Vec<PathBuf>,
    /// The same for cgroups that are excluded.
    pub excluded_cgroups: Vec<PathBuf>,
}

impl Scope {
    /// Every process of the machine.
    pub fn whole_machine() -> Scope {
        Scope {
            all: true,
            listed: false,
            exclusions: false,
            cgroups: Vec::new(),
            excluded_cgroups: Vec::new(),
        }
    }

    /// Only the processes that are included later.
    pub fn listed() -> Scope {
        Scope { all: false, listed: true, ..Scope::whole_machine() }
    }
}

/// Why the source cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The kernel's type information is missing or cannot be used.
    #[error(transparent)]
    Btf(#[from] BtfError),
    /// The kernel lacks something that the programs attach to or read.
    #[error(
        "this kernel does not offer {0}, which {1}: it was built without NUMA balancing, or what is there has changed or \
         was inlined; boot a distribution's kernel of 6.1 or newer, or use another source"
    )]
    NotOffered(&'static str, &'static str),
    /// The kernel's BTF does not show where a folio stores its node.
    #[error(
        "{VMLINUX} does not tell where a page keeps its node: pages cannot be told apart by tier on this kernel"
    )]
    NoNode,
    /// A capability is missing.
    #[error(
        "loading BPF programs was refused: run as root, or give the binary {missing} (setcap {missing}=ep, or \
         AmbientCapabilities= in its unit)"
    )]
    Permission {
        /// The capabilities that this process lacks.
        missing: String,
        /// What the kernel returned.
        #[source]
        source: libbpf_rs::Error,
    },
    /// The kernel is locked down.
    #[error(
        "the kernel is locked down ({mode}), which keeps BPF programs from reading its memory; lockdown= decides at boot"
    )]
    Lockdown {
        /// Content of the lockdown file.
        mode: String,
        /// What the kernel returned.
        #[source]
        source: libbpf_rs::Error,
    },
    /// The kernel refuses although nothing seems to be missing.
    #[error(
        "loading BPF programs was refused although no capability is missing: a security module or a hardened kernel forbids tracing \
         functions here; ask who runs this machine, or use another source"
    )]
    Forbidden(#[source] libbpf_rs::Error),
    /// A cgroup of the scope cannot be opened.
    #[error("{}: {source}; give the folder of a cgroup v2 below its mount point", path.display())]
    Cgroup {
        /// The folder.
        path: PathBuf,
        /// Why not.
        #[source]
        source: io::Error,
    },
    /// Too many cgroups.
    #[error("{0} cgroups are listed, at most {CGROUPS_MAX} can be: name a common parent")]
    TooManyCgroups(usize),
    /// The ring cannot be mapped.
    #[error("the ring of {0} bytes cannot be mapped: {1}")]
    Ring(u32, #[source] io::Error),
    /// The kernel refused for another reason.
    #[error("{what} failed: {source:#}")]
    Bpf {
        /// What was tried.
        what: String,
        /// What the kernel returned.
        #[source]
        source: libbpf_rs::Error,
    },
}

/// Loaded and attached programs.
#[derive(Debug)]
pub(super) struct Loaded {
    /// Dropping a link detaches its program. Dropped before `object`.
    _links: Vec<Link>,
    pub(super) object: Object,
    /// Size of the kernel's `struct page`, in bytes.
    pub(super) page_bytes: u64,
}

impl Loaded {
    /// A map of the object.
    pub(super) fn map(&self, name: &str) -> Map<'_> {
        find_map(&self.object, name)
    }
}

fn find_map<'a>(object: &'a Object, name: &str) -> Map<'a> {
    object.maps().find(|m| m.name() == name).expect("the object has all maps that the source names")
}

/// Loads and attaches the programs for `scope`, with a ring of `ring_bytes`.
pub(super) fn load(scope: &Scope, ring_bytes: u32, kernel_stamp: bool) -> Result<Loaded, OpenError> {
    let btf = Btf::read(Path::new(VMLINUX))?;
    if let Some(missing) = probe(&btf).iter().find(|p| p.required && !p.present) {
        return Err(OpenError::NotOffered(missing.name, missing.why_needed));
    }
    let flags = FolioFlags::from_btf(&btf).ok_or(OpenError::NoNode)?;
    let entry = Entry::of(&btf).expect("it is among what was probed for");
    let ticks = btf.function(TICK_PROGRAM.1).is_some();
    let page_bytes = btf.size("page").unwrap_or_default().into();
    drop(btf);

    // Explanations from the kernel and libbpf are returned as errors. On stderr they would only
    // confuse.
    libbpf_rs::set_print(Some((PrintLevel::Debug, |_, _| {})));
    let mut open =
        ObjectBuilder::default().open_memory(OBJECT).map_err(|e| failed("opening the BPF object", e))?;
    for list in [&scope.cgroups, &scope.excluded_cgroups] {
        if list.len() > CGROUPS_MAX {
            return Err(OpenError::TooManyCgroups(list.len()));
        }
    }
    configure(&mut open, ring_bytes, kernel_stamp, flags)?;
    let wanted = |name: &str| match name {
        STAMP_PROGRAM => kernel_stamp && flags.stamp.is_some(),
        name if name == TICK_PROGRAM.0 => ticks,
        name => name == entry.program || ENTRIES.iter().all(|entry| entry.program != name),
    };
    for mut program in open.progs_mut() {
        let load = wanted(&program.name().to_string_lossy());
        program.set_autoload(load);
    }
    let object = open.load().map_err(refused)?;
    fill_cgroups(&object, "cgroups", &scope.cgroups)?;
    fill_cgroups(&object, "excluded_cgroups", &scope.excluded_cgroups)?;
    set_filter(&object, scope).map_err(|e| failed("setting the filter", e))?;

    let mut links = Vec::new();
    for program in object.progs_mut() {
        if program.autoload() {
            links.push(attach(&program)?);
        }
    }
    Ok(Loaded { _links: links, object, page_bytes })
}

fn attach(program: &ProgramMut<'_>) -> Result<Link, OpenError> {
    program.attach().map_err(|e| failed(&format!("attaching to {}", program.section().to_string_lossy()), e))
}

fn configure(
    open: &mut OpenObject,
    ring_bytes: u32,
    kernel_stamp: bool,
    flags: FolioFlags,
) -> Result<(), OpenError> {
    for mut map in open.maps_mut() {
        let name = map.name().to_string_lossy().into_owned();
        if name == "ring" {
            map.set_max_entries(ring_bytes).map_err(|e| failed("sizing the ring", e))?;
        } else if name.ends_with(".rodata") {
            let constants = map.initial_value_mut().expect("a .rodata map has an initial value");
            let mut set = |at: usize, bytes: &[u8]| constants[at..at + bytes.len()].copy_from_slice(bytes);
            let (stamp_shift, stamp_mask) = flags.stamp.filter(|_| kernel_stamp).unwrap_or_default();
            set(offset_of!(rodata, node_shift), &flags.node_shift.to_ne_bytes());
            set(offset_of!(rodata, stamp_shift), &stamp_shift.to_ne_bytes());
            set(offset_of!(rodata, stamp_mask), &stamp_mask.to_ne_bytes());
            set(offset_of!(rodata, wake_bytes), &u64::from(ring_bytes / 8).to_ne_bytes());
        }
    }
    Ok(())
}

fn fill_cgroups(object: &Object, name: &str, folders: &[PathBuf]) -> Result<(), OpenError> {
    for (place, path) in folders.iter().enumerate() {
        match set_cgroup(object, name, place, Some(path)) {
            Err(OpenError::Cgroup { source, .. }) if source.kind() == io::ErrorKind::NotFound => {}
            other => other?,
        }
    }
    Ok(())
}

/// Sets the cgroup in `folder` at an index of a map of cgroups, or clears the index.
pub(super) fn set_cgroup(
    object: &Object,
    name: &str,
    place: usize,
    folder: Option<&Path>,
) -> Result<(), OpenError> {
    let (map, key) = (find_map(object, name), (place as u32).to_ne_bytes());
    let Some(path) = folder else {
        return match map.delete(&key) {
            Err(e) if e.kind() != libbpf_rs::ErrorKind::NotFound => Err(failed("forgetting a cgroup", e)),
            _ => Ok(()),
        };
    };
    let failed = |source| OpenError::Cgroup { path: path.to_owned(), source };
    let fd = File::open(path).map_err(failed)?;
    let value = fd.as_fd().as_raw_fd().to_ne_bytes();
    map.update(&key, &value, MapFlags::ANY).map_err(|e| failed(io::Error::other(format!("{e:#}"))))
}

/// Sets which of the lists count.
pub(super) fn set_filter(object: &Object, scope: &Scope) -> Result<(), libbpf_rs::Error> {
    let fields = [
        (offset_of!(tc_filter, all), u32::from(scope.all)),
        (offset_of!(tc_filter, listed), u32::from(scope.listed)),
        (offset_of!(tc_filter, exclusions), u32::from(scope.exclusions)),
        (offset_of!(tc_filter, nr_cgroups), scope.cgroups.len() as u32),
        (offset_of!(tc_filter, nr_excluded_cgroups), scope.excluded_cgroups.len() as u32),
    ];
    let mut value = [0; size_of::<tc_filter>()];
    for (at, field) in fields {
        value[at..at + 4].copy_from_slice(&field.to_ne_bytes());
    }
    find_map(object, "filter").update(&0u32.to_ne_bytes(), &value, MapFlags::ANY)
}

/// Adds a process to a map of processes, or removes it.
pub(super) fn set_listed(
    object: &Object,
    name: &str,
    pid: Pid,
    listed: bool,
) -> Result<(), libbpf_rs::Error> {
    let map = find_map(object, name);
    let key = pid.0.to_ne_bytes();
    if listed {
        return map.update(&key, &[1], MapFlags::ANY);
    }
    match map.delete(&key) {
        Err(e) if e.kind() == libbpf_rs::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

fn failed(what: &str, source: libbpf_rs::Error) -> OpenError {
    OpenError::Bpf { what: what.to_owned(), source }
}

/// Determines why loading was refused, as far as this process can see.
fn refused(source: libbpf_rs::Error) -> OpenError {
    if source.kind() == libbpf_rs::ErrorKind::PermissionDenied {
        let missing = missing_capabilities(&std::fs::read_to_string("/proc/self/status").unwrap_or_default());
        if !missing.is_empty() {
            return OpenError::Permission { missing: missing.join(","), source };
        }
        let lockdown = std::fs::read_to_string("/sys/kernel/security/lockdown").unwrap_or_default();
        if lockdown.contains("[integrity]") || lockdown.contains("[confidentiality]") {
            return OpenError::Lockdown { mode: lockdown.trim().to_owned(), source };
        }
        return OpenError::Forbidden(source);
    }
    failed("loading the BPF programs", source)
}

/// The capabilities that loading tracing programs needs and that a process with this
/// /proc/PID/status lacks.
///
/// CAP_SYS_ADMIN (21) includes both CAP_PERFMON (38) and CAP_BPF (39): Linux
/// include/uapi/linux/capability.h.
pub(super) fn missing_capabilities(status: &str) -> Vec<&'static str> {
    let effective = status
        .lines()
        .find_map(|l| l.strip_prefix("CapEff:"))
        .and_then(|hex| u64::from_str_radix(hex.trim(), 16).ok())
        .unwrap_or(u64::MAX);
    let has = |bit: u32| effective >> bit & 1 == 1;
    if has(21) {
        return Vec::new();
    }
    [(39, "cap_bpf"), (38, "cap_perfmon")]
        .into_iter()
        .filter(|&(bit, _)| !has(bit))
        .map(|(_, name)| name)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_shape_of_the_kernels_function_has_its_program() {
        let object = ObjectBuilder::default().open_memory(OBJECT).unwrap();
        let names: Vec<_> = object.progs().map(|p| p.name().to_string_lossy().into_owned()).collect();
        for entry in &ENTRIES {
            assert!(names.iter().any(|name| name == entry.program), "{} is not in {names:?}", entry.program);
        }
    }

    #[test]
    fn capabilities_are_read_from_the_effective_set() {
        assert!(missing_capabilities("CapEff:\t000001ffffffffff\n").is_empty());
        assert_eq!(
            missing_capabilities("CapInh:\t0\nCapEff:\t0000000000000000\n"),
            ["cap_bpf", "cap_perfmon"]
        );
        assert_eq!(missing_capabilities("CapEff:\t0000008000000000\n"), ["cap_perfmon"], "bit 39 is cap_bpf");
        assert!(
            missing_capabilities("CapEff:\t0000000000200000\n").is_empty(),
            "cap_sys_admin stands for both"
        );
    }
}
