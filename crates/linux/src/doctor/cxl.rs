//! CXL memory that is present and belongs to no region.

use std::collections::BTreeSet;

use crate::finding::{Finding, Ground, Kind, Look};
use crate::root::link_target;

/// The unused part of it, with the command that makes it usable memory.
pub(super) fn unused(look: &mut Look<'_>) -> Vec<Finding> {
    let folder = look.root.sys.join("bus/cxl/devices");
    let mut free: Vec<(String, u64)> = Vec::new();
    for path in look.list(&folder, "mem") {
        let Some(name) = path.file_name().map(|name| name.to_string_lossy().into_owned()) else { continue };
        let bytes = look.word(&path.join("ram/size")).and_then(|text| number(&text)).unwrap_or(0);
        free.push((name, bytes));
    }
    let mut targets = Vec::new();
    for region in look.list(&folder, "region") {
        for target in look.list(&region, "target") {
            targets.extend(look.word(&target).filter(|name| !name.is_empty()));
        }
    }
    let used: BTreeSet<String> = targets.iter().filter_map(|decoder| device(look, decoder)).collect();
    // If decoders cannot be matched to their devices, that many devices are in use, but it is
    // unknown which.
    let unknown = targets.len().saturating_sub(used.len());
    free.retain(|(name, _)| !used.contains(name));
    if free.len() <= unknown {
        return Vec::new();
    }
    let (volatile, other): (Vec<_>, Vec<_>) = free.into_iter().partition(|(_, bytes)| *bytes > 0);
    let names = |list: &[(String, u64)]| list.iter().map(|(name, _)| name.clone()).collect::<Vec<_>>();
    let mut findings = Vec::new();
    if volatile.len() > unknown {
        let names = names(&volatile);
        let which = match unknown {
            0 => names.join(", "),
            known => format!("{} of {}", names.len() - known, names.join(", ")),
        };
        let cause = format!("CXL memory {which} belongs to no region and is not in use");
        let finding = Finding::new(Kind::MemoryCxlNoRegion, cause);
        let command = format!("cxl create-region -t ram -m {}", names.join(" "));
        findings.push(finding.run(Ground::seen(unknown == 0), "make a region of it", command));
    }
    if !other.is_empty() && unknown == 0 {
        let cause = format!(
            "CXL memory {} belongs to no region and has no volatile capacity (ram/size is 0), so that no memory can be made of it as it is",
            names(&other).join(", ")
        );
        findings.push(Finding::new(Kind::MemoryCxlNoRegion, cause));
    }
    findings
}

/// The memory device behind an endpoint's decoder, as in `decoder3.0`: endpoints link to theirs.
fn device(look: &Look<'_>, decoder: &str) -> Option<String> {
    let port = decoder.strip_prefix("decoder")?.split('.').next()?;
    let link = link_target(&look.root.sys.join(format!("bus/cxl/devices/endpoint{port}/uport")))?;
    Some(link.file_name()?.to_string_lossy().into_owned())
}

/// A size as sysfs writes it, in hexadecimal with 0x or in decimal.
fn number(text: &str) -> Option<u64> {
    match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    }
}
