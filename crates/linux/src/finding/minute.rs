//! A minute of the daemon, in the figures by which findings are judged.

use thermocline_core::units::Nanos;

/// With less memory in use on lower tiers than this, in MiB, a lack of evidence is normal.
pub const LOWER_MIB_MIN: u64 = 64;

/// A full minute.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Minute {
    /// The open sources.
    pub sources: Vec<SourceMinute>,
    /// Memory in use on lower tiers at its end, MiB.
    pub lower_mib: u64,
    /// CPU time of programs, without the daemon; `None` if it is not known.
    pub programs_cpu: Option<Nanos>,
    /// Candidates that were refused or expired because the top tier had no room.
    pub no_room: u64,
    /// Why nothing was achieved, if nothing was.
    pub stuck: Option<Stuck>,
}

/// What a source gave in a minute.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SourceMinute {
    /// Its name in the configuration.
    pub name: &'static str,
    /// Pieces of evidence that came.
    pub came: u64,
    /// Pieces that were lost.
    pub lost: u64,
    /// For hint faults: records of the kernel's scans.
    pub scans: Option<u64>,
}

/// The reason of a minute without any evidence.
pub const NO_EVIDENCE: &str = "no_evidence";

/// Why a minute came to nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stuck {
    /// The label that nearly all ended with: of a refusal or an outcome, `out_of_scope` or
    /// [`NO_EVIDENCE`].
    pub reason: &'static str,
    /// The same as a sentence, with the remedy.
    pub sentence: String,
}
