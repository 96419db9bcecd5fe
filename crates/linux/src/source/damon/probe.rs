//! Whether regions can be read from our own kdamonds. Those of a running thermocline are no
//! obstacle.

use thermocline_core::config::{DamonAddresses, Source};

use super::event::{self, Format};
use crate::damon::{NotDamon, Spaces, offer_source};
use crate::lists::nodes_text;
use crate::source::{Facts, Probed, SourceStatus};

pub(super) fn probe(facts: &mut Facts<'_>) -> Probed {
    let source = |status, detail: String| Probed::new(Source::Damon, status, detail);
    let unavailable = |why: String| source(SourceStatus::Unavailable, why);
    let Some(found) = facts.topology else {
        return unavailable("the nodes could not be found".to_owned());
    };
    let keys = &facts.config.source.damon;
    let watch = match offer_source(facts.root, facts.config, found) {
        Ok((_, watch)) => watch,
        Err(NotDamon::InUse { .. }) if facts.our_kdamonds => match keys.addresses {
            DamonAddresses::Physical => {
                let with_memory = found.topology.nodes.iter().filter(|n| n.capacity_pages > 0);
                Spaces::Nodes(with_memory.map(|n| n.id).collect())
            }
            DamonAddresses::Virtual => Spaces::Processes(keys.processes_max as usize),
        },
        Err(why) => return unavailable(why.to_string()),
    };
    let (what, finds) = match watch {
        Spaces::Nodes(nodes) => {
            let nodes: Vec<u32> = nodes.iter().map(|id| u32::from(id.0)).collect();
            let what = format!("access rates of regions of {}", nodes_text(&nodes));
            (what, "the reverse map finds out whose they are")
        }
        Spaces::Processes(most) => {
            let what = format!("access rates of regions of the {most} largest processes");
            (what, "their pagemaps tell where their pages are")
        }
    };
    if let Err(why) = event::format(facts.root)
        .map_err(|e| e.to_string())
        .and_then(|(path, text)| Format::parse(&text).map_err(|cause| format!("{}: {cause}", path.display())))
    {
        return unavailable(why);
    }
    if !keys.enabled {
        let detail = format!("{what}; switched off, source.damon.enabled = true reads them");
        return source(SourceStatus::NotRead, detail);
    }
    if !facts.may_sample {
        return unavailable(format!("{what}; hearing of them needs CAP_PERFMON"));
    }
    if !facts.sees_frames {
        return unavailable(format!("{what}; finding their pages needs CAP_SYS_ADMIN"));
    }
    source(SourceStatus::Usable, format!("{what}; {finds}"))
}
