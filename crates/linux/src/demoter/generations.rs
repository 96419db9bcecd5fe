//! `debugfs/lru_gen`: the generations of pages of every cgroup on every node (Linux mm/vmscan.c,
//! lru_gen_seq_show).

use thermocline_core::units::{Nanos, NodeId};

/// Generations that the kernel keeps from eviction (MIN_NR_GENS).
const PROTECTED: usize = 2;

/// One generation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Generation {
    /// Its number.
    pub seq: u64,
    /// Time since it was created.
    pub age: Nanos,
    /// Approximate number of base pages in it.
    pub pages: u64,
}

/// The generations of one cgroup on one node, oldest first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lru {
    /// The kernel's number of the cgroup's memory controller.
    pub memcg: u64,
    /// The cgroup.
    pub path: String,
    /// The node.
    pub node: NodeId,
    /// The generations.
    pub generations: Vec<Generation>,
}

impl Lru {
    /// The youngest generation.
    pub fn youngest(&self) -> Option<&Generation> {
        self.generations.last()
    }

    /// Base pages of all generations.
    pub fn pages(&self) -> u64 {
        self.generations.iter().map(|g| g.pages).sum()
    }

    /// The youngest generation whose pages, and all older ones, have not been accessed for `idle`;
    /// with the number of their pages. A page of a generation may have been accessed until the next
    /// one was created, but not later.
    pub fn idle_for(&self, idle: Nanos) -> Option<(Generation, u64)> {
        let evictable = self.generations.len().checked_sub(PROTECTED)?;
        let last = (0..evictable).rev().find(|&i| self.generations[i + 1].age >= idle)?;
        let pages = self.generations[..=last].iter().map(|g| g.pages).sum();
        (pages > 0).then_some((self.generations[last], pages))
    }

    /// For how long the oldest pages have not been accessed.
    pub fn oldest_idle(&self) -> Nanos {
        let oldest = self.generations.iter().position(|g| g.pages > 0);
        oldest.and_then(|i| self.generations.get(i + 1)).map_or(Nanos(0), |g| g.age)
    }
}

/// Parses `text`; lines that are not understood are skipped.
pub fn parse(text: &str) -> Vec<Lru> {
    let mut found: Vec<Lru> = Vec::new();
    let mut memcg: Option<(u64, String)> = None;
    for line in text.lines() {
        let mut words = line.split_ascii_whitespace();
        match words.next() {
            Some("memcg") => {
                let id = words.next().and_then(|w| w.parse().ok());
                // A path may have spaces; one that is not printed is the root.
                let path = words.collect::<Vec<_>>().join(" ");
                memcg = id.map(|id| (id, if path.is_empty() { "/".to_owned() } else { path }));
            }
            Some("node") => {
                let node = words.next().and_then(|w| w.parse().ok());
                let (Some((id, path)), Some(node)) = (&memcg, node) else { continue };
                found.push(Lru {
                    memcg: *id,
                    path: path.clone(),
                    node: NodeId(node),
                    generations: Vec::new(),
                });
            }
            Some(first) => {
                let Some(lru) = found.last_mut() else { continue };
                // A letter after a number has no meaning here.
                let number = |w: &str| w.trim_end_matches(|c: char| c.is_ascii_alphabetic()).parse::<u64>();
                let rest: Vec<u64> = words.map_while(|w| number(w).ok()).collect();
                if let (Ok(seq), [age_ms, pages @ ..]) = (first.parse(), rest.as_slice()) {
                    let pages = pages.iter().fold(0u64, |sum, p| sum.saturating_add(*p));
                    let age = Nanos(age_ms.saturating_mul(1_000_000));
                    lru.generations.push(Generation { seq, age, pages });
                }
            }
            None => {}
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// As printed by 6.12; 7.2 has `memcg 1 /`.
    const TEXT: &str = "\
memcg     1 /
 node     0
          3      30004      72256        2601 
          4       6256          0           0 
          5       3100       5202          18x
          6         20          0           0 
 node     2
          0      30004          0           0 
          1      30004          7           0 
memcg 44 /a b/c
 node     0
          7       9000          1           2
";

    #[test]
    fn generations_are_read_by_cgroup_and_node() {
        let found = parse(TEXT);
        let heads: Vec<_> =
            found.iter().map(|l| (l.memcg, l.path.as_str(), l.node.0, l.generations.len())).collect();
        assert_eq!(heads, [(1, "/", 0, 4), (1, "/", 2, 2), (44, "/a b/c", 0, 1)]);
        assert_eq!(found[0].pages(), 72256 + 2601 + 5202 + 18);
        assert_eq!(found[0].youngest().unwrap().seq, 6);
    }

    #[test]
    fn a_generation_is_as_idle_as_the_next_one_is_old() {
        let found = parse(TEXT);
        let idle = |ms| found[0].idle_for(Nanos::from_ms(ms)).map(|(g, pages)| (g.seq, pages));
        assert_eq!(idle(3000), Some((4, 74_857)), "4 ended when 5 was made");
        assert_eq!(idle(3101), Some((3, 74_857)));
        assert_eq!(idle(6257), None);
        assert_eq!(found[1].idle_for(Nanos(0)), None, "the two youngest are protected");
        assert_eq!(found[0].oldest_idle(), Nanos::from_ms(6256));
    }

    proptest! {
        #[test]
        fn any_text_is_answered(text in "[a-z0-9 \\n/]{0,200}", idle in any::<u64>()) {
            for lru in parse(&text) {
                let _ = (lru.idle_for(Nanos(idle)), lru.oldest_idle(), lru.pages());
            }
        }
    }
}
