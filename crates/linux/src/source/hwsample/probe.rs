//! Whether accesses can be sampled: by the processor (AMD IBS, Intel PEBS, Arm SPE) through
//! perf_event_open(2).

use thermocline_core::config::{Enabled, Source};

use super::pmu::{NoPmu, Pmu, choose};
use crate::source::{Facts, Probed, SourceStatus};

pub(super) fn probe(facts: &mut Facts<'_>) -> Probed {
    #[cfg(feature = "lab")]
    if facts.config.source.hwsample.sampler == thermocline_core::config::SamplerName::LabRings {
        return super::lab_rings::probe(facts);
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
