//! What the kernel's BTF says about hint faults: which attach points exist, and where a folio
//! stores its node.

use super::btf::Btf;

/// Something in the kernel that this source needs or can use.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct AttachPoint {
    /// A function, tracepoint or struct field of the kernel.
    pub name: &'static str,
    /// Whether this kernel has it in a form that we can use.
    pub present: bool,
    /// Whether the source works without it.
    pub required: bool,
    /// What it is needed for.
    pub why_needed: &'static str,
}

/// One form of the function in which kernels count hint faults, for PTEs and PMDs alike. A program
/// that watches it sees the faults that `/proc/vmstat` counts.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Entry {
    /// The BPF program for it.
    pub(super) program: &'static str,
    /// The kernel's function.
    function: &'static str,
    /// The names of its first parameters. They determine which program fits.
    params: [&'static str; 3],
    /// Whether it is passed the entry that faulted, which contains the frame. If not, the frame is
    /// computed from the page's place in the kernel's array of pages.
    has_entry: bool,
}

/// All known forms, newest first, with the kernels that have them. The form is determined from the
/// kernel's BTF, not from its version, because distributions backport changes.
pub(super) const ENTRIES: [Entry; 4] = [
    // Linux 6.12 and later.
    Entry {
        program: "fault_check",
        function: "numa_migrate_check",
        params: ["folio", "vmf", "addr"],
        has_entry: true,
    },
    // Until Linux 6.11.
    Entry {
        program: "fault_prep_vmf",
        function: "numa_migrate_prep",
        params: ["folio", "vmf", "addr"],
        has_entry: true,
    },
    // From Linux 6.7 on.
    Entry {
        program: "fault_prep_folio",
        function: "numa_migrate_prep",
        params: ["folio", "vma", "addr"],
        has_entry: false,
    },
    // Until Linux 6.6.
    Entry {
        program: "fault_prep_page",
        function: "numa_migrate_prep",
        params: ["page", "vma", "addr"],
        has_entry: false,
    },
];

impl Entry {
    /// The form that a kernel has.
    pub(super) fn of(btf: &Btf) -> Option<&'static Entry> {
        let has = |e: &&Entry| btf.function(e.function).is_some_and(|params| params.starts_with(&e.params));
        ENTRIES.iter().find(has)
    }
}

/// Checks every attach point and field against a kernel's BTF.
pub fn probe(btf: &Btf) -> Vec<AttachPoint> {
    let function = |name, shapes: &[&[&str]], required, why_needed| {
        let has = |have: Vec<&str>| shapes.iter().any(|params| have.starts_with(params));
        AttachPoint { name, present: btf.function(name).is_some_and(has), required, why_needed }
    };
    let point = |name, present, required, why_needed| AttachPoint { name, present, required, why_needed };
    let entry = Entry::of(btf);
    let mut points = vec![
        point(
            entry.map_or("numa_migrate_check or numa_migrate_prep", |entry| entry.function),
            entry.is_some(),
            true,
            "sees every hint fault",
        ),
        function("change_prot_numa", &[&["vma", "addr", "end"]], true, "sees every range that a scan marks"),
        function(
            "flush_tlb_batched_pending",
            &[&["mm"]],
            false,
            "tells how far a scan has come: without it, time is taken to pass evenly over its range",
        ),
        point(
            "sched_process_exit",
            btf.has_tracepoint("sched_process_exit"),
            true,
            "forgets a process when it ends",
        ),
        point(
            "sched_process_exec",
            btf.has_tracepoint("sched_process_exec"),
            true,
            "forgets a process's memory when it starts another program",
        ),
        match entry.map(|entry| entry.params[0]) {
            Some("page") => point("page.flags", btf.has_field("page", "flags"), true, "the node of the page"),
            _ => point("folio.flags", btf.has_field("folio", "flags"), true, "the node of the page"),
        },
        point(
            "mm_struct.owner",
            btf.has_field("mm_struct", "owner"),
            false,
            "names the process when another one faults in its memory (CONFIG_MEMCG)",
        ),
        function(
            "should_numa_migrate_memory",
            &[&["p", "folio"], &["p", "page"]],
            false,
            "the kernel's own stamp, which only lab tests compare with",
        ),
    ];
    if entry.is_none_or(|entry| entry.has_entry) {
        let entry = btf.has_field("vm_fault", "orig_pte");
        points.push(point("vm_fault.orig_pte", entry, true, "the entry that faulted, and so the frame"));
    }
    points
}

/// Where the flags word of a folio stores the node and, for memory below the top tier, the time of
/// the last scan.
///
/// From the top bit down the fields are node, zone, last CPU and pid (Linux 6.12
/// include/linux/page-flags-layout.h with SPARSEMEM_VMEMMAP, which x86-64 always has).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FolioFlags {
    /// The node is `flags >> node_shift`.
    pub node_shift: u32,
    /// The stamp is `flags >> stamp_shift & stamp_mask`; absent if the kernel stores it elsewhere.
    pub stamp: Option<(u32, u64)>,
}

/// Bits of the pid in the last-CPU-and-pid field (LAST__PID_SHIFT, Linux 6.12
/// include/linux/page-flags-layout.h).
const LAST_PID_BITS: u32 = 8;

impl FolioFlags {
    /// Derives the layout from the sizes of arrays in BTF; `None` if the kernel's BTF lacks them.
    pub fn from_btf(btf: &Btf) -> Option<FolioFlags> {
        let zones = btf.enum_value("zone_type", "__MAX_NR_ZONES")?;
        // A zone list has one entry for each zone of each node, and a terminating one.
        let nodes = btf.array_len("zonelist", "_zonerefs")?.checked_sub(1)?.checked_div(zones)?;
        let cpus = btf.array_len("cpumask", "bits")?.checked_mul(u64::BITS)?;
        FolioFlags::of(nodes, zones, cpus, btf.has_field("page", "_last_cpupid"))
    }

    fn of(nodes: u32, zones: u32, cpus: u32, stamp_elsewhere: bool) -> Option<FolioFlags> {
        let bits = |count: u32| count.checked_next_power_of_two().map(u32::trailing_zeros);
        let node_shift = u64::BITS.checked_sub(bits(nodes)?)?;
        let stamp_bits = LAST_PID_BITS + bits(cpus)?;
        let stamp_shift = node_shift.checked_sub(bits(zones)?).and_then(|s| s.checked_sub(stamp_bits));
        let stamp = stamp_shift.filter(|_| !stamp_elsewhere).map(|shift| (shift, (1 << stamp_bits) - 1));
        // A machine with one node has no node bits. A shift by 64 is undefined; the top bit is 0 in
        // this case.
        Some(FolioFlags { node_shift: node_shift.min(u64::BITS - 1), stamp })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::hintfault::btf::VMLINUX;
    use std::collections::BTreeSet;
    use std::path::Path;

    #[test]
    fn debians_kernels_keep_the_node_in_the_top_ten_bits() {
        // 1024 nodes, 5 zones (DMA, DMA32, NORMAL, MOVABLE, DEVICE), 8192 CPUs: 64 - 10 = 54; 54 -
        // 3 - (8 + 13) = 30.
        let flags = FolioFlags::of(1024, 5, 8192, false).unwrap();
        assert_eq!(flags, FolioFlags { node_shift: 54, stamp: Some((30, (1 << 21) - 1)) });
    }

    #[test]
    fn a_stamp_beside_the_flags_or_a_single_node_are_no_error() {
        assert_eq!(FolioFlags::of(64, 4, 64, true).unwrap().stamp, None);
        assert_eq!(FolioFlags::of(1, 4, 64, false).unwrap().node_shift, 63);
    }

    /// All parameters of the function in the kernels that pass a page, a folio, or a folio with the
    /// fault, and those of its successor.
    const PAGE: &[&str] = &["page", "vma", "addr", "page_nid", "flags"];
    const FOLIO: &[&str] = &["folio", "vma", "addr", "page_nid", "flags"];
    const FAULT: &[&str] = &["folio", "vmf", "addr", "page_nid", "flags"];
    const CHECK: &[&str] = &["folio", "vmf", "addr", "flags", "writable", "last_cpupid"];

    /// The functions that kernels have had, and the program for each.
    const KERNELS: [(&str, &str, &[&str], &str); 8] = [
        ("5.15", "numa_migrate_prep", PAGE, "fault_prep_page"),
        ("6.1", "numa_migrate_prep", PAGE, "fault_prep_page"),
        ("6.6", "numa_migrate_prep", PAGE, "fault_prep_page"),
        ("6.7", "numa_migrate_prep", FOLIO, "fault_prep_folio"),
        ("6.11", "numa_migrate_prep", FAULT, "fault_prep_vmf"),
        ("6.12", "numa_migrate_check", CHECK, "fault_check"),
        ("6.18", "numa_migrate_check", CHECK, "fault_check"),
        ("7.2", "numa_migrate_check", CHECK, "fault_check"),
    ];

    #[test]
    fn each_kernel_has_the_program_for_its_shape() {
        for (release, function, params, program) in KERNELS {
            let btf = Btf::of_functions(&[("do_exit", &["code"]), (function, params)]);
            let entry = Entry::of(&btf).unwrap_or_else(|| panic!("nothing for {release}"));
            assert_eq!((entry.program, entry.function), (program, function), "{release}");
            assert_eq!(entry.has_entry, params[1] == "vmf", "{release}: the entry is in vm_fault");
            assert_eq!(probe(&btf)[0].name, function, "{release}");
            assert!(probe(&btf)[0].present, "{release}");
            let needs_entry = probe(&btf).iter().any(|point| point.name == "vm_fault.orig_pte");
            assert_eq!(needs_entry, entry.has_entry, "{release}");
        }
        let tried: BTreeSet<&str> = KERNELS.iter().map(|kernel| kernel.3).collect();
        assert_eq!(tried, ENTRIES.iter().map(|entry| entry.program).collect(), "a shape is not tried");
    }

    #[test]
    fn a_shape_that_nobody_knows_is_none_and_both_functions_are_named() {
        for functions in [
            vec![],
            vec![("numa_migrate_prep", &["vma", "page", "addr"][..])],
            vec![("numa_migrate_check", &["page", "vma", "addr"][..])],
            vec![("numa_migrate_check", &["folio", "vmf"][..])],
        ] {
            let points = probe(&Btf::of_functions(&functions));
            assert!(!points[0].present && points[0].required, "{functions:?}");
            assert_eq!(points[0].name, "numa_migrate_check or numa_migrate_prep");
        }
    }

    #[test]
    fn the_running_kernel_answers_every_probe() {
        let btf = match Btf::read(Path::new(VMLINUX)) {
            Ok(btf) => btf,
            Err(error) => return eprintln!("skipped: {error}"),
        };
        let points = probe(&btf);
        for point in &points {
            eprintln!("{}: present={} required={}", point.name, point.present, point.required);
        }
        let tracepoints = points.iter().filter(|p| p.name.starts_with("sched_process"));
        assert_eq!(tracepoints.filter(|p| p.present).count(), 2);
    }
}
