//! Whether pages can be moved at all, by trying, and whether the kernel still reclaims.

use crate::doctor::look::Look;
use crate::doctor::report::{Finding, Permission, Severity};
use crate::lists::nodes_text;
use crate::mover::trial::try_own_page;
use crate::topology::Discovered;
use crate::zoneinfo::{self, Zone};

/// Whether this process may move pages, as a permission, and what is in the way. A folder cannot tell.
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

/// Nodes of the top tier on which kswapd has given up: neither the kernel's tiering nor ours demotes through it there.
pub(super) fn given_up(found: &Discovered, zones: &[Zone]) -> Option<Finding> {
    let nodes: Vec<u32> = zoneinfo::given_up(zones)
        .into_iter()
        .filter(|id| found.topology.is_top(*id))
        .map(|id| u32::from(id.0))
        .collect();
    let cause = format!(
        "kswapd has given up on {} (node_unreclaimable in /proc/zoneinfo): after many vain attempts it demotes nothing there until \
         somebody else has freed a page, so that promotion ends where the node is full",
        nodes_text(&nodes)
    );
    (!nodes.is_empty()).then(|| Finding::new("demotion.given_up", Severity::Problem, cause))
}
