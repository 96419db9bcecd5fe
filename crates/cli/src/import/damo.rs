//! DAMON setups, as damo reads them and HMSDK's gen_migpol.py writes them. They become manager
//! damon, with which the kernel does the same.

use toml::Value as Toml;

use super::document::Node;
use super::{Import, quantity};

const FOUND: &str = "a kdamond watches all memory of its node, which is found out";

/// The size of a page, in the forms that damo writes.
const SMALLEST: [&str; 4] = ["4096", "4,096", "4 KiB", "4.000 KiB"];

/// The nodes of the tiers, each with its line in the file. Each action names one tier.
#[derive(Default)]
struct Tiers {
    fast: Option<(usize, i64)>,
    slow: Option<(usize, i64)>,
}

pub(super) fn read(root: &Node, import: &mut Import) {
    let mut tiers = Tiers::default();
    for (key, line, value) in root.entries() {
        match key.as_str() {
            "kdamonds" => {
                import.set(*line, "kdamonds", "manager.name", "damon");
                for kdamond in value.items() {
                    entries(kdamond, import, |key, line, value, import| match key {
                        "contexts" => value.items().iter().for_each(|c| context(c, &mut tiers, import)),
                        "state" | "pid" => {
                            import.anyway(line, shown(key, value), "the manager starts its kdamonds itself")
                        }
                        _ => other(key, line, value, import),
                    });
                }
            }
            _ => other(key, *line, value, import),
        }
    }
    if let (Some((fast_line, fast)), Some((slow_line, slow))) = (tiers.fast, tiers.slow)
        && fast != slow
    {
        let nodes = Toml::from(vec![Toml::from(vec![fast]), Toml::from(vec![slow])]);
        for (line, theirs) in [(fast_line, "migrate_hot target_nid"), (slow_line, "migrate_cold target_nid")]
        {
            import.set(line, theirs, "tiers.nodes", nodes.clone());
        }
    } else {
        for (line, node) in tiers.fast.into_iter().chain(tiers.slow) {
            import.anyway(
                line,
                format!("target_nid: {node}"),
                "targets are the nodes of the next tier; tiers.nodes can name them",
            );
        }
    }
}

fn entries(node: &Node, import: &mut Import, mut each: impl FnMut(&str, usize, &Node, &mut Import)) {
    for (key, line, value) in node.entries() {
        each(key, *line, value, import);
    }
}

fn shown(key: &str, value: &Node) -> String {
    format!("{key}: {}", value.shown())
}

/// Refuses a key that manager damon does not have.
fn other(key: &str, line: usize, value: &Node, import: &mut Import) {
    import.refuse(line, shown(key, value), "manager damon has no such key");
}

/// Whether a value sets nothing: null, empty or an empty list.
fn is_nothing(value: &Node) -> bool {
    matches!(value.shown().as_str(), "" | "null" | "~" | "[]" | "{}" | "None")
}

fn context(node: &Node, tiers: &mut Tiers, import: &mut Import) {
    entries(node, import, |key, line, value, import| {
        match key {
        "ops" => match value.text() {
            Some("paddr") => import.anyway(line, shown(key, value), "manager damon watches frames"),
            _ => import.refuse(
                line,
                shown(key, value),
                "manager damon watches frames alone; source.damon.addresses = \"virtual\" watches processes for the engine",
            ),
        },
        "targets" | "addr_unit" => import.anyway(line, key, FOUND),
        "intervals" => entries(value, import, |key, line, value, import| {
            let ours = match key {
                "sample_us" => "manager.damon.sample_ms",
                "aggr_us" => "manager.damon.aggregation_ms",
                "ops_update_us" => "manager.damon.update_ms",
                "intervals_goal" => return goal_of_intervals(value, import),
                _ => return other(key, line, value, import),
            };
            import.set_number(line, &shown(key, value), ours, quantity::ms(value.text().unwrap_or_default(), 1.0));
        }),
        "nr_regions" => entries(value, import, |key, line, value, import| {
            let ours = match key {
                "min" => "manager.damon.regions_min",
                "max" => "manager.damon.regions_max",
                _ => return other(key, line, value, import),
            };
            let theirs = format!("nr_regions {}", shown(key, value));
            import.set_number(line, &theirs, ours, quantity::number(value.text().unwrap_or_default()));
        }),
        "schemes" => value.items().iter().for_each(|s| scheme(s, tiers, import)),
        _ if is_nothing(value) => import.anyway(line, shown(key, value), "it says nothing"),
        _ => other(key, line, value, import),
    }
    });
}

fn goal_of_intervals(node: &Node, import: &mut Import) {
    entries(node, import, |key, line, value, import| match key {
        "access_bp" if value.text().is_some_and(|text| !["0", "0 %", "0%"].contains(&text.trim())) => {
            let number = quantity::share(value.text().unwrap_or_default(), 10_000.0);
            import.set_number(line, &shown(key, value), "manager.damon.access_goal_bp", number);
        }
        "access_bp" => import.anyway(line, shown(key, value), "the intervals stay as they are set"),
        _ => import.refuse(
            line,
            shown(key, value),
            "manager damon sets the goal alone; the rest is the kernel's",
        ),
    });
}

/// The direction in which a scheme moves pages.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    Up,
    Down,
}

fn scheme(node: &Node, tiers: &mut Tiers, import: &mut Import) {
    let action = node.get("action").and_then(Node::text).unwrap_or_default().to_owned();
    let way = match action.as_str() {
        "migrate_hot" => Way::Up,
        "migrate_cold" => Way::Down,
        _ => {
            let why = "thermocline promotes and demotes, and does nothing else to memory";
            return import.refuse(node.line, format!("a scheme with action {action}"), why);
        }
    };
    entries(node, import, |key, line, value, import| match key {
        "action" => import.anyway(
            line,
            shown(key, value),
            "manager damon has a scheme for it on every node that it suits",
        ),
        "target_nid" => match (way, value.text().and_then(|text| text.trim().parse().ok())) {
            (Way::Up, Some(nid)) => target(&mut tiers.fast, line, nid, import),
            (Way::Down, Some(nid)) => target(&mut tiers.slow, line, nid, import),
            (_, None) => import.refuse(line, shown(key, value), "it is no number of a node"),
        },
        "access_pattern" => pattern(value, way, import),
        "apply_interval_us" if ["0", "0 us", "0 ns"].contains(&value.shown().as_str()) => {
            import.anyway(line, shown(key, value), "schemes are applied once an aggregation");
        }
        "quotas" => quotas(value, way, import),
        "watermarks" => watermarks(value, way, import),
        "filters" | "core_filters" | "ops_filters" => {
            value.items().iter().for_each(|filter| one_filter(filter, way, import));
        }
        _ if is_nothing(value) => import.anyway(line, shown(key, value), "it says nothing"),
        _ => other(key, line, value, import),
    });
}

fn target(known: &mut Option<(usize, i64)>, line: usize, nid: i64, import: &mut Import) {
    match *known {
        Some((_, earlier)) if earlier != nid => {
            let why = format!("node {earlier} is a target too; write tiers.nodes by hand, fastest first");
            import.refuse(line, format!("target_nid: {nid}"), why);
        }
        _ => *known = Some((line, nid)),
    }
}

fn pattern(node: &Node, way: Way, import: &mut Import) {
    entries(node, import, |key, _, bounds, import| {
        entries(bounds, import, |bound, line, value, import| {
            let theirs = format!("access_pattern {key} {}", shown(bound, value));
            let text = value.text().unwrap_or_default().trim();
            let open = match bound {
                // No region is smaller than a page.
                "min" => text.starts_with('0') || key == "sz_bytes" && SMALLEST.contains(&text),
                _ => text == "max" || text.starts_with("100") || text.len() > 15,
            };
            match (way, key, bound) {
                (Way::Up, "nr_accesses", "min") => {
                    import.set_number(
                        line,
                        &theirs,
                        "manager.damon.hot_percent",
                        quantity::share(text, 100.0),
                    );
                }
                (Way::Down, "age", "min") => {
                    // A bare number counts aggregation intervals. Their length is set elsewhere.
                    let number = match text.parse::<u64>() {
                        Ok(0) => Ok(0),
                        Ok(n) => Err(format!("{n} aggregations; write it as a time, as 30 s")),
                        Err(_) => quantity::ms(text, 1.0),
                    };
                    import.set_number(line, &theirs, "manager.damon.cold_ms", number);
                }
                (Way::Down, "nr_accesses", _) if text.starts_with('0') => {
                    import.anyway(line, theirs, "what was not accessed goes down");
                }
                _ if open => import.anyway(line, theirs, "nothing is bounded by it"),
                _ => import.refuse(line, theirs, "manager damon has no such bound"),
            }
        });
    });
}

fn quotas(node: &Node, way: Way, import: &mut Import) {
    entries(node, import, |key, line, value, import| {
        let (theirs, text) = (format!("quotas {}", shown(key, value)), value.text().unwrap_or_default());
        match key {
            "time_ms" => {
                let ours = if way == Way::Up { "promote_time_ms" } else { "demote_time_ms" };
                import.set_number(
                    line,
                    &theirs,
                    &format!("manager.damon.{ours}"),
                    quantity::ms(text, 1000.0),
                );
            }
            "sz_bytes" => import.set_number(line, &theirs, "manager.damon.quota_mib", quantity::mib(text)),
            "reset_interval_ms" => {
                import.set_number(line, &theirs, "manager.damon.quota_ms", quantity::ms(text, 1000.0));
            }
            "weights" => entries(value, import, |key, line, value, import| {
                let ours = match key.split('_').next() {
                    Some("sz") => "weight_size_permille",
                    Some("nr") => "weight_accesses_permille",
                    Some("age") => "weight_age_permille",
                    _ => return other(key, line, value, import),
                };
                let number = quantity::share(value.text().unwrap_or_default(), 1000.0);
                import.set_number(line, &shown(key, value), &format!("manager.damon.{ours}"), number);
            }),
            "goals" => {
                value.items().iter().filter(|goal| !is_nothing(goal)).for_each(|g| goal(g, way, import))
            }
            _ if is_nothing(value) => import.anyway(line, theirs, "it says nothing"),
            _ => import.refuse(line, theirs, "manager damon has no such quota"),
        }
    });
}

fn goal(node: &Node, way: Way, import: &mut Import) {
    let metric = node.get("metric").and_then(Node::text).unwrap_or_default();
    let theirs = format!("goal {}", node.shown());
    let ours = match (metric, way) {
        ("node_mem_used_bp", Way::Up) => "manager.damon.used_goal_bp",
        ("node_mem_free_bp", Way::Down) => "manager.damon.free_goal_bp",
        _ => {
            return import.refuse(
                node.line,
                theirs,
                "manager damon knows node_mem_used_bp for promotion and node_mem_free_bp for demotion",
            );
        }
    };
    let target = node.get("target_value").and_then(Node::text).unwrap_or_default();
    import.set_number(node.line, &theirs, ours, quantity::share(target, 10_000.0));
}

fn watermarks(node: &Node, way: Way, import: &mut Import) {
    let metric = node.get("metric").and_then(Node::text).unwrap_or_default().to_ascii_lowercase();
    if metric == "none" || metric.is_empty() {
        return import.anyway(node.line, "watermarks: none", "schemes always work");
    }
    entries(node, import, |key, line, value, import| {
        let theirs = format!("watermarks {}", shown(key, value));
        let ours = match (way, key) {
            (_, "metric" | "interval_us") => {
                return import.anyway(line, theirs, "the manager looks at free memory");
            }
            (Way::Up, _) => {
                return import.refuse(line, theirs, "manager damon has watermarks for demotion alone");
            }
            (Way::Down, "high_permil") => "watermark_high_permille",
            (Way::Down, "mid_permil") => "watermark_mid_permille",
            (Way::Down, "low_permil") => "watermark_low_permille",
            _ => return other(key, line, value, import),
        };
        let number = quantity::share(value.text().unwrap_or_default(), 1000.0);
        import.set_number(line, &theirs, &format!("manager.damon.{ours}"), number);
    });
}

fn one_filter(node: &Node, way: Way, import: &mut Import) {
    let text = |key: &str| node.get(key).and_then(Node::text).unwrap_or_default().trim().to_ascii_lowercase();
    let kind = [text("filter_type"), text("type")].concat();
    let theirs = format!("filter {}", node.shown());
    // damo says whether a match is let through ("allow") or not; older files name what is left out.
    let takes =
        |matching: bool| text("allow") == matching.to_string() || text("filter_pass") == matching.to_string();
    let matching = text("matching") != "false";
    match kind.as_str() {
        "memcg" => {
            let path = ["memcg_path", "cgroup", "path"].iter().find_map(|key| node.get(key)?.text());
            let lets_in = takes(true) == matching;
            match path {
                Some(path) if lets_in => import.scope(node.line, &theirs, "cgroup", path),
                Some(_) => import.refuse(
                    node.line,
                    theirs,
                    "write a scope with exclude = true for what is to be left out",
                ),
                None => import.refuse(node.line, theirs, "it names no cgroup"),
            }
        }
        "young" => {
            let moves_young = takes(true) == matching;
            match moves_young == (way == Way::Up) {
                true => import.set(node.line, &theirs, "manager.damon.young", true),
                false => import.refuse(
                    node.line,
                    theirs,
                    "young pages are promoted, others demoted, and not the other way",
                ),
            }
        }
        "" if is_nothing(node) => {}
        _ => import.refuse(node.line, theirs, "manager damon has filters young and memcg alone"),
    }
}
