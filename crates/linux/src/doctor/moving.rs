//! Whether pages can be moved at all, by trying, and whether the kernel still reclaims.

use thermocline_core::units::NodeId;

use crate::doctor::report::Permission;
use crate::finding::{Finding, Kind, Look};
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
            let finding = Finding::new(Kind::PermissionsMovePages, why.to_string());
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
