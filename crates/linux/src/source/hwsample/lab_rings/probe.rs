//! Whether the lab's sampler is present.

use thermocline_core::config::{Enabled, Source};

use crate::source::{Facts, Probed, SourceStatus, lab_device};

/// Its samples name frames and no process, so frame numbers must be visible.
pub(in crate::source::hwsample) fn probe(facts: &Facts<'_>) -> Probed {
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
