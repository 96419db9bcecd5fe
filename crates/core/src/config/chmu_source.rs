//! The section of the source that reads hot lists of memory devices.

use serde::{Deserialize, Serialize};

use crate::config::schema::{Any, PowerOfTwo};
use crate::config::{Enabled, RuleName, SourceKeys, Taken};
use crate::section;
use crate::units::{Nanos, PAGE_SIZE};

/// When a device lists what is hot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum HotListMode {
    /// At the end of each epoch, with what was counted in it.
    Epoch,
    /// When the threshold is reached; the count then says nothing.
    AlwaysOn,
}

section! {
    /// `[source.chmu]`: hot lists that memory devices keep themselves (CXL 3.2 CHMU). No stock
    /// kernel has a driver for them yet: it has run in the lab only, on the device of the lab's
    /// emulator. Rules adaptive and frequency take them.
    ChmuSource {
        /// Use this source.
        enabled: bool = false, "", Any("true or false"), "ours", restart;
        /// "epoch": counters start at nothing in each epoch, and what is hot is listed at its end;
        /// "always-on": what is hot is listed as soon as it is.
        mode: HotListMode = HotListMode::Epoch, "", Any("\"epoch\" or \"always-on\""), "CXL 3.2: both are its modes", restart;
        /// Memory that has one counter; a power of two. All pages of a larger unit than a page
        /// count as equally hot.
        unit_bytes: u32 = 4096, "bytes", PowerOfTwo(256..=1 << 30), "CXL 3.2: 256 bytes and more; ours: a page", restart;
        /// What is counted so often in an epoch is listed, of one access in `downsampling`.
        threshold: u32 = 16, "counts", 1..=65_535, "ours", restart;
        /// Length of an epoch.
        epoch_ms: u64 = 1000, "ms", 1..=4_095_000, "ours; CXL 3.2: up to 4095 times 1 s", restart;
        /// One access in so many is counted, drawn at random; a power of two.
        downsampling: u32 = 1, "accesses", PowerOfTwo(1..=32_768), "CXL 3.2: 1 to 32768", restart;
        /// How much the word of this source counts beside that of others: how many times as well
        /// one knows a page by it as without it, in variances of the logarithm of the time between
        /// accesses.
        weight: u8 = 100, "", 1..=100, "ours: 1/16 or less, as 16 accesses or more were counted, to 16 would be 256";
        /// Pages of listed units that are looked up and told in a second, at most. What is not read
        /// in time, the device leaves out and counts.
        pages_per_s: u32 = 131_072, "pages/s", 256..=1_000_000_000, "ours: as source.damon", restart;
    }
}

impl ChmuSource {
    /// Base pages of a unit; one where several units lie in a page.
    pub fn unit_pages(&self) -> u64 {
        (u64::from(self.unit_bytes) / PAGE_SIZE).max(1)
    }

    /// Over how long a listed count was counted; none where nobody says.
    pub fn counted_for(&self) -> Option<Nanos> {
        (self.mode == HotListMode::Epoch).then(|| Nanos::from_ms(self.epoch_ms))
    }
}

impl SourceKeys for ChmuSource {
    fn enabled(&self) -> Enabled {
        self.enabled.into()
    }

    fn weight(&self) -> u8 {
        self.weight
    }

    fn taken(&self) -> Option<Taken> {
        Some(("what devices count", RuleName::takes_counts))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;

    #[test]
    fn what_no_device_can_do_is_named() {
        let violations = |change: fn(&mut ChmuSource)| {
            let mut config = Config::default();
            change(&mut config.source.chmu);
            config.check().err().map_or_else(Vec::new, |e| e.0.into_iter().map(|v| v.key).collect::<Vec<_>>())
        };
        assert!(violations(|c| c.enabled = true).is_empty());
        assert_eq!(violations(|c| c.unit_bytes = 128), ["source.chmu.unit_bytes"]);
        assert_eq!(violations(|c| c.unit_bytes = 5000), ["source.chmu.unit_bytes"]);
        assert_eq!(violations(|c| c.downsampling = 3), ["source.chmu.downsampling"]);
        assert_eq!(violations(|c| c.threshold = 0), ["source.chmu.threshold"]);
        assert_eq!(violations(|c| c.epoch_ms = 0), ["source.chmu.epoch_ms"]);
    }

    #[test]
    fn a_unit_is_a_page_at_least_and_an_epoch_is_of_one_mode() {
        let keys = ChmuSource { unit_bytes: 256, ..ChmuSource::default() };
        assert_eq!((keys.unit_pages(), keys.counted_for()), (1, Some(Nanos::from_s(1))));
        let keys = ChmuSource { unit_bytes: 2 << 20, mode: HotListMode::AlwaysOn, ..keys };
        assert_eq!((keys.unit_pages(), keys.counted_for()), (512, None));
    }
}
