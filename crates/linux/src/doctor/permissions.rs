//! What this process may do.

use std::path::Path;

use rustix::fs::{Access, access};
use thermocline_core::config::Config;

use crate::descriptors;
use crate::doctor::report::Permission;
use crate::finding::{Finding, Ground, Kind, Look};

/// A capability, its bit in `CapEff` (Linux include/uapi/linux/capability.h) and what needs it.
struct Need {
    name: &'static str,
    bit: u32,
    needed_for: &'static str,
}

const CAP_SYS_ADMIN: u32 = 21;
const CAP_PERFMON: u32 = 38;
const CAP_BPF: u32 = 39;

const NEEDS: [Need; 5] = [
    Need { name: "CAP_BPF", bit: CAP_BPF, needed_for: "loading the programs that see hint faults" },
    Need {
        name: "CAP_PERFMON",
        bit: CAP_PERFMON,
        needed_for: "letting those programs read kernel memory, and sampling",
    },
    Need { name: "CAP_SYS_NICE", bit: 23, needed_for: "moving pages that several processes map" },
    Need { name: "CAP_SYS_PTRACE", bit: 19, needed_for: "moving pages of other users' processes" },
    Need {
        name: "CAP_SYS_ADMIN",
        bit: CAP_SYS_ADMIN,
        needed_for: "setting kernel.numa_balancing, and page frame numbers in pagemap",
    },
];

/// The permissions of this process.
pub(super) struct Permissions {
    pub(super) list: Vec<Permission>,
    /// What keeps BPF programs from being loaded.
    pub(super) no_bpf: Option<String>,
    /// It may sample what runs on all CPUs, with physical addresses.
    pub(super) may_sample: bool,
    /// It is shown the frame numbers of pages.
    pub(super) sees_frames: bool,
    pub(super) findings: Vec<Finding>,
}

/// A limit of file descriptors that is too low for what `run` opens.
pub(super) fn descriptors(look: &mut Look<'_>, config: &Config) -> Option<Finding> {
    let limits = look.text(&look.root.proc.join("self/limits"))?;
    let needed = descriptors::needed(look.root, config);
    let why = descriptors::check(needed, descriptors::hard_limit(&limits)).err()?;
    Some(Finding::new(Kind::PermissionsDescriptors, format!("`run` refuses to start: {why}")))
}

/// Looks at this process's capabilities and at the files that `run` would write.
pub(super) fn permissions(look: &mut Look<'_>, lockdown: Option<&str>, writes: &[&Path]) -> Permissions {
    let status = look.text(&look.root.proc.join("self/status")).unwrap_or_default();
    let effective = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    let effective = effective.and_then(|hex| u64::from_str_radix(hex.trim(), 16).ok());
    // A folder without it was copied by a user without these permissions.
    let unknown = effective.is_none() && !look.root.is_live();
    let has = |bit: u32| unknown || effective.unwrap_or(0) & (1 << bit) != 0;
    // CAP_SYS_ADMIN stands in for the two that were split from it (Linux
    // include/linux/capability.h).
    let held = |bit: u32| has(bit) || (matches!(bit, CAP_BPF | CAP_PERFMON) && has(CAP_SYS_ADMIN));
    let mut list: Vec<Permission> = NEEDS
        .iter()
        .map(|n| Permission { name: n.name, held: (!unknown).then(|| held(n.bit)), needed_for: n.needed_for })
        .collect();
    // Write access to a copy says nothing about the original.
    let live = look.root.is_live();
    let refused: Vec<&Path> =
        writes.iter().copied().filter(|p| live && access(*p, Access::WRITE_OK).is_err()).collect();
    list.push(Permission {
        name: "kernel settings",
        held: live.then_some(refused.is_empty()),
        needed_for: "writing the settings that run changes",
    });
    let uid = status.lines().find_map(|line| line.strip_prefix("Uid:")?.split_ascii_whitespace().nth(1));
    let root = uid == Some("0");
    let mut findings = Vec::new();
    let missing: Vec<&str> = NEEDS.iter().filter(|n| !held(n.bit)).map(|n| n.name).collect();
    if !missing.is_empty() {
        let cause = format!("this process lacks {}", missing.join(", "));
        findings.push(
            Finding::new(Kind::PermissionsMissing, cause)
                .run(Ground::seen(!root), "run as root", "sudo thermocline doctor")
                .fix(
                    Ground::seen(root),
                    "give them to it: root has given them up here, as a container or a unit with CapabilityBoundingSet does",
                ),
        );
    }
    if !refused.is_empty() {
        let paths: Vec<String> = refused.iter().map(|p| p.display().to_string()).collect();
        let cause = format!("`run` would write to {}, and this process cannot", paths.join(" and "));
        findings.push(
            Finding::new(Kind::PermissionsReadOnly, cause)
                .fix(Ground::seen(!root), "run as root")
                .fix(Ground::seen(root), "run outside of containers, which mount /proc/sys read-only"),
        );
    }
    if foreign_user_namespace(look) {
        let cause = "this process is in a user namespace: its capabilities do not count for the machine";
        findings.push(
            Finding::new(Kind::PermissionsUserNamespace, cause)
                .fix(Ground::OURS, "run outside of the container, as root of the machine"),
        );
    }
    let mode = lockdown.filter(|&mode| mode == "confidentiality");
    if let Some(mode) = mode {
        let cause = format!("the kernel is locked down ({mode}): BPF programs may not read its memory");
        findings.push(Finding::new(Kind::PermissionsLockdown, cause).fix(
            Ground::seen(look.booted("lockdown=confidentiality")),
            "boot with lockdown=integrity or without lockdown",
        ));
    }
    let caps: Vec<&str> =
        NEEDS.iter().filter(|n| n.bit >= CAP_PERFMON && !held(n.bit)).map(|n| n.name).collect();
    let no_bpf = match (caps.is_empty(), mode) {
        (false, _) => Some(format!("this process lacks {}", caps.join(" and "))),
        (true, Some(mode)) => Some(format!("the kernel is locked down ({mode})")),
        (true, None) => None,
    };
    let paranoid = look.number::<i32>(&look.root.proc.join("sys/kernel/perf_event_paranoid"));
    let may_sample = held(CAP_PERFMON) || paranoid == Some(-1);
    Permissions { list, no_bpf, may_sample, sees_frames: has(CAP_SYS_ADMIN), findings }
}

/// Whether user numbers are mapped here: only the initial namespace maps all 2^32 - 1 to
/// themselves.
fn foreign_user_namespace(look: &mut Look<'_>) -> bool {
    let map = look.text(&look.root.proc.join("self/uid_map"));
    map.is_some_and(|map| !map.split_ascii_whitespace().eq(["0", "0", "4294967295"]))
}
