//! Whether cold pages of the top tier can go down.

use thermocline_core::config::DemotionWay;
use thermocline_core::units::NodeId;

use crate::finding::{Demoting, Facts, Finding, Ground, Kind, View};
use crate::lists::nodes_text;
use crate::zoneinfo;

/// Nodes of the top tier on which kswapd has given up: neither the kernel's tiering nor ours
/// demotes through it.
pub(super) fn given_up(view: &View<'_>, facts: &Facts) -> Vec<Finding> {
    let nodes = match (view.running, view.found) {
        (Some(running), _) => running.given_up.to_vec(),
        (None, Some(found)) => {
            let mut nodes = zoneinfo::given_up(&facts.zones);
            nodes.retain(|id| found.topology.is_top(*id));
            nodes
        }
        (None, None) => Vec::new(),
    };
    if nodes.is_empty() {
        return Vec::new();
    }
    let revives = view.config.demotion.revive_kswapd;
    let then = match (revives, view.running.is_some()) {
        (true, true) => "it is tried once a minute to bring it back",
        (true, false) => "`run` tries to bring it back, and says what came of it",
        (false, true) => "it is left so",
        (false, false) => "`run` leaves it so",
    };
    let cause = format!(
        "kswapd has given up on {} (node_unreclaimable in /proc/zoneinfo): after many vain attempts it demotes nothing there until \
         somebody else has freed a page, so that promotion ends where the node is full; {then}",
        told(&nodes)
    );
    let finding = Finding::new(Kind::DemotionGivenUp, cause).on(&nodes);
    vec![
        finding
            .fix(Ground::seen(!revives), "set demotion.revive_kswapd = true, and `run` tries to bring it back")
            .fix(
                Ground::seen(revives),
                "if it does not come back, free memory there: stop a program that uses much of it, and start it again",
            ),
    ]
}

/// Nothing is demoted although the configuration wants it.
pub(super) fn none(view: &View<'_>, _: &Facts) -> Vec<Finding> {
    let Demoting::No(why) = view.demoting else { return Vec::new() };
    let will = if view.running.is_some() { "nothing is demoted" } else { "nothing will be demoted" };
    let cause = format!("{will}, so that promotion ends where the top tier is full: {why}");
    vec![Finding::new(Kind::DemotionNone, cause)]
}

/// The kernel's switch is off under a demotion that needs it.
pub(super) fn undone(view: &View<'_>, facts: &Facts) -> Vec<Finding> {
    let needed = match view.demoting {
        Demoting::Ours(way) => *way != DemotionWay::Regions,
        Demoting::ByKernel => true,
        Demoting::NotWanted | Demoting::No(_) => false,
    };
    let set = view.changed(facts).iter().any(|changed| changed.path.ends_with("numa/demotion_enabled"));
    // Before a run the switch may be off: the run will set it.
    if !needed || facts.demotion_enabled != Some(false) || !(set || view.running.is_some()) {
        return Vec::new();
    }
    let cause = "the kernel's demotion has been switched off under thermocline (demotion_enabled is false): cold pages stay in the top tier, \
                 and promotion ends where it is full";
    let finding = Finding::new(Kind::DemotionUndone, cause);
    vec![finding.run(
        Ground::seen(true),
        "switch it on again, and find out who switched it off",
        "echo true > /sys/kernel/mm/numa/demotion_enabled",
    )]
}

fn told(nodes: &[NodeId]) -> String {
    nodes_text(&nodes.iter().map(|id| u32::from(id.0)).collect::<Vec<u32>>())
}
