//! What a private recording does not tell: process numbers, addresses, names.
//!
//! * Processes are numbered from 1 in the order in which they appear.
//! * Addresses are moved: those of each TiB of a process's address space, by a distance of its own.
//!   Which pages are neighbours, and of one huge page, remains; where the program lies does not.
//! * The configuration's names, commands, cgroups, process numbers and paths are left out.
//!
//! Frames, nodes, times, sizes and rates remain.

use thermocline_core::access::{Region, RegionSpace};
use thermocline_core::config::{Config, Daemon, Metrics};
use thermocline_core::hash::FixedMap;
use thermocline_core::units::{Pid, VirtPage};

use crate::config;
use crate::piece::{Answer, Piece};

/// log2 of the base pages of one window of addresses: 1 TiB.
const WINDOW_SHIFT: u32 = 28;
/// Addresses keep their place in a huge page of 2 MiB.
const KEPT_MASK: u64 = (1 << 9) - 1;
/// Settings that are kept; all others are emptied.
const KEPT: [&str; 6] = ["program", "kernel", "clock", "driver", "private", "config"];

/// Hides them, always the same way within a recording.
#[derive(Debug, Default)]
pub struct Private {
    pids: FixedMap<u32, u32>,
    /// The new window of a process's window, and what is added to the pages in it.
    windows: FixedMap<(u32, u64), u64>,
    count: u64,
}

impl Private {
    /// Hides what a piece would tell.
    pub fn hide(&mut self, piece: &mut Piece) {
        match piece {
            Piece::Accesses(batch, answers) => {
                batch.iter_mut().filter_map(|access| access.page.as_mut()).for_each(|page| self.page(page));
                for answer in answers {
                    match answer {
                        Answer::Bounds(page, bounds) => {
                            let add = self.distance(*page);
                            if let Some(bounds) = bounds {
                                bounds.start = bounds.start.wrapping_add(add);
                                bounds.end = bounds.end.wrapping_add(add);
                            }
                            self.page(page);
                        }
                        Answer::Marked(page, _) => self.page(page),
                    }
                }
            }
            Piece::Regions(snapshot) => snapshot.regions.iter_mut().for_each(|region| self.region(region)),
            Piece::RegionCounts(_, regions) => {
                for region in regions {
                    (region.space, region.start, region.end) =
                        self.range(region.space, region.start, region.end);
                }
            }
            Piece::RegionPages(pages) => {
                for at in pages {
                    self.page(&mut at.page);
                    self.region(&mut at.region);
                }
            }
            Piece::Process(pid, _) | Piece::Exec(pid) | Piece::Exit(pid) => *pid = self.pid(*pid),
            Piece::Scans(Some(scans)) => scans.pid = self.pid(scans.pid),
            Piece::Batch(batch) => {
                batch.pid = self.pid(batch.pid);
                batch.moves.iter_mut().for_each(|one| self.page(&mut one.page));
            }
            Piece::Decisions(decisions) => decisions.iter_mut().for_each(|d| self.page(&mut d.page)),
            Piece::Setting(key, value) => *value = Private::setting(key, value),
            _ => {}
        }
    }

    /// What remains of a setting.
    pub fn setting(key: &str, value: &str) -> String {
        if !KEPT.contains(&key) {
            return String::new();
        }
        if key != "config" {
            return value.to_owned();
        }
        let config = config::parse(value).map(without_names).ok();
        config.and_then(|config| serde_json::to_string(&config).ok()).unwrap_or_default()
    }

    fn pid(&mut self, pid: Pid) -> Pid {
        let next = self.pids.len() as u32 + 1;
        Pid(*self.pids.entry(pid.0).or_insert(next))
    }

    /// What is added to a page's number.
    fn distance(&mut self, page: VirtPage) -> u64 {
        let count = &mut self.count;
        *self.windows.entry((page.pid.0, page.vpn >> WINDOW_SHIFT)).or_insert_with(|| {
            *count += 1;
            // The first page that is seen comes to the middle of its new window.
            let middle = (*count << (WINDOW_SHIFT + 1)) + (1 << WINDOW_SHIFT);
            middle.wrapping_sub(page.vpn & !KEPT_MASK)
        })
    }

    fn page(&mut self, page: &mut VirtPage) {
        let add = self.distance(*page);
        *page = VirtPage { pid: self.pid(page.pid), vpn: page.vpn.wrapping_add(add) };
    }

    fn region(&mut self, region: &mut Region) {
        (region.space, region.start, region.end) = self.range(region.space, region.start, region.end);
    }

    fn range(&mut self, space: RegionSpace, start: u64, end: u64) -> (RegionSpace, u64, u64) {
        let RegionSpace::Virtual(pid) = space else { return (space, start, end) };
        let add = self.distance(VirtPage { pid, vpn: start });
        (RegionSpace::Virtual(self.pid(pid)), start.wrapping_add(add), end.wrapping_add(add))
    }
}

/// A configuration without what it names: programs, users, places.
fn without_names(mut config: Config) -> Config {
    config.daemon = Daemon::default();
    config.metrics = Metrics::default();
    for (place, scope) in config.scope.iter_mut().enumerate() {
        scope.name = format!("scope-{}", place + 1);
        scope.pids.clear();
        scope.command = scope.command.as_ref().map(|_| "hidden".to_owned());
        scope.cgroup = scope.cgroup.as_ref().map(|_| format!("/hidden-{}", place + 1));
    }
    config
}

#[cfg(test)]
mod tests {
    use thermocline_core::config::Scope;

    use super::*;

    #[test]
    fn neighbours_stay_neighbours_and_addresses_do_not_stay() {
        let mut private = Private::default();
        let heap = 0x5555_1234_5000 >> 12;
        let stack = 0x7fff_ffff_e000 >> 12;
        let mut of = |pid, vpn| {
            let mut page = VirtPage { pid: Pid(pid), vpn };
            private.page(&mut page);
            page
        };
        let (first, next) = (of(4711, heap), of(4711, heap + 1000));
        assert_eq!((first.pid, next.vpn - first.vpn), (Pid(1), 1000));
        assert_eq!(first.vpn % 512, heap % 512, "its place in a huge page");
        assert_ne!(first.vpn >> 18, heap >> 18);
        let far = of(4711, stack);
        assert!(far.vpn.abs_diff(first.vpn) >= 1 << WINDOW_SHIFT);
        let other = of(4712, heap);
        assert_eq!(other.pid, Pid(2));
        assert_ne!(other.vpn, first.vpn, "equal addresses of two processes are not seen to be equal");
        assert_eq!(of(4711, heap), first);
    }

    #[test]
    fn the_configuration_keeps_its_figures_and_loses_its_names() {
        let mut config = Config::default();
        config.daemon.state_dir = "/srv/own".to_owned();
        config.scope.push(Scope {
            name: "customer".to_owned(),
            command: Some("secretd".to_owned()),
            cgroup: Some("/customer.slice".to_owned()),
            pids: vec![4711],
            rate_share_percent: 37,
            ..Scope::default()
        });
        let text = serde_json::to_string(&config).unwrap();
        let hidden = Private::setting("config", &text);
        for word in ["customer", "secretd", "4711", "/srv/own"] {
            assert!(!hidden.contains(word), "{word}: {hidden}");
        }
        let kept = config::parse(&hidden).unwrap();
        assert!(kept.check().is_ok());
        assert_eq!(kept.scope[0].rate_share_percent, 37);
        assert_eq!((kept.rule.name, kept.manager.name), (config.rule.name, config.manager.name));
        assert_eq!(Private::setting("hostname", "db1"), "");
    }
}
