//! Whether hint faults can be observed, and on which nodes.

use thermocline_core::config::Source;

use crate::lists::nodes_text;
use crate::root::exists;
use crate::source::{Facts, Probed, SourceStatus};

pub(super) fn probe(facts: &mut Facts<'_>) -> Probed {
    let unavailable = |why: String| Probed::new(Source::HintFault, SourceStatus::Unavailable, why);
    let probed = &facts.attach_points;
    let attach_points = probed.clone().unwrap_or_default();
    let with_points = |s: Probed| Probed { attach_points: attach_points.clone(), ..s };
    let lacking: Vec<&str> =
        attach_points.iter().filter(|p| p.required && !p.present).map(|p| p.name).collect();
    if facts.numa_balancing.is_none() {
        return with_points(unavailable(
            "this kernel has no NUMA balancing (CONFIG_NUMA_BALANCING)".to_owned(),
        ));
    }
    // A copy of a machine's files may lack the BTF.
    let untold = !facts.root.is_live() && !exists(&facts.root.sys.join("kernel/btf/vmlinux"));
    let untold = untold && probed.is_err();
    if let (Err(why), false) = (probed, untold) {
        return unavailable(why.clone());
    }
    if !lacking.is_empty() {
        let release = facts.release.unwrap_or("unknown");
        return with_points(unavailable(format!(
            "this kernel ({release}) lacks {}, or has it in a shape that is not known here, or inlined; boot a \
             distribution's kernel of 6.1 or later, or use another source",
            lacking.join(", ")
        )));
    }
    if let Some(why) = facts.no_bpf.as_ref().or(facts.no_settings.as_ref()) {
        return with_points(unavailable(why.clone()));
    }
    if !facts.config.source.hintfault.enabled {
        return with_points(unavailable("switched off by source.hintfault.enabled".to_owned()));
    }
    match reach(facts) {
        seen if untold && seen.status == SourceStatus::Usable => Probed::new(
            Source::HintFault,
            SourceStatus::Unknown,
            format!(
                "{}, if this kernel has what BPF programs attach to, which sys/kernel/btf/vmlinux would tell",
                seen.detail
            ),
        ),
        seen => with_points(seen),
    }
}

/// The nodes on which hint faults occur, in the mode that will be set.
fn reach(facts: &Facts<'_>) -> Probed {
    let source = |status, detail: String| Probed::new(Source::HintFault, status, detail);
    let mode = facts.config.kernel.numa_balancing.or(facts.numa_balancing).unwrap_or(0);
    let Some(found) = facts.topology else {
        return source(SourceStatus::Unavailable, "the nodes could not be found".to_owned());
    };
    let with_memory = found.topology.nodes.iter().filter(|n| n.capacity_pages > 0);
    let lower: Vec<u32> =
        with_memory.filter(|n| !found.kernel_top.contains(&n.id)).map(|n| u32::from(n.id.0)).collect();
    match mode {
        0 => source(
            SourceStatus::Unavailable,
            "kernel.numa_balancing is 0 and the configuration leaves it so: the kernel scans nothing"
                .to_owned(),
        ),
        2 if lower.is_empty() => source(
            SourceStatus::Unavailable,
            "no node is below the kernel's top tier, and in tiering mode the kernel scans no other"
                .to_owned(),
        ),
        2 => source(SourceStatus::Usable, format!("accesses to pages of {}", nodes_text(&lower))),
        mode => source(
            SourceStatus::Usable,
            format!(
                "accesses to pages of all nodes; in mode {mode} the kernel moves pages towards the accessing CPU too"
            ),
        ),
    }
}
