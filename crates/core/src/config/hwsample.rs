//! The section of the hardware sampler.

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use crate::config::SourceKeys;
use crate::config::schema::{Any, PowerOfTwo};
use crate::section;

/// Whether a source is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Enabled {
    /// No.
    No,
    /// Yes; that it cannot be used is an error.
    Yes,
    /// Where the machine has it.
    Auto,
}

impl From<bool> for Enabled {
    fn from(enabled: bool) -> Enabled {
        if enabled { Enabled::Yes } else { Enabled::No }
    }
}

impl Serialize for Enabled {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Enabled::No => serializer.serialize_bool(false),
            Enabled::Yes => serializer.serialize_bool(true),
            Enabled::Auto => serializer.serialize_str("auto"),
        }
    }
}

impl<'de> Deserialize<'de> for Enabled {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Enabled, D::Error> {
        struct Visitor;
        impl de::Visitor<'_> for Visitor {
            type Value = Enabled;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("true, false or \"auto\"")
            }

            fn visit_bool<E: de::Error>(self, value: bool) -> Result<Enabled, E> {
                Ok(if value { Enabled::Yes } else { Enabled::No })
            }

            fn visit_str<E: de::Error>(self, value: &str) -> Result<Enabled, E> {
                match value {
                    "auto" => Ok(Enabled::Auto),
                    other => Err(E::invalid_value(de::Unexpected::Str(other), &self)),
                }
            }
        }
        deserializer.deserialize_any(Visitor)
    }
}

/// Which sampler is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SamplerName {
    /// What the machine has.
    Auto,
    /// AMD's instruction-based sampling.
    Ibs,
    /// Intel's precise event-based sampling.
    Pebs,
    /// Arm's statistical profiling extension.
    Spe,
    /// The kernel's page faults.
    PageFaults,
    /// The sampler of the lab's emulator, which no real machine has.
    LabRings,
}

/// What Intel PEBS samples.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PebsSamples {
    /// Loads that missed the L3.
    L3Miss,
    /// Loads that took long.
    LoadLatency,
}

section! {
    /// `[source.hwsample]`: accesses sampled by the processor. It has never run on silicon: see the
    /// book's page on sources.
    HwSample {
        /// Use this source: true, false, or "auto" for where the machine has a sampler.
        enabled: Enabled = Enabled::No, "", Any("true, false or \"auto\""), "ours", restart;
        /// The sampler; "page-faults" samples no accesses but the kernel's page faults, which tries
        /// the way of a sample on any machine; "lab-rings" is the lab's emulator, whose samples
        /// name no process.
        sampler: SamplerName = SamplerName::Auto, "", Any("\"auto\", \"ibs\", \"pebs\", \"spe\", \"page-faults\" or \"lab-rings\""), "ours", restart;
        /// What PEBS samples: loads that missed the L3, or loads that took long.
        pebs_samples: PebsSamples = PebsSamples::L3Miss, "", Any("\"l3-miss\" or \"load-latency\""), "ours", restart;
        /// With "load-latency": loads from this many cycles on.
        load_latency_cycles: u16 = 30, "cycles", 3..=65535, "perf mem's default (Linux 6.12 tools/perf)", restart;
        /// Sampling period at first: micro-operations (IBS), misses or slow loads (PEBS),
        /// operations (SPE).
        period: u32 = 10_000, "events", 1..=134_217_712, "S1: sample_period_def", restart;
        /// Shortest sampling period.
        period_min: u32 = 5_000, "events", 1..=134_217_712, "S1: sample_period_min", restart;
        /// Longest sampling period, unless the budget needs a longer one; no shorter than the
        /// shortest.
        period_max: u32 = 20_000, "events", 1..=134_217_712, "S1: sample_period_max", restart;
        /// How much the word of this source counts beside that of others: how many times as well
        /// one knows a page by it as without it, in variances of the logarithm of the time between
        /// accesses.
        weight: u8 = 10, "", 1..=100, "ours: as source.hintfault, by the time between two samples";
        /// CPU time for sampling, in thousandths of that of all sampled CPUs: reading, as measured,
        /// and 2 us for each interrupt, as estimated. Beyond it the period gets longer; of
        /// "lab-rings", whose interrupts cost nothing, less is read.
        cpu_budget_permille: u16 = 10, "1/1000", 1..=1000, "ours", restart;
        /// Size of each CPU's ring; a power of two.
        ring_kib: u32 = 128, "KiB", PowerOfTwo(8..=65536), "ours: 1800 samples", restart;
        /// Size of each CPU's AUX area (Arm SPE); a power of two.
        aux_kib: u32 = 1024, "KiB", PowerOfTwo(64..=65536), "ours: some 16,000 samples", restart;
    }
}

impl SourceKeys for HwSample {
    fn enabled(&self) -> Enabled {
        self.enabled
    }

    fn weight(&self) -> u8 {
        self.weight
    }

    fn instead(&self) -> &'static str {
        "\"auto\""
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_source_is_on_off_or_automatic() {
        let read = |text: &str| serde_json::from_str::<Enabled>(text);
        assert_eq!(read("true").unwrap(), Enabled::Yes);
        assert_eq!(read("false").unwrap(), Enabled::No);
        assert_eq!(read("\"auto\"").unwrap(), Enabled::Auto);
        let error = read("\"yes\"").unwrap_err().to_string();
        assert!(error.contains("expected true, false or \"auto\""), "{error}");
        for value in [Enabled::Yes, Enabled::No, Enabled::Auto] {
            assert_eq!(read(&serde_json::to_string(&value).unwrap()).unwrap(), value);
        }
    }
}
