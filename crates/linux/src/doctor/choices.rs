//! Deliberate choices of an operator that a run would change, and who would be affected.

use std::path::{Path, PathBuf};

use crate::finding::{Finding, Ground, Kind, Look};
use crate::process;
use crate::root::{Root, list_optional, read_optional};

/// Folders of files that `sysctl --system` reads, below `/` (sysctl.d(5)).
const SYSCTL_FOLDERS: [&str; 5] =
    ["etc/sysctl.d", "run/sysctl.d", "usr/local/lib/sysctl.d", "usr/lib/sysctl.d", "lib/sysctl.d"];
/// Folders of tuned's profiles, below `/`.
const TUNED_FOLDERS: [&str; 4] =
    ["etc/tuned", "etc/tuned/profiles", "usr/lib/tuned", "usr/lib/tuned/profiles"];
/// Maximum depth of profiles that include others.
const PROFILES_MAX: usize = 16;
/// Maximum number of files named.
const NAMED_MAX: usize = 4;
const SYSCTL: &str = "kernel.numa_balancing";

/// Prefixes of names of programs that run virtual machines; the kernel keeps 15 bytes.
const GUESTS: [&str; 5] = ["qemu", "kvm", "cloud-hyperviso", "firecracker", "crosvm"];
/// Share of the machine's memory from which guests are reported, in percent.
const GUESTS_PERCENT: u64 = 50;

/// Reports if kernel.numa_balancing was 0 by choice, and the cost of changing it to `wanted`;
/// `None` if it stays.
pub fn overridden(root: &Root, wanted: Option<u32>) -> Option<String> {
    let wanted = wanted.filter(|wanted| *wanted != 0)?;
    let now = read_optional(&root.proc.join("sys/kernel/numa_balancing")).ok()??;
    let set: Vec<String> =
        setters(root).iter().map(|(path, to)| format!("{} sets {to}", path.display())).collect();
    if now.trim() != "0" {
        return None;
    }
    let mut reasons = set;
    let command_line = read_optional(&root.proc.join("cmdline")).ok().flatten().unwrap_or_default();
    if command_line.split_ascii_whitespace().any(|word| word == "numa_balancing=disable") {
        reasons.push("the kernel was booted with numa_balancing=disable".to_owned());
    }
    let with_cpus = read_optional(&root.sys.join("devices/system/node/has_cpu")).ok().flatten();
    if reasons.is_empty() && with_cpus.is_some_and(|list| list.contains([',', '-'])) {
        reasons.push("kernels begin with 1 on machines of several nodes with CPUs".to_owned());
    }
    (!reasons.is_empty()).then(|| {
        format!(
            "{SYSCTL} is 0 by somebody's choice ({}) and would be {wanted} for every process of the machine, excluded ones too: memory on lower \
             tiers is marked again and again, and the next access to what is marked costs the program a page fault",
            reasons.join("; ")
        )
    })
}

/// A finding about an overridden choice.
pub(super) fn numa_balancing(root: &Root, wanted: Option<u32>) -> Option<Finding> {
    let cause = overridden(root, wanted)?;
    Some(Finding::new(Kind::ChoicesNumaBalancing, cause).fix(
            Ground::OURS,
        "to leave it at 0, unset kernel.numa_balancing in the configuration: hint faults then do not come, and [source.damon] can tell what is hot in their place",
    ))
}

/// A finding if guests hold most of the machine's memory, and hint faults would be switched on.
pub(super) fn guests(look: &mut Look<'_>, wanted: Option<u32>, machine_pages: u64) -> Option<Finding> {
    wanted.filter(|wanted| *wanted != 0)?;
    let pids = process::list(look.root);
    // Processes come and go, and others' may be hidden.
    let stats = look
        .keep(pids)
        .unwrap_or_default()
        .into_iter()
        .filter_map(|pid| process::stat(look.root, pid).ok()?);
    let held: Vec<u64> = stats
        .filter(|stat| GUESTS.iter().any(|name| stat.comm.starts_with(name)))
        .map(|stat| stat.rss_pages)
        .collect();
    let percent = held.iter().sum::<u64>().saturating_mul(100).checked_div(machine_pages)?;
    (percent >= GUESTS_PERCENT).then(|| {
        let cause = format!(
            "virtual machines ({}) hold {percent} % of the memory: what of theirs is on lower tiers is marked by the kernel's scans, and a guest's next access to \
             it leaves the guest for a fault on the host; thermocline was never tried on a host of KVM guests",
            held.len()
        );
        Finding::new(Kind::ChoicesGuests, cause)
            .fix(Ground::OURS, "try `thermocline observe` first, and exclude guests whose latency counts from moves by a scope")
    })
}

/// Files that set kernel.numa_balancing when they are applied, and the value.
fn setters(root: &Root) -> Vec<(PathBuf, String)> {
    let top = root.proc.parent().unwrap_or(Path::new("/"));
    let mut files = vec![top.join("etc/sysctl.conf")];
    for folder in SYSCTL_FOLDERS.map(|folder| top.join(folder)) {
        let mut names = list_optional(&folder).ok().flatten().unwrap_or_default();
        names.retain(|name| name.ends_with(".conf"));
        names.sort();
        files.extend(names.into_iter().map(|name| folder.join(name)));
    }
    let text = |path: &Path| read_optional(path).ok().flatten();
    let mut profiles: Vec<String> = words(text(&top.join("etc/tuned/active_profile")));
    let mut at = 0;
    while let Some(profile) = profiles.get(at).filter(|_| at < PROFILES_MAX).cloned() {
        at += 1;
        let file = TUNED_FOLDERS.iter().map(|folder| top.join(folder).join(&profile).join("tuned.conf"));
        let Some((file, text)) = file.into_iter().find_map(|file| Some((file.clone(), text(&file)?))) else {
            continue;
        };
        let included =
            text.lines().find_map(|line| line.trim().strip_prefix("include")?.trim_start().strip_prefix('='));
        profiles.extend(words(included.map(|names| names.replace(',', " "))));
        files.push(file);
    }
    let set = files.into_iter().filter_map(|file| {
        let value = value(&text(&file)?)?;
        Some((file, value))
    });
    set.take(NAMED_MAX).collect()
}

fn words(text: Option<String>) -> Vec<String> {
    text.iter().flat_map(|text| text.split_ascii_whitespace()).map(str::to_owned).collect()
}

/// The value that a file of sysctl.d or a profile gives the setting last.
fn value(text: &str) -> Option<String> {
    let of_line = |line: &str| {
        let (key, value) = line.trim().trim_start_matches('-').split_once('=')?;
        (key.trim().replace('/', ".") == SYSCTL).then(|| value.trim().to_owned())
    };
    text.lines().rev().find_map(of_line)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_setting_is_found_however_it_is_spelled() {
        for text in [
            "kernel.numa_balancing=0\n",
            "# x\n-kernel/numa_balancing = 0 \n",
            "[sysctl]\nkernel.numa_balancing = 1\nkernel.numa_balancing=0",
        ] {
            assert_eq!(value(text).as_deref(), Some("0"), "{text}");
        }
        for text in
            ["#kernel.numa_balancing=0\n", "kernel.numa_balancing_scan=0", "kernel.numa_balancing", ""]
        {
            assert_eq!(value(text), None, "{text}");
        }
    }
}
