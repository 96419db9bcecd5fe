//! Whether accesses can be sampled: by the processor (AMD IBS, Intel PEBS, Arm SPE) through
//! perf_event_open(2), or by the lab's emulator.

use thermocline_core::config::{Enabled, SamplerName, Source};

use super::pmu::{NoPmu, Pmu, choose};
use crate::source::{Facts, Probed, SourceStatus, lab_device};

pub(super) fn probe(facts: &mut Facts<'_>) -> Probed {
    if facts.config.source.hwsample.sampler == SamplerName::LabRings {
        return lab_sampler(facts);
    }
    let source = |status, detail: String| Probed::new(Source::HwSample, status, detail);
    let pmu = match choose(facts.root, &facts.config.source.hwsample) {
        Ok(pmu) => pmu,
        Err(NoPmu::File(error)) => {
            facts.failures.push(error.to_string());
            return source(SourceStatus::Unavailable, error.to_string());
        }
        Err(error) => {
            let left = facts.usable.map(|name| format!("; {name} works without")).unwrap_or_default();
            return source(SourceStatus::Unavailable, format!("{error}{left}"));
        }
    };
    let samples = pmu.samples();
    if facts.config.source.hwsample.enabled == Enabled::No {
        let detail = format!("{samples}; switched off, source.hwsample.enabled = \"auto\" reads it");
        return source(SourceStatus::NotRead, detail);
    }
    if !facts.may_sample {
        let detail =
            format!("{samples}; sampling all CPUs needs CAP_PERFMON, or kernel.perf_event_paranoid of -1");
        return source(SourceStatus::Unavailable, detail);
    }
    let untried = if pmu == Pmu::PageFaults { "" } else { "; this code has never run on silicon" };
    source(SourceStatus::Usable, format!("{samples}{untried}"))
}

/// The sampler of the lab's emulator. Its samples name frames and no process, so that frame numbers must be seen.
fn lab_sampler(facts: &Facts<'_>) -> Probed {
    let source = |status, detail: String| Probed::new(Source::HwSample, status, detail);
    let what = "the lab's sampler, which stands in for hardware: accesses that missed, by frame";
    match lab_device::is_there(facts.root) {
        Err(error) => source(SourceStatus::Unavailable, error.to_string()),
        Ok(()) if facts.config.source.hwsample.enabled == Enabled::No => source(
            SourceStatus::NotRead,
            format!("{what}; switched off, source.hwsample.enabled = true reads it"),
        ),
        Ok(()) if !facts.sees_frames => source(
            SourceStatus::Unavailable,
            format!("{what}; finding out whose frames they are needs CAP_SYS_ADMIN"),
        ),
        Ok(()) => source(SourceStatus::Usable, format!("{what}; the reverse map finds out whose they are")),
    }
}
