//! `/proc/zoneinfo`: free pages, watermarks and spans of every zone (Linux mm/vmstat.c,
//! zoneinfo_show_print).

use thermocline_core::topology::NodeState;
use thermocline_core::units::{NodeId, PageSize};

/// One zone of one node. All sizes are base pages.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Zone {
    /// Its node.
    pub node: NodeId,
    /// `DMA`, `DMA32`, `Normal`, `Movable`, `Device`.
    pub name: String,
    /// Free pages.
    pub free: u64,
    /// The kernel's temporary boost of every watermark, after pages of one kind had to be taken
    /// from a block of another: kswapd should reclaim that much, and removes the boost as soon as
    /// an allocation wakes it. No memory need be kept free for it.
    pub boost: u64,
    /// Direct reclaim below it. This and the other marks exclude the boost, which the kernel
    /// includes in all of them.
    pub min: u64,
    /// kswapd wakes below it.
    pub low: u64,
    /// kswapd sleeps above it.
    pub high: u64,
    /// In tiering mode kswapd sleeps above it; `None` if the kernel does not print it.
    pub promo: Option<u64>,
    /// From the first to the last page, holes included.
    pub spanned: u64,
    /// Pages that exist.
    pub present: u64,
    /// Pages that the allocator manages.
    pub managed: u64,
    /// First page frame; `None` if the zone is empty.
    pub start_pfn: Option<u64>,
    /// kswapd has given up on its node (Linux 6.12 mm/vmstat.c, kswapd_failures).
    pub unreclaimable: bool,
    /// Pages that an allocation which could be served from the highest zone must leave free here.
    pub lowmem_reserve: u64,
}

impl Zone {
    /// The promo watermark, derived from the others if the kernel does not print it: the marks are
    /// evenly spaced (Linux 6.12 mm/page_alloc.c, __setup_per_zone_wmarks).
    pub fn promo_or_derived(&self) -> u64 {
        self.promo.unwrap_or_else(|| self.high.saturating_add(self.high.saturating_sub(self.low)))
    }
}

/// Parses the zones in `text`. Lines that are not understood are skipped: the kernel adds some with
/// every release.
pub fn parse(text: &str) -> Vec<Zone> {
    let mut zones: Vec<Zone> = Vec::new();
    for line in text.lines() {
        let mut words = line.split_ascii_whitespace();
        let Some(first) = words.next() else { continue };
        if first == "Node" {
            if let Some(zone) = header(line) {
                zones.push(zone);
            }
            continue;
        }
        let Some(zone) = zones.last_mut() else { continue };
        let number = |word: Option<&str>| word.and_then(|w| w.parse::<u64>().ok());
        let boost = zone.boost;
        let unboosted = |word| number(word).map(|mark| mark.saturating_sub(boost));
        match first {
            "pages" if words.next() == Some("free") => zone.free = number(words.next()).unwrap_or(0),
            "boost" => zone.boost = number(words.next()).unwrap_or(0),
            "min" => zone.min = unboosted(words.next()).unwrap_or(0),
            "low" => zone.low = unboosted(words.next()).unwrap_or(0),
            "high" => zone.high = unboosted(words.next()).unwrap_or(0),
            "promo" => zone.promo = unboosted(words.next()),
            "spanned" => zone.spanned = number(words.next()).unwrap_or(0),
            "present" => zone.present = number(words.next()).unwrap_or(0),
            "managed" => zone.managed = number(words.next()).unwrap_or(0),
            "start_pfn:" => zone.start_pfn = number(words.next()),
            "node_unreclaimable:" => zone.unreclaimable = number(words.next()).is_some_and(|n| n != 0),
            "protection:" => zone.lowmem_reserve = last_of_protection(line),
            _ => {}
        }
    }
    zones
}

/// `Node 0, zone   Normal`
fn header(line: &str) -> Option<Zone> {
    let (node, name) = line.trim_start().strip_prefix("Node")?.split_once(',')?;
    let node = NodeId(node.trim().parse().ok()?);
    let name = name.trim().strip_prefix("zone")?.trim().to_owned();
    Some(Zone { node, name, ..Zone::default() })
}

/// `protection: (0, 3019, 5963, 5963)`: the last is what an allocation for the highest zone must
/// leave.
fn last_of_protection(line: &str) -> u64 {
    let list = line.rsplit('(').next().unwrap_or("").trim_end().trim_end_matches(')');
    list.rsplit(',').next().and_then(|n| n.trim().parse().ok()).unwrap_or(0)
}

/// The state of every node with managed pages, ascending by number: sums over its zones.
pub fn node_states(zones: &[Zone]) -> Vec<NodeState> {
    let mut states: Vec<NodeState> = Vec::new();
    for zone in zones.iter().filter(|z| z.managed > 0) {
        let at = match states.binary_search_by_key(&zone.node, |s| s.node) {
            Ok(at) => at,
            Err(at) => {
                states.insert(at, NodeState { node: zone.node, ..NodeState::default() });
                at
            }
        };
        let state = &mut states[at];
        let marks = &mut state.watermarks;
        let sums: [(&mut u64, u64); 6] = [
            (&mut state.free_pages, zone.free),
            (&mut state.managed_pages, zone.managed),
            (&mut marks.min_pages, zone.min),
            (&mut marks.low_pages, zone.low),
            (&mut marks.high_pages, zone.high),
            (&mut marks.promo_pages, zone.promo_or_derived()),
        ];
        for (sum, part) in sums {
            *sum = sum.saturating_add(part);
        }
    }
    states
}

/// Nodes on which kswapd has given up, ascending.
pub fn given_up(zones: &[Zone]) -> Vec<NodeId> {
    let mut nodes: Vec<NodeId> =
        zones.iter().filter(|z| z.managed > 0 && z.unreclaimable).map(|z| z.node).collect();
    nodes.sort_unstable();
    nodes.dedup();
    nodes
}

/// Whether the kernel promotes every faulting page to `node` because the node has memory to spare:
/// any populated zone with more free than promo watermark + max(1 GiB, 1/16 of the node) (Linux
/// 6.12 kernel/sched/fair.c, pgdat_free_space_enough).
pub fn free_space_promotion(zones: &[Zone], node: NodeId, size: PageSize) -> bool {
    let of_node = || zones.iter().filter(|z| z.node == node);
    let present: u64 = of_node().fold(0, |sum, z| sum.saturating_add(z.present));
    let enough = size.pages_in_kib(1 << 20).max(present / 16);
    of_node().filter(|z| z.present > 0).any(|z| {
        let mark = z.promo_or_derived().saturating_add(z.boost);
        z.free > mark.saturating_add(enough).saturating_add(z.lowmem_reserve)
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use thermocline_core::topology::Watermarks;

    use super::*;

    const TWO_NODES: &str = "\
Node 0, zone      DMA
  per-node stats
      nr_inactive_anon 84067
  pages free     100
        boost    0
        min      1
        low      2
        high     3
        promo    4
        spanned  4095
        present  3998
        managed  3840
        cma      0
        protection: (0, 3019, 5963, 5963, 5963)
      nr_free_pages 100
  pagesets
    cpu: 0
              count: 0
              high:  7
              high_min: 9
  node_unreclaimable:  0
  start_pfn:           1
Node 0, zone   Normal
  pages free     1000
        boost    512
        min      522
        low      532
        high     542
        promo    552
        spanned  8000
        present  8000
        managed  7900
        protection: (0, 0, 0, 0, 0)
  start_pfn:           4096
Node 0, zone  Movable
  pages free     0
        min      32
        low      32
        high     32
        promo    32
        spanned  0
        present  0
        managed  0
        protection: (0, 0, 0, 0, 0)
Node 2, zone   Normal
  pages free     500
        min      10
        low      25
        high     40
        spanned  800
        present  800
        managed  700
        protection: (0, 0)
  start_pfn:           1000000
";

    #[test]
    fn sums_zones_and_ignores_per_cpu_lines_and_empty_zones() {
        let states = node_states(&parse(TWO_NODES));
        let node0 = NodeState {
            node: NodeId(0),
            free_pages: 1100,
            managed_pages: 11740,
            watermarks: Watermarks { min_pages: 11, low_pages: 22, high_pages: 33, promo_pages: 44 },
        };
        assert_eq!(states[0], node0);
        assert_eq!(states.len(), 2);
    }

    #[test]
    fn knows_where_kswapd_has_given_up() {
        assert_eq!(given_up(&parse(TWO_NODES)), []);
        let text = TWO_NODES.replace("node_unreclaimable:  0", "node_unreclaimable:  1");
        assert_eq!(given_up(&parse(&text)), [NodeId(0)]);
    }

    #[test]
    fn derives_the_promo_mark_of_older_kernels() {
        let states = node_states(&parse(TWO_NODES));
        assert_eq!(states[1].watermarks.promo_pages, 55);
        assert_eq!(states[1].watermarks.low_pages, 25);
    }

    #[test]
    fn reads_the_reserve_of_the_highest_zone() {
        let zones = parse(TWO_NODES);
        assert_eq!(zones[0].lowmem_reserve, 5963);
        assert_eq!(zones[0].start_pfn, Some(1));
        assert_eq!(zones[2].start_pfn, None);
        assert_eq!(zones[3].name, "Normal");
    }

    #[test]
    fn free_space_promotion_opens_above_one_gib_or_a_sixteenth_of_the_node() {
        for size in PageSize::ALL {
            free_space_promotion_opens(size);
        }
    }

    fn free_space_promotion_opens(size: PageSize) {
        let gib = size.pages_in_kib(1 << 20);
        let zone =
            |free, present| Zone { free, present, promo: Some(40), managed: present, ..Zone::default() };
        let open = |z: Zone| free_space_promotion(&[z], NodeId(0), size);
        assert!(!open(zone(gib + 40, 3 * gib)));
        assert!(open(zone(gib + 41, 3 * gib)));
        assert!(!open(zone(2 * gib, 32 * gib)), "a sixteenth of 32 GiB is 2 GiB");
        assert!(open(zone(2 * gib + 41, 32 * gib)));
        let reserved = Zone { lowmem_reserve: 10, ..zone(gib + 41, 3 * gib) };
        assert!(!open(reserved));
        assert!(!open(Zone { boost: 1, ..zone(gib + 41, 3 * gib) }), "the kernel's own comparison has it");
    }

    proptest! {
        #[test]
        fn any_text_is_answered(text in "(Node|pages free|min|protection:|start_pfn:|[ ,()\\n]|[0-9]{0,25}|.){0,60}") {
            let zones = parse(&text);
            let _ = node_states(&zones);
            let _ = free_space_promotion(&zones, NodeId(0), PageSize::default());
        }
    }
}
