//! The one list of settings that we ever write. Anything else is neither written nor put back,
//! regardless of callers and logs.

use std::path::{Component, Path, PathBuf};

use crate::actuator::{damon_stat, kdamonds, plan};
use crate::root::Root;

/// Maximum number of kdamonds considered: one for each node, or one for each watched process.
const KDAMONDS_MAX: usize = 4096;
const NR_KDAMONDS: &str = "nr_kdamonds";

/// Whether a file is one of the settings that are recorded, written and put back: those of
/// `[kernel]`, the switch of damon_stat, the number of kdamonds, and whether each is on.
pub(super) fn may_set(root: &Root, path: &Path) -> bool {
    match below_kdamonds(root, path).as_deref() {
        Some([name]) => *name == NR_KDAMONDS,
        Some([number, name]) => is_number(number) && *name == "state",
        Some(_) => false,
        None => path == damon_stat(root) || plan::all_places(root).any(|place| place == path),
    }
}

/// Whether a file says that a kdamond is on.
pub(super) fn is_state(root: &Root, path: &Path) -> bool {
    below_kdamonds(root, path).is_some_and(|names| names.len() > 1)
}

/// Whether a setting may be set again if somebody else has changed it: creating kdamonds would end
/// the other's.
pub(super) fn may_set_again(root: &Root, path: &Path) -> bool {
    below_kdamonds(root, path).is_none()
}

/// Whether a file configures a kdamond and disappears with it.
pub(super) fn may_fill(root: &Root, path: &Path) -> bool {
    below_kdamonds(root, path).is_some_and(|names| {
        names.len() > 1
            && is_number(names[0])
            && names.iter().all(|name| name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_'))
    })
}

/// The state files of the kdamonds that value `ours` of a setting has created; none for any other
/// setting.
pub(super) fn kdamonds_made_by(
    root: &Root,
    path: &Path,
    ours: &str,
) -> impl Iterator<Item = PathBuf> + use<> {
    let folder = kdamonds(root);
    let made = if path == folder.join(NR_KDAMONDS) { ours.trim().parse().unwrap_or(0) } else { 0 };
    (0..made.min(KDAMONDS_MAX)).map(move |number| folder.join(number.to_string()).join("state"))
}

/// The path components from the folder of kdamonds to a path, without `..`.
fn below_kdamonds<'a>(root: &Root, path: &'a Path) -> Option<Vec<&'a str>> {
    let below = path.strip_prefix(kdamonds(root)).ok()?;
    let name = |c: Component<'a>| match c {
        Component::Normal(name) => name.to_str(),
        _ => None,
    };
    below.components().map(name).collect()
}

fn is_number(name: &str) -> bool {
    !name.is_empty() && name.bytes().all(|b| b.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_but_our_settings_is_on_the_list() {
        let root = Root::default();
        let damon = "/sys/kernel/mm/damon/admin/kdamonds";
        for path in [
            "/proc/sys/kernel/numa_balancing",
            "/proc/sys/kernel/numa_balancing_promote_rate_limit_MBps",
            "/proc/sys/kernel/numa_balancing_scan_size_mb",
            "/proc/sys/vm/min_slab_ratio",
            "/sys/kernel/debug/sched/numa_balancing/scan_period_min_ms",
            "/sys/kernel/mm/numa/demotion_enabled",
            "/sys/module/damon_stat/parameters/enabled",
            &format!("{damon}/nr_kdamonds"),
            &format!("{damon}/12/state"),
        ] {
            assert!(may_set(&root, Path::new(path)), "{path}");
        }
        for path in [
            "/etc/passwd",
            "/proc/sys/kernel/core_pattern",
            "/proc/sys/kernel/modprobe",
            "/proc/sys/kernel/../kernel/core_pattern",
            "/proc/sys/kernel/numa_balancing/../core_pattern",
            "/sys/kernel/uevent_helper",
            "/sys/kernel/debug/sched/verbose",
            "/sys/power/state",
            "/sys/module/damon_reclaim/parameters/enabled",
            &format!("{damon}/../../../../../power/state"),
            &format!("{damon}/0/../state"),
            &format!("{damon}/x/state"),
            &format!("{damon}/0/contexts/0/operations"),
            damon,
        ] {
            assert!(!may_set(&root, Path::new(path)), "{path}");
        }
        assert!(may_fill(&root, &Path::new(damon).join("0/contexts/0/schemes/1/quotas/goals/0/nid")));
        assert!(may_fill(&root, &Path::new(damon).join("3/state")));
        for path in ["nr_kdamonds", "../state", "0/../../x", "x/state", "0"] {
            assert!(!may_fill(&root, &Path::new(damon).join(path)), "{path}");
        }
    }
}
