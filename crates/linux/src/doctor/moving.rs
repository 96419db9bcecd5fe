//! Whether pages can be moved at all, by trying, and whether the kernel still reclaims.

use thermocline_core::config::Config;
use thermocline_core::units::NodeId;

use crate::doctor::look::Look;
use crate::doctor::report::{Finding, Ground, Permission, Severity};
use crate::lists::nodes_text;
use crate::mover::trial::try_own_page;
use crate::topology::Discovered;
use crate::zoneinfo::{self, Zone};

/// Whether this process may move pages, as a permission, and the obstacle. Unknown for a folder.
pub(super) fn permission(look: &Look<'_>, found: Option<&Discovered>) -> (Permission, Option<Finding>) {
    let permission = |held| Permission {
        name: "move_pages",
        held,
        needed_for: "moving pages: a page of its own is moved",
    };
    let Some(found) = found.filter(|_| look.root.is_live()) else { return (permission(None), None) };
    match try_own_page(look.root, &found.topology) {
        Ok(()) => (permission(Some(true)), None),
        Err(why) => {
            let finding = Finding::new("permissions.move_pages", Severity::Blocker, why.to_string());
            (permission(Some(false)), Some(finding))
        }
    }
}

/// Nodes of the top tier on which kswapd has given up.
pub(super) fn given_up(found: Option<&Discovered>, zones: &[Zone]) -> Vec<NodeId> {
    let mut nodes = zoneinfo::given_up(zones);
    nodes.retain(|id| found.is_some_and(|found| found.topology.is_top(*id)));
    nodes
}

/// Neither the kernel's tiering nor ours demotes through a kswapd that has given up.
pub(super) fn gave_up(nodes: &[NodeId], config: &Config) -> Option<Finding> {
    if nodes.is_empty() {
        return None;
    }
    let cause = format!(
        "kswapd has given up on {} (node_unreclaimable in /proc/zoneinfo): after many vain attempts it demotes nothing there until \
         somebody else has freed a page, so that promotion ends where the node is full; {}",
        nodes_text(&nodes.iter().map(|id| u32::from(id.0)).collect::<Vec<u32>>()),
        if config.demotion.revive_kswapd {
            "`run` tries to bring it back, and says what came of it"
        } else {
            "`run` leaves it so"
        }
    );
    let finding = Finding::new("demotion.given_up", Severity::Problem, cause);
    Some(finding.fix(
        Ground::seen(!config.demotion.revive_kswapd),
        "set demotion.revive_kswapd = true, and `run` tries to bring it back",
    ))
}
