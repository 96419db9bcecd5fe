//! The sources of evidence on this machine.

use thermocline_core::config::{Config, Enabled};

use crate::finding::{Finding, Ground, Kind, Look};
use crate::source::{Facts, Probed, ROWS, SourceStatus, one_tier};

/// All sources, and blockers of `run`; without tiers no source could help it.
pub(super) fn sources(look: &mut Look<'_>, facts: &mut Facts<'_>) -> (Vec<Probed>, Vec<Finding>) {
    let mut list = Vec::new();
    for row in ROWS {
        let probed = (row.probe)(facts);
        if probed.status == SourceStatus::Usable {
            facts.usable = facts.usable.or(Some(probed.name));
        }
        list.push(probed);
    }
    facts.failures.drain(..).for_each(|why| look.fail(why));
    let usable = list.iter().any(|s| !s.status.is_refused());
    let tiers = facts.topology.is_some_and(|found| found.topology.tiers_with_memory() > 1);
    let findings = match (tiers || one_tier::is_watched(facts.config), usable) {
        (false, _) => Vec::new(),
        (true, false) => {
            vec![Finding::new(Kind::SourcesNone, none_can_be_used(&list, facts.config))]
        }
        (true, true) => refused(&list, facts.config),
    };
    (list, findings)
}

/// Why no source can be used: the reason of each configured source, or of hint faults if none is
/// configured.
fn none_can_be_used(list: &[Probed], config: &Config) -> String {
    let mut wanted: Vec<&Probed> = insisted(list, config).map(|(source, _)| source).collect();
    if wanted.is_empty() {
        wanted.push(&list[0]);
    }
    let each: Vec<_> = wanted.iter().map(|s| format!("{}: {}", s.name, s.detail)).collect();
    format!("no source of evidence can be used; {}", each.join("; "))
}

/// Sources that the configuration insists on, and the key that would relax that.
fn insisted<'a>(list: &'a [Probed], config: &'a Config) -> impl Iterator<Item = (&'a Probed, String)> {
    list.iter().zip(ROWS).filter_map(|(probed, row)| {
        let keys = config.source.keys(row.source);
        let instead = || format!("source.{}.enabled = {}", row.source.key(), keys.instead());
        (keys.enabled() == Enabled::Yes).then(|| (probed, instead()))
    })
}

/// Sources that the configuration insists on and that cannot be used, where others could: `run`
/// ends at once.
fn refused(list: &[Probed], config: &Config) -> Vec<Finding> {
    insisted(list, config)
        .filter(|(source, _)| source.status.is_refused())
        .map(|(source, instead)| {
            let cause = format!("{} is switched on and cannot be used: {}", source.name, source.detail);
            Finding::new(Kind::SourcesRefused, cause)
                .about(source.name)
                .fix(Ground::OURS, format!("set {instead}"))
        })
        .collect()
}
