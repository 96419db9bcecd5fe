//! Where evidence can come from on this machine.

use std::path::Path;

use thermocline_core::config::{Config, DamonAddresses, Enabled, SamplerName};

use crate::damon::{NotDamon, Spaces, offer_source};
use crate::doctor::Probe;
use crate::doctor::kernel::KernelInfo;
use crate::doctor::look::Look;
use crate::doctor::report::{Finding, Ground, Severity, Source, SourceStatus};
use crate::lists::nodes_text;
use crate::root::exists;
use crate::source::chmu::find as find_hot_list;
use crate::source::damon::event::{self, Format};
use crate::source::hwsample::pmu::{NoPmu, Pmu, choose};
use crate::source::lab_device::{self, NoLabDevice};
use crate::topology::Discovered;

/// What else is known when the sources are looked at.
pub(super) struct Known<'a> {
    pub(super) config: &'a Config,
    pub(super) kernel: &'a KernelInfo,
    pub(super) topology: Option<&'a Discovered>,
    /// What keeps BPF programs from being loaded.
    pub(super) no_bpf: Option<String>,
    /// This process may sample all CPUs.
    pub(super) may_sample: bool,
    /// This process is shown the frame numbers of pages.
    pub(super) sees_frames: bool,
    /// What keeps the kernel's settings from being set as configured.
    pub(super) no_settings: Option<String>,
    /// The kdamonds that are there are those of a thermocline that runs, or was killed.
    pub(super) our_kdamonds: bool,
}

/// All sources, and what stands in the way of `run`; without tiers no source could help.
pub(super) fn sources(
    look: &mut Look<'_>,
    known: &Known<'_>,
    probe: Probe<'_>,
) -> (Vec<Source>, Vec<Finding>) {
    let hintfault = hintfault(look, known, probe);
    let hwsample = hwsample(look, known, hintfault.status == SourceStatus::Usable);
    let list = vec![hintfault, hwsample, damon(look, known), chmu(look, known)];
    let usable = list.iter().any(|s| !s.status.is_refused());
    let tiers = known.topology.is_some_and(|found| found.topology.tiers_with_memory() > 1);
    let findings = match (tiers, usable) {
        (false, _) => Vec::new(),
        (true, false) => {
            vec![Finding::new("sources.none", Severity::Blocker, none_can_be_used(&list, known.config))]
        }
        (true, true) => refused(&list, known.config),
    };
    (list, findings)
}

/// Why no source can be used: what each says that the configuration wants, or hint faults where it wants none.
fn none_can_be_used(list: &[Source], config: &Config) -> String {
    let mut wanted: Vec<&Source> = insisted(list, config).map(|(source, _)| source).collect();
    if wanted.is_empty() {
        wanted.push(&list[0]);
    }
    let each: Vec<_> = wanted.iter().map(|s| format!("{}: {}", s.name, s.detail)).collect();
    format!("no source of evidence can be used; {}", each.join("; "))
}

/// Sources that the configuration insists on, and what it would say instead.
fn insisted<'a>(list: &'a [Source], config: &Config) -> impl Iterator<Item = (&'a Source, &'static str)> {
    let insisted = [
        (config.source.hintfault.enabled, "source.hintfault.enabled = false"),
        (config.source.hwsample.enabled == Enabled::Yes, "source.hwsample.enabled = \"auto\""),
        (config.source.damon.enabled, "source.damon.enabled = false"),
        (config.source.chmu.enabled, "source.chmu.enabled = false"),
    ];
    let wanted = list.iter().zip(insisted).filter(|(_, (insisted, _))| *insisted);
    wanted.map(|(source, (_, instead))| (source, instead))
}

/// Sources that the configuration insists on and that cannot be used, where others could: `run` ends at once.
fn refused(list: &[Source], config: &Config) -> Vec<Finding> {
    insisted(list, config)
        .filter(|(source, _)| source.status.is_refused())
        .map(|(source, instead)| {
            let cause = format!("{} is switched on and cannot be used: {}", source.name, source.detail);
            Finding::new("sources.refused", Severity::Blocker, cause)
                .fix(Ground::OURS, format!("set {instead}"))
        })
        .collect()
}

fn source(name: &'static str, status: SourceStatus, detail: impl Into<String>) -> Source {
    Source { name, status, detail: detail.into(), attach_points: Vec::new() }
}

fn hintfault(look: &mut Look<'_>, known: &Known<'_>, probe: Probe<'_>) -> Source {
    let unavailable = |why: String| source("hintfault", SourceStatus::Unavailable, why);
    let probed = probe(look.root);
    let attach_points = probed.as_ref().cloned().unwrap_or_default();
    let with_points = |s: Source| Source { attach_points: attach_points.clone(), ..s };
    let lacking: Vec<&str> =
        attach_points.iter().filter(|p| p.required && !p.present).map(|p| p.name).collect();
    if known.kernel.numa_balancing.is_none() {
        return with_points(unavailable(
            "this kernel has no NUMA balancing (CONFIG_NUMA_BALANCING)".to_owned(),
        ));
    }
    // A copy may have been made without it; before 6.12 the functions are known to be missing.
    let untold = !look.root.is_live()
        && !known.kernel.is_older_than(6, 12)
        && !exists(&look.root.sys.join("kernel/btf/vmlinux"));
    let untold = untold && probed.is_err();
    if let (Err(why), false) = (&probed, untold) {
        return unavailable(why.clone());
    }
    if !lacking.is_empty() {
        let release = known.kernel.release.as_deref().unwrap_or("unknown");
        return with_points(unavailable(format!(
            "this kernel ({release}) lacks {}; boot Linux 6.12 or later",
            lacking.join(", ")
        )));
    }
    if let Some(why) = known.no_bpf.as_ref().or(known.no_settings.as_ref()) {
        return with_points(unavailable(why.clone()));
    }
    if !known.config.source.hintfault.enabled {
        return with_points(unavailable("switched off by source.hintfault.enabled".to_owned()));
    }
    match reach(known) {
        seen if untold && seen.status == SourceStatus::Usable => source(
            "hintfault",
            SourceStatus::Unknown,
            format!(
                "{}, if this kernel has what BPF programs attach to, which sys/kernel/btf/vmlinux would tell",
                seen.detail
            ),
        ),
        seen => with_points(seen),
    }
}

/// Which nodes hint faults come from, in the mode that will be set.
fn reach(known: &Known<'_>) -> Source {
    let source = |status, detail: String| source("hintfault", status, detail);
    let mode = known.config.kernel.numa_balancing.or(known.kernel.numa_balancing).unwrap_or(0);
    let Some(found) = known.topology else {
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

/// Samples by the processor (AMD IBS, Intel PEBS, Arm SPE) through perf_event_open(2).
fn hwsample(look: &mut Look<'_>, known: &Known<'_>, hint_faults: bool) -> Source {
    if known.config.source.hwsample.sampler == SamplerName::LabRings {
        return lab_sampler(look, known);
    }
    let source = |status, detail: String| source("hwsample", status, detail);
    let pmu = match choose(look.root, &known.config.source.hwsample) {
        Ok(pmu) => pmu,
        Err(NoPmu::File(error)) => {
            look.fail(error.to_string());
            return source(SourceStatus::Unavailable, error.to_string());
        }
        Err(error) => {
            let left = if hint_faults { "; hintfault works without" } else { "" };
            return source(SourceStatus::Unavailable, format!("{error}{left}"));
        }
    };
    let samples = pmu.samples();
    if known.config.source.hwsample.enabled == Enabled::No {
        let detail = format!("{samples}; switched off, source.hwsample.enabled = \"auto\" reads it");
        return source(SourceStatus::NotRead, detail);
    }
    if !known.may_sample {
        let detail =
            format!("{samples}; sampling all CPUs needs CAP_PERFMON, or kernel.perf_event_paranoid of -1");
        return source(SourceStatus::Unavailable, detail);
    }
    let untried = if pmu == Pmu::PageFaults { "" } else { "; this code has never run on silicon" };
    source(SourceStatus::Usable, format!("{samples}{untried}"))
}

/// The sampler of the lab's emulator. Its samples name frames and no process, so that frame numbers must be seen.
fn lab_sampler(look: &mut Look<'_>, known: &Known<'_>) -> Source {
    let source = |status, detail: String| source("hwsample", status, detail);
    let what = "the lab's sampler, which stands in for hardware: accesses that missed, by frame";
    match lab_device::is_there(look.root) {
        Err(error) => source(SourceStatus::Unavailable, error.to_string()),
        Ok(()) if known.config.source.hwsample.enabled == Enabled::No => source(
            SourceStatus::NotRead,
            format!("{what}; switched off, source.hwsample.enabled = true reads it"),
        ),
        Ok(()) if !known.sees_frames => source(
            SourceStatus::Unavailable,
            format!("{what}; finding out whose frames they are needs CAP_SYS_ADMIN"),
        ),
        Ok(()) => source(SourceStatus::Usable, format!("{what}; the reverse map finds out whose they are")),
    }
}

/// Access rates of regions, from kdamonds of ours; those of a thermocline that runs now are not in the way.
fn damon(look: &mut Look<'_>, known: &Known<'_>) -> Source {
    let source = |status, detail: String| source("damon", status, detail);
    let unavailable = |why: String| source(SourceStatus::Unavailable, why);
    let Some(found) = known.topology else {
        return unavailable("the nodes could not be found".to_owned());
    };
    let keys = &known.config.source.damon;
    let watch = match offer_source(look.root, known.config, found) {
        Ok((_, watch)) => watch,
        Err(NotDamon::InUse { .. }) if known.our_kdamonds => match keys.addresses {
            DamonAddresses::Physical => {
                let with_memory = found.topology.nodes.iter().filter(|n| n.capacity_pages > 0);
                Spaces::Nodes(with_memory.map(|n| n.id).collect())
            }
            DamonAddresses::Virtual => Spaces::Processes(keys.processes_max as usize),
        },
        Err(why) => return unavailable(why.to_string()),
    };
    let (what, finds) = match watch {
        Spaces::Nodes(nodes) => {
            let nodes: Vec<u32> = nodes.iter().map(|id| u32::from(id.0)).collect();
            let what = format!("access rates of regions of {}", nodes_text(&nodes));
            (what, "the reverse map finds out whose they are")
        }
        Spaces::Processes(most) => {
            let what = format!("access rates of regions of the {most} largest processes");
            (what, "their pagemaps tell where their pages are")
        }
    };
    if let Err(why) = event::format(look.root)
        .map_err(|e| e.to_string())
        .and_then(|(path, text)| Format::parse(&text).map_err(|cause| format!("{}: {cause}", path.display())))
    {
        return unavailable(why);
    }
    if !keys.enabled {
        let detail = format!("{what}; switched off, source.damon.enabled = true reads them");
        return source(SourceStatus::NotRead, detail);
    }
    if !known.may_sample {
        return unavailable(format!("{what}; hearing of them needs CAP_PERFMON"));
    }
    if !known.sees_frames {
        return unavailable(format!("{what}; finding their pages needs CAP_SYS_ADMIN"));
    }
    source(SourceStatus::Usable, format!("{what}; {finds}"))
}

/// Hot lists kept by the memory device itself (CXL 3.2 CHMU; a driver has been proposed, none is in Linux yet).
fn chmu(look: &mut Look<'_>, known: &Known<'_>) -> Source {
    let source = |status, detail: String| source("chmu", status, detail);
    let devices = look.root.sys.join("bus/event_source/devices");
    let driver = look.list(&devices, "cxl_hmu").first().map(|path| name(path));
    let keys = &known.config.source.chmu;
    match (lab_device::is_there(look.root), driver) {
        (Ok(()), _) => {}
        (Err(NoLabDevice::NoDevice), None) => {
            let detail = "no stock kernel has a driver for a memory device's own list of its hot pages (CXL 3.2 CHMU), and this version does not read the \
                          address decode of real devices (/sys/bus/cxl); it has run in the lab only";
            return source(SourceStatus::Unavailable, detail.to_owned());
        }
        (Err(NoLabDevice::NoDevice), Some(driver)) => {
            let detail = format!(
                "{driver} is there, of a driver that is in no stock kernel; this version does not read it"
            );
            return source(SourceStatus::NotRead, detail);
        }
        (Err(error), _) => return source(SourceStatus::Unavailable, error.to_string()),
    }
    let what = "the lab's device, which stands in for CXL 3.2 CHMU: units of its memory that were hot";
    if !keys.enabled {
        let detail = format!("{what}; switched off, source.chmu.enabled = true reads it");
        return source(SourceStatus::NotRead, detail);
    }
    if let Err(why) = find_hot_list(look.root) {
        return source(SourceStatus::Unavailable, why.to_string());
    }
    if !known.sees_frames {
        let detail = format!("{what}; finding out whose they are needs CAP_SYS_ADMIN");
        return source(SourceStatus::Unavailable, detail);
    }
    source(SourceStatus::Usable, format!("{what}; the reverse map finds out whose they are"))
}

fn name(path: &Path) -> String {
    path.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default()
}
