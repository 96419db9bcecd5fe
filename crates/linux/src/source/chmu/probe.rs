//! Whether a memory device has a hot list (CXL 3.2 CHMU; a driver has been proposed, none is in
//! Linux yet).

use thermocline_core::config::Source;

#[cfg(feature = "lab")]
use super::find;
use crate::root::list_optional;
#[cfg(feature = "lab")]
use crate::source::lab_device::{self, NoLabDevice};
use crate::source::{Facts, Probed, SourceStatus};

const NO_DRIVER: &str = "no stock kernel has a driver for a memory device's own list of its hot pages (CXL 3.2 CHMU), and this version does not read \
     the address decode of real devices (/sys/bus/cxl); it has run in the lab only";

pub(super) fn probe(facts: &mut Facts<'_>) -> Probed {
    let source = |status, detail: String| Probed::new(Source::Device, status, detail);
    let devices = facts.root.sys.join("bus/event_source/devices");
    let listed = list_optional(&devices).unwrap_or_else(|error| {
        facts.failures.push(error.to_string());
        None
    });
    let driver = listed.into_iter().flatten().filter(|name| name.starts_with("cxl_hmu")).min();
    #[cfg(feature = "lab")]
    match lab_device::is_there(facts.root) {
        Ok(()) => return labs_list(facts),
        Err(NoLabDevice::NoDevice) => {}
        Err(error) => return source(SourceStatus::Unavailable, error.to_string()),
    }
    match driver {
        None => source(SourceStatus::Unavailable, NO_DRIVER.to_owned()),
        Some(driver) => {
            let detail = format!(
                "{driver} is there, of a driver that is in no stock kernel; this version does not read it"
            );
            source(SourceStatus::NotRead, detail)
        }
    }
}

/// The properties of the lab's device, if present.
#[cfg(feature = "lab")]
fn labs_list(facts: &Facts<'_>) -> Probed {
    let source = |status, detail: String| Probed::new(Source::Device, status, detail);
    let keys = &facts.config.source.chmu;
    let what = "the lab's device, which stands in for CXL 3.2 CHMU: units of its memory that were hot";
    if !keys.enabled {
        let detail = format!("{what}; switched off, source.chmu.enabled = true reads it");
        return source(SourceStatus::NotRead, detail);
    }
    if let Err(why) = find(facts.root) {
        return source(SourceStatus::Unavailable, why.to_string());
    }
    if !facts.sees_frames {
        let detail = format!("{what}; finding out whose they are needs CAP_SYS_ADMIN");
        return source(SourceStatus::Unavailable, detail);
    }
    source(SourceStatus::Usable, format!("{what}; the reverse map finds out whose they are"))
}
