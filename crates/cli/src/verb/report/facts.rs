//! All that a report is about.

use std::collections::BTreeMap;
use std::time::Duration;

use thermocline_core::access::Source;
use thermocline_core::config::Config;
use thermocline_core::label::Label;
use thermocline_core::refusal::RefusalReason;
use thermocline_core::topology::Topology;
use thermocline_core::units::{Nanos, ScopeId};
use thermocline_trace::digest::{BINS, Bins, Digest, digest};
use thermocline_trace::reader::Recording;

use super::counted::{Counted, counted};
use super::place::Daemon;
use super::reach::Reach;
use crate::verb::plan::{Outline, outline};

/// Pieces of evidence beyond which heat is not estimated: that takes memory for each of them.
const PLANNED_MAX: u64 = 20_000_000;
/// With fewer samples of memory than this their share says little, and is not shown.
const SAMPLES_MIN: u64 = 400;
/// Of 95 in 100 samples of a size the share is within so many standard deviations.
const SPREAD: f64 = 1.96;

/// A count of something that kept pages from moving.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// `refused`, `held`, `expired` or `failed`.
    pub what: &'static str,
    /// The reason or the outcome.
    pub reason: &'static str,
    /// How often.
    pub count: u64,
}

/// What a recording says, and why it does not say the rest.
#[derive(Debug)]
pub struct Facts {
    /// Where it is.
    pub place: String,
    /// What of the recording is shown, and when that was.
    pub reach: Reach,
    /// What it says about itself.
    pub settings: BTreeMap<String, String>,
    /// The format that it was imported from, if it was.
    pub imported: Option<String>,
    /// What its times are, if they are no time.
    pub untimed: Option<String>,
    /// The machine.
    pub topology: Topology,
    /// The configuration, or why it is not known.
    pub config: Result<Config, String>,
    /// Its sums.
    pub digest: Digest,
    /// The engine's counters, or why they are not known.
    pub counted: Result<Counted, String>,
    /// What each size of DRAM would give, or why that is not known.
    pub plan: Result<Outline, String>,
    /// Files that were left out.
    pub left_out: Vec<String>,
}

impl Facts {
    /// Reads a recording, or of the last part of it, if only that is to be shown. `daemon` is what
    /// the one that makes it says.
    ///
    /// # Errors
    /// Its times are no time, so that it has no last part of that length; or nothing of that part
    /// can be read.
    pub fn of(whole: &Recording, last: Option<Duration>, daemon: Option<&Daemon>) -> anyhow::Result<Facts> {
        let part;
        let recording = match last {
            None => whole,
            Some(_) if whole.untimed().is_some() => {
                anyhow::bail!("the recording has an order and no times; leave --last out")
            }
            Some(last) => {
                part = whole.last(Nanos(u64::try_from(last.as_nanos()).unwrap_or(u64::MAX)))?;
                &part
            }
        };
        let digest = digest(recording);
        let pieces = recording.parts().iter().fold(0u64, |sum, part| sum.saturating_add(part.pieces));
        let plan = match pieces {
            0..=PLANNED_MAX => outline(recording),
            _ => Err(format!(
                "it has {pieces} pieces of evidence, which `thermocline plan` may be asked about"
            )),
        };
        let counted = counted(whole, digest.span, recording.from());
        let left_out = recording.left_out().iter().map(ToString::to_string);
        Ok(Facts {
            reach: Reach::of(whole, recording, last, daemon),
            place: recording.folder().display().to_string(),
            settings: recording.settings().clone(),
            imported: recording.imported().map(str::to_owned),
            untimed: recording.untimed().map(str::to_owned),
            topology: recording.topology().clone(),
            config: recording.config().map_err(|damage| damage.what),
            left_out: left_out.chain(digest.damages.0.iter().cloned()).collect(),
            digest,
            counted,
            plan,
        })
    }

    /// A setting of the recording.
    pub fn setting(&self, key: &str) -> Option<&str> {
        self.settings.get(key).map(String::as_str)
    }

    /// Seconds that it covers, if its times are time.
    pub fn seconds(&self) -> Option<f64> {
        self.untimed.is_none().then(|| self.digest.span.seconds())
    }

    /// Bytes of a page.
    pub fn page_bytes(&self) -> u64 {
        self.topology.page_bytes.bytes()
    }

    /// Base pages demoted, by interval: by moves and by demands.
    pub fn demoted(&self) -> Bins {
        let flows = &self.digest.flows;
        let mut out = flows.demoted.clone();
        (0..BINS).for_each(|bin| out.add(bin, flows.reclaimed.counts()[bin]));
        out
    }

    /// Whether anything of moves is recorded: an imported recording says nothing of them.
    pub fn says_moves(&self) -> bool {
        self.imported.is_none()
    }

    /// The name of a scope, as the configuration at the beginning has it.
    pub fn scope(&self, scope: ScopeId) -> String {
        let named = |place: usize| {
            let scope = self.config.as_ref().ok()?.scope.get(place)?;
            (!scope.name.is_empty()).then(|| scope.name.clone())
        };
        match usize::from(scope.0).checked_sub(1) {
            None => "default".to_owned(),
            Some(place) => named(place).unwrap_or_else(|| format!("number {}", scope.0)),
        }
    }

    /// The share of the accesses that DRAM served, with its uncertainty and the samples that it is
    /// of.
    ///
    /// # Errors
    /// Why it is not known.
    pub fn served(&self) -> Result<(f64, f64, u64), String> {
        let seen = |source| self.digest.given(source).map_or([0; 3], |given| given.seen);
        let given = self.digest.given(Source::HwSample).cloned().unwrap_or_default();
        let [top, lower, unknown] = given.seen;
        if top + lower + unknown == 0 {
            return Err(match () {
                () if seen(Source::HintFault) != [0; 3] => "hint faults do not see accesses to DRAM",
                () if self.digest.given(Source::Damon).is_some_and(|given| given.pieces.sum() > 0) => {
                    "DAMON sees whether memory is accessed, and not how often"
                }
                () => "no source saw accesses to DRAM",
            }
            .to_owned());
        }
        if top + lower == 0 {
            return Err("the samples do not say on which node a page was".to_owned());
        }
        // Samples of the top tier are evidence, and recorded, only for a rule that balances it.
        if !self.config.as_ref().is_ok_and(|config| config.rule.balance.enabled) {
            return Err("samples of accesses to DRAM are not recorded".to_owned());
        }
        let all = top + lower;
        if all < SAMPLES_MIN {
            return Err(format!("{all} samples of memory are too few to say it"));
        }
        // The sampler's period changes, so that a sample may stand for more accesses than another.
        let stand_for: f64 = given.stand_for.iter().sum();
        let share = given.stand_for[0] / stand_for;
        let alike = stand_for * stand_for / given.squares;
        Ok((share, SPREAD * (share * (1.0 - share) / alike).sqrt(), all))
    }

    /// What kept pages from moving, the most frequent first: as the engine counted it, or else as
    /// far as decisions are recorded.
    pub fn refusals(&self) -> Vec<Refusal> {
        let mut out: Vec<Refusal> = Vec::new();
        let mut add = |what, reason, count| {
            if count > 0 {
                out.push(Refusal { what, reason, count });
            }
        };
        match &self.counted {
            Ok(Counted { counters, .. }) => {
                let all = [
                    ("refused", &counters.refused),
                    ("held", &counters.held),
                    ("expired", &counters.expired),
                ];
                for (what, by) in all {
                    by.iter().for_each(|(reason, count)| add(what, reason.name(), count));
                }
                counters.failed.iter().for_each(|(outcome, count)| add("failed", outcome.name(), count));
            }
            Err(_) => {
                for ((what, reason), count) in &self.digest.decided.kinds {
                    if matches!(*what, "refused" | "held" | "expired" | "failed") {
                        add(what, reason.unwrap_or(RefusalReason::Expired.name()), *count);
                    }
                }
            }
        }
        out.sort_by_key(|refusal| std::cmp::Reverse(refusal.count));
        out
    }

    /// The reason for which most candidates were let go, how many, and how many there were in all.
    pub fn held_back(&self) -> Option<(RefusalReason, u64, u64)> {
        let mut sums: BTreeMap<&str, u64> = BTreeMap::new();
        for refusal in self.refusals() {
            if matches!(refusal.what, "refused" | "expired") {
                *sums.entry(refusal.reason).or_default() += refusal.count;
            }
        }
        let all = sums.values().sum();
        let (reason, count) = sums.into_iter().max_by_key(|(_, count)| *count)?;
        Some((RefusalReason::named(reason)?, count, all))
    }
}
