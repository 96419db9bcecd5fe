//! memtierd's configuration: a policy with pidwatcher, tracker and mover, and routines.
//!
//! The content of `config` is a separate text, in YAML or JSON.

use toml::Value as Toml;

use super::document::{Node, Value, parse};
use super::{Import, quantity};

const ONE_WAY: &str = "rule adaptive goes by how often each page is accessed, and needs no ages of regions";
const NO_SWAP: &str = "thermocline moves memory between tiers and swaps nothing; the kernel's reclaim does";

pub(super) fn read(root: &Node, import: &mut Import) {
    // In the plugin's configuration the text is nested in a class.
    for (key, line, node) in root.entries() {
        match key.to_ascii_lowercase().as_str() {
            "policy" => policy(node, *line, import),
            "routines" => {
                for routine in node.items() {
                    let name = named(routine);
                    import.refuse(
                        routine.line,
                        format!("routine {name}"),
                        "thermocline runs no commands; `thermocline status --json` and the journal tell what happens",
                    );
                }
            }
            "memtierdconfig" => inside(node, import, read),
            "classes" => node.items().iter().for_each(|class| read(class, import)),
            "name" | "allowswap" => {
                import.refuse(*line, shown(key, node), "thermocline has no classes; give each a scope")
            }
            _ => import.refuse(*line, shown(key, node), "thermocline does nothing of the kind"),
        }
    }
}

fn shown(key: &str, node: &Node) -> String {
    format!("{key}: {}", node.shown())
}

fn named(node: &Node) -> String {
    node.get("name").map_or_else(|| "without a name".to_owned(), Node::shown)
}

/// Applies `read` to the content of a `config`, which may be a text or a map.
fn inside(node: &Node, import: &mut Import, read: impl FnOnce(&Node, &mut Import)) {
    match &node.value {
        Value::Scalar(text) => match parse(text, node.line) {
            Ok(inner) => read(&inner, import),
            Err(why) => import.refuse(node.line, "config", why),
        },
        _ => read(node, import),
    }
}

/// The name and the configuration of an object.
fn object(
    node: &Node,
    line: usize,
    what: &str,
    import: &mut Import,
    mut name: impl FnMut(&str, usize, &mut Import),
    read: impl Fn(&Node, &mut Import),
) {
    name(&named(node), node.get("name").map_or(line, |name| name.line), import);
    for (key, line, value) in node.entries() {
        match key.to_ascii_lowercase().as_str() {
            "name" => {}
            "config" => inside(value, import, &read),
            _ => import.refuse(*line, shown(key, value), format!("a {what} has a name and a config")),
        }
    }
}

fn policy(node: &Node, line: usize, import: &mut Import) {
    let name = |name: &str, line: usize, import: &mut Import| {
        let theirs = format!("policy {name}");
        match name {
            "age" | "heat" | "ratio" => import.set(line, &theirs, "rule.name", "adaptive"),
            "demote-idle" => import.anyway(line, theirs, "cold pages are demoted, by demotion.mode"),
            "avoid-oom" => import.refuse(line, theirs, NO_SWAP),
            _ => import.refuse(
                line,
                theirs,
                "thermocline has no such policy; `thermocline config explain rule.name` lists its rules",
            ),
        }
    };
    object(node, line, "policy", import, name, |config, import| {
        tiers(config, import);
        for (key, line, value) in config.entries() {
            of_policy(&key.to_ascii_lowercase(), key, *line, value, import);
        }
    });
}

fn of_policy(lower: &str, key: &str, line: usize, value: &Node, import: &mut Import) {
    let theirs = shown(key, value);
    let number = || quantity::number(value.text().unwrap_or_default());
    match lower {
        "pidwatcher" => watcher(value, line, import),
        "tracker" => tracker(value, line, import),
        "mover" => mover(value, import),
        "cgroups" | "pids" => processes(lower, line, value, import),
        "intervalms" => import.set_number(line, &theirs, "engine.tick_ms", number()),
        "idledurationms" if value.text() == Some("0") => import.refuse(line, theirs, "0 is never"),
        "idledurationms" => import.set_number(line, &theirs, "demotion.idle_ms", number()),
        // `tiers` handles them, because it combines them.
        "idlenumas" | "activenumas" | "heatnumas" => {}
        "swapoutms" => import.refuse(line, theirs, NO_SWAP),
        "activedurationms" => import.refuse(line, theirs, ONE_WAY),
        "heatmap" | "forecaster" => {
            import.refuse(line, theirs, "how hot a page is the rule finds out by itself")
        }
        "numasize" => import.refuse(
            line,
            theirs,
            "thermocline fills what is free but for demotion.free_goal_bp; give scopes a top_tier_cap_mib",
        ),
        "ratio" | "ratiotargets" => {
            import.refuse(line, theirs, "what goes down is what is coldest, as much as is needed");
        }
        "startfreeingmemory" | "stopfreeingmemory" => import.refuse(line, theirs, NO_SWAP),
        "pagesofinterestdir" => import.refuse(line, theirs, "thermocline reads no lists of pages"),
        _ => import.refuse(line, theirs, "thermocline does nothing of the kind"),
    }
}

/// Turns the nodes for active and for idle memory, or of each class of heat, into tiers.
fn tiers(config: &Node, import: &mut Import) {
    let nodes = |node: &Node| -> Vec<i64> {
        node.items().iter().filter_map(|n| n.text()?.trim().parse().ok()).collect()
    };
    let mut found: Vec<(usize, String, Vec<i64>)> = Vec::new();
    if let Some(heat) = config.get("heatnumas") {
        let mut classes: Vec<(i64, usize, Vec<i64>)> = heat
            .entries()
            .iter()
            .filter_map(|(class, line, node)| Some((class.trim().parse().ok()?, *line, nodes(node))))
            .collect();
        classes.sort_by_key(|(class, ..)| -class);
        found.extend(
            classes.into_iter().map(|(class, line, nodes)| (line, format!("heatnumas {class}"), nodes)),
        );
    }
    for key in ["activenumas", "idlenumas"] {
        if let Some(node) = config.get(key) {
            found.push((node.line, shown(key, node), nodes(node)));
        }
    }
    let mut tiers: Vec<(usize, String, Vec<i64>)> = Vec::new();
    for (line, theirs, nodes) in found {
        let taken = tiers.iter().any(|(_, _, others)| nodes.iter().any(|node| others.contains(node)));
        match (nodes.is_empty(), taken) {
            (true, _) => import.refuse(line, theirs, "it names no node"),
            (false, true) => import.refuse(line, theirs, "a node of it is in another tier already"),
            (false, false) => tiers.push((line, theirs, nodes)),
        }
    }
    let lists: Vec<Toml> = tiers.iter().map(|(_, _, nodes)| Toml::from(nodes.clone())).collect();
    for (line, theirs, _) in &tiers {
        match lists.len() {
            0 | 1 => import.refuse(
                *line,
                theirs.clone(),
                "one tier is none; thermocline finds the tiers itself, or by tiers.nodes",
            ),
            _ => import.set(*line, theirs, "tiers.nodes", Toml::Array(lists.clone())),
        }
    }
}

/// Turns cgroups or processes into scopes.
fn processes(kind: &str, line: usize, value: &Node, import: &mut Import) {
    for item in value.items() {
        let text = item.text().unwrap_or_default().trim();
        let (theirs, line) = (format!("{kind} {text}"), item.line.max(line));
        match kind {
            "cgroups" if text.contains('$') || text.is_empty() => {
                import.refuse(line, theirs, "it is filled in by the plugin; write the path of a cgroup");
            }
            "cgroups" => import.scope(line, &theirs, "cgroup", text),
            _ => match text.parse::<u32>() {
                Ok(pid) => import.scope(line, &theirs, "pids", vec![i64::from(pid)]),
                Err(_) => import.refuse(line, theirs, format!("{text} is no process number")),
            },
        }
    }
}

fn watcher(node: &Node, line: usize, import: &mut Import) {
    let kind = named(node);
    let name = |name: &str, line: usize, import: &mut Import| {
        let theirs = format!("pidwatcher {name}");
        match name {
            "cgroups" | "pidlist" => import.anyway(line, theirs, "whose memory is managed, scopes tell"),
            "proc" => import.anyway(line, theirs, "without scopes the whole machine is managed"),
            "filter" => import.anyway(line, theirs, "of its filters, those by the command become scopes"),
            _ => import.refuse(line, theirs, "thermocline follows processes by scopes"),
        }
    };
    object(node, line, "pidwatcher", import, name, |config, import| {
        for (key, line, value) in config.entries() {
            let lower = key.to_ascii_lowercase();
            match lower.as_str() {
                "cgroups" | "pids" => processes(&lower, *line, value, import),
                "source" => watcher(value, *line, import),
                "filters" => value.items().iter().for_each(|filter| by_command(filter, import)),
                "intervalms" => {
                    import.anyway(*line, shown(key, value), "processes are followed as they come and go")
                }
                _ => {
                    import.refuse(
                        *line,
                        shown(key, value),
                        format!("pidwatcher {kind}: scopes know nothing of the kind"),
                    );
                }
            }
        }
    });
}

fn by_command(filter: &Node, import: &mut Import) {
    for (key, line, value) in filter.entries() {
        match (key.to_ascii_lowercase().as_str(), value.text()) {
            ("procexeregexp", Some(pattern)) => import.scope(*line, &shown(key, value), "command", pattern),
            _ => import.refuse(*line, shown(key, value), "scopes go by process, command and cgroup alone"),
        }
    }
}

fn tracker(node: &Node, line: usize, import: &mut Import) {
    let kind = named(node);
    let name = |name: &str, line: usize, import: &mut Import| {
        let theirs = format!("tracker {name}");
        match name {
            "damon" => import.set(line, &theirs, "source.damon.enabled", true),
            "idlepage" | "softdirty" => {
                import.anyway(
                    line,
                    theirs,
                    "accesses are seen by hint faults, source.hintfault, at a fraction of the cost",
                );
            }
            _ => import.refuse(
                line,
                theirs,
                "thermocline has no such source; see source.hintfault, source.hwsample, source.damon",
            ),
        }
    };
    object(node, line, "tracker", import, name, |config, import| {
        for (key, line, value) in config.entries() {
            let (theirs, text) = (shown(key, value), value.text().unwrap_or_default());
            let ours = match (kind.as_str(), key.to_ascii_lowercase().as_str()) {
                ("damon", "samplingus") => "source.damon.sample_ms",
                ("damon", "aggregationus") => "source.damon.aggregation_ms",
                ("damon", "regionsupdateus") => "source.damon.update_ms",
                ("damon", "mintargetregions") => "source.damon.regions_min",
                ("damon", "maxtargetregions") => "source.damon.regions_max",
                _ => {
                    import.refuse(
                        *line,
                        theirs,
                        format!("tracker {kind}: there is nothing of the kind to set"),
                    );
                    continue;
                }
            };
            let number = if ours.ends_with("_ms") { quantity::ms(text, 1.0) } else { quantity::number(text) };
            import.set_number(*line, &theirs, ours, number);
        }
    });
}

fn mover(node: &Node, import: &mut Import) {
    for (key, line, value) in node.entries() {
        let theirs = shown(key, value);
        match key.to_ascii_lowercase().as_str() {
            "bandwidth" => {
                let number = || quantity::number(value.text().unwrap_or_default());
                import.set_number(*line, &theirs, "admission.rate_limit_mbps", number());
                import.set_number(*line, &theirs, "demotion.rate_limit_mbps", number());
            }
            "intervalms" => import.anyway(*line, theirs, "moves are issued at each tick, engine.tick_ms"),
            _ => import.refuse(*line, theirs, "the mover has nothing of the kind"),
        }
    }
}
