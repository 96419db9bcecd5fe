//! The report as text.

use std::fmt;

use thermocline_core::label::Label;

use crate::doctor::report::{Report, Verdict};
use crate::finding::{Finding, Severity};
use crate::lists::format_list;
use crate::source::SourceStatus;
use crate::topology::{Discovered, TierOrigin};

impl Report {
    /// The report as text of many lines. `paint` decorates the words for severities, for a
    /// terminal.
    pub fn text(&self, paint: impl Fn(Severity, &str) -> String) -> String {
        let mut out = Vec::new();
        self.memory(&mut out);
        self.kernel(&mut out);
        self.sources(&mut out, &paint);
        self.managers(&mut out, &paint);
        self.permissions(&mut out, &paint);
        if !self.changes.is_empty() {
            out.push("\nWhat `run` changes, and puts back".to_owned());
            out.extend(self.changes.iter().map(|change| format!("  {change}")));
        }
        if !self.others.is_empty() {
            out.push("\nWho else moves or watches pages, now".to_owned());
            for other in &self.others {
                let pid = other.pid.map(|pid| format!(" (pid {})", pid.0)).unwrap_or_default();
                out.push(format!("  {}{pid}: {}", other.name, other.detail));
            }
        }
        self.blind(&mut out);
        if !self.findings.is_empty() {
            out.push("\nFindings".to_owned());
            for finding in &self.findings {
                show_finding(finding, &mut out, &paint);
            }
        }
        out.push(String::new());
        out.push(self.verdict_line(&paint));
        out.join("\n")
    }

    fn memory(&self, out: &mut Vec<String>) {
        out.push("Memory".to_owned());
        let Some(found) = &self.topology else { return };
        let mut rows = vec![
            ["node", "tier", "CPUs", "memory", "free", "latency", "bandwidth", "distances"]
                .map(str::to_owned),
        ];
        let size = found.topology.page_bytes;
        for node in &found.topology.nodes {
            let free = self.nodes.iter().find(|s| s.node == node.id).map_or(0, |s| s.free_pages);
            let distances: Vec<String> = node.distances.iter().map(ToString::to_string).collect();
            let cpus = format_list(&node.cpus);
            rows.push([
                node.id.0.to_string(),
                node.tier.0.to_string(),
                if cpus.is_empty() { "none".to_owned() } else { cpus },
                format!("{} MiB", size.mib(node.capacity_pages)),
                format!("{} MiB", size.mib(free)),
                node.read_latency_ns.map_or("-".to_owned(), |ns| format!("{ns} ns")),
                node.read_bandwidth_mbps.map_or("-".to_owned(), |mb| format!("{mb} MB/s")),
                distances.join(" "),
            ]);
        }
        out.extend(table(&rows));
        out.push(format!("  tiers: {}", origin(found)));
    }

    fn kernel(&self, out: &mut Vec<String>) {
        let k = &self.kernel;
        let shown = |value: Option<String>| value.unwrap_or_else(|| "not in this kernel".to_owned());
        out.push("\nKernel".to_owned());
        let hz = k.hz.map_or("unknown".to_owned(), |hz| hz.to_string());
        // Only that file shows whether a kernel is locked down.
        let unseen =
            if k.mounts.securityfs.is_some() { "none" } else { "unknown (securityfs is not mounted)" };
        let hugepages = shown(k.transparent_hugepages.clone());
        out.push(format!(
            "  {}, HZ {hz}, lockdown {}, transparent huge pages {hugepages}, swap {} MiB",
            k.release.as_deref().unwrap_or("unknown release"),
            k.lockdown.as_deref().unwrap_or(unseen),
            k.swap_mib,
        ));
        out.push(format!(
            "  numa_balancing {}, promote rate limit {}, demotion {}",
            shown(k.numa_balancing.map(|v| v.to_string())),
            shown(k.promote_rate_limit_mbps.map(|v| format!("{v} MB/s"))),
            shown(k.demotion_enabled.map(|on| if on { "on" } else { "off" }.to_owned())),
        ));
        let mounts = [
            ("debugfs", &k.mounts.debugfs),
            ("tracefs", &k.mounts.tracefs),
            ("bpffs", &k.mounts.bpffs),
            ("cgroup v2", &k.mounts.cgroup2),
        ];
        let mounts = mounts.map(|(name, place)| match place {
            Some(place) => format!("{name} {place}"),
            None => format!("{name} not mounted"),
        });
        out.push(format!("  {}", mounts.join(", ")));
    }

    fn sources(&self, out: &mut Vec<String>, paint: &impl Fn(Severity, &str) -> String) {
        out.push("\nSources of evidence".to_owned());
        for source in &self.sources {
            let (severity, word) = match source.status {
                SourceStatus::Usable => (Severity::Ok, "usable"),
                SourceStatus::Unknown => (Severity::Note, "unknown"),
                SourceStatus::NotRead => (Severity::Note, "not read"),
                SourceStatus::Unavailable => (Severity::Note, "unavailable"),
            };
            let word = paint(severity, &format!("{word:<11}"));
            out.push(format!("  {:<10} {word}  {}", source.name, source.detail));
        }
    }

    fn managers(&self, out: &mut Vec<String>, paint: &impl Fn(Severity, &str) -> String) {
        out.push("\nManagers".to_owned());
        for manager in &self.managers {
            let (severity, word) = match (manager.usable, manager.chosen) {
                (true, true) => (Severity::Ok, "chosen"),
                (true, false) => (Severity::Ok, "usable"),
                (false, true) => (Severity::Problem, "unavailable"),
                (false, false) => (Severity::Note, "unavailable"),
            };
            let word = paint(severity, &format!("{word:<11}"));
            out.push(format!("  {:<11} {word}  {}", manager.name, manager.detail));
        }
    }

    fn permissions(&self, out: &mut Vec<String>, paint: &impl Fn(Severity, &str) -> String) {
        out.push("\nPermissions".to_owned());
        for permission in &self.permissions {
            let (severity, word) = match permission.held {
                Some(true) => (Severity::Ok, "yes"),
                Some(false) => (Severity::Problem, "no "),
                None => (Severity::Note, "unknown"),
            };
            out.push(format!(
                "  {:<15} {}  {}",
                permission.name,
                paint(severity, word),
                permission.needed_for
            ));
        }
    }

    fn blind(&self, out: &mut Vec<String>) {
        out.push("\nMemory that hint faults cannot see".to_owned());
        let blind = &self.blind;
        for p in &blind.processes {
            out.push(format!(
                "  {} (pid {}): {} MiB {}, {} MiB of it below the top tier",
                p.comm,
                p.pid.0,
                p.sum.kib / 1024,
                p.reason,
                p.sum.lower_tier_kib / 1024
            ));
        }
        for (node, mib) in &blind.hugetlb_pool_mib {
            out.push(format!("  {mib} MiB of {node} are set aside as hugetlb pages"));
        }
        let mut looked = format!(
            "  {} MiB in all, {} MiB below the top tier; looked at {} processes",
            blind.total.kib / 1024,
            blind.total.lower_tier_kib / 1024,
            blind.looked_at
        );
        if blind.not_looked_at + blind.unreadable > 0 {
            looked.push_str(&format!(
                ", left out {} for lack of time and {} for lack of permission",
                blind.not_looked_at, blind.unreadable
            ));
        }
        out.push(looked);
        for (pid, comm) in &blind.stuck {
            out.push(format!("  {comm} (pid {}) did not answer: its mmap lock is held", pid.0));
        }
    }

    fn verdict_line(&self, paint: &impl Fn(Severity, &str) -> String) -> String {
        match self.verdict {
            Verdict::Usable => format!("{}: thermocline can work here", paint(Severity::Ok, "ok")),
            Verdict::Problems => {
                format!(
                    "{}: thermocline can work here, with the problems above",
                    paint(Severity::Problem, "problems")
                )
            }
            Verdict::Unusable => {
                format!(
                    "{}: thermocline cannot work here as things stand",
                    paint(Severity::Blocker, "blocked")
                )
            }
        }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text(|_, word| word.to_owned()))
    }
}

fn show_finding(finding: &Finding, out: &mut Vec<String>, paint: &impl Fn(Severity, &str) -> String) {
    let word = finding.severity.name();
    out.push(format!(
        "  {} {} [{}]",
        paint(finding.severity, &format!("{word}:")),
        finding.cause,
        finding.id.name()
    ));
    out.extend(finding.remedies.iter().map(|remedy| format!("    {}", remedy.line())));
}

fn origin(found: &Discovered) -> String {
    let tiers: Vec<String> = found
        .kernel_tiers
        .iter()
        .map(|tier| {
            let nodes: Vec<u32> = tier.nodes.iter().map(|n| u32::from(n.0)).collect();
            format!("memory_tier{} = {}", tier.number, format_list(&nodes))
        })
        .collect();
    match found.origin {
        TierOrigin::Kernel => format!("the kernel's ({})", tiers.join(", ")),
        TierOrigin::TierMap => {
            format!("tiers.nodes of the configuration; the kernel's: {}", tiers.join(", "))
        }
        TierOrigin::Assumed => "the kernel lists none; all nodes are taken for one tier".to_owned(),
    }
}

/// Columns as wide as their widest cell, two spaces between them.
fn table<const N: usize>(rows: &[[String; N]]) -> Vec<String> {
    let width = |column: usize| rows.iter().map(|row| row[column].len()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..N).map(width).collect();
    let line = |row: &[String; N]| {
        let cells: Vec<String> =
            row.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}")).collect();
        format!("  {}", cells.join("  ")).trim_end().to_owned()
    };
    rows.iter().map(line).collect()
}
