//! The mappings behind accesses, for rules that look at neighbours: read from /proc/PID/maps on
//! request, at most once a second for each process.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ops::Range;
use std::time::Duration;

use thermocline_core::access::{Mappings, Marked};
use thermocline_core::units::{Nanos, PAGE_SHIFT, Pid, VirtPage};

use super::now;
use crate::aside::{Answer, Aside, Later};
use crate::root::{Root, read_optional};
use crate::source::hintfault::HintFaultSource;

/// Maximum number of processes whose mappings are cached.
const PROCESSES_MAX: usize = 64;
/// Time limit of a reading, and how long the machine's loop waits for it, once for each process
/// that hangs.
const READ_MAX: Duration = Duration::from_millis(500);
const PATIENCE: Duration = Duration::from_millis(1);
/// Maximum age of cached mappings.
const AGE_MAX: Nanos = Nanos::from_s(1);

/// Mappings of a process, as virtual page numbers, ascending, and when they were read.
type Known = (Nanos, Vec<Range<u64>>);

/// Mappings by process.
#[derive(Debug)]
pub(super) struct Maps {
    root: Root,
    reading: RefCell<Later<String>>,
    known: RefCell<BTreeMap<Pid, Known>>,
}

impl Maps {
    pub(super) fn new(root: &Root) -> Maps {
        let reading = Later::new(Aside::new(root, "its mappings were read", READ_MAX), PATIENCE);
        Maps { root: root.clone(), reading: RefCell::new(reading), known: RefCell::default() }
    }

    fn bounds(&self, page: VirtPage) -> Option<Range<u64>> {
        let mut known = self.known.borrow_mut();
        let at = now();
        let fresh = known.get(&page.pid).is_some_and(|(read, _)| at.since(*read) < AGE_MAX);
        if !fresh {
            if known.len() >= PROCESSES_MAX && !known.contains_key(&page.pid) {
                known.clear();
            }
            let file = self.root.proc.join(page.pid.0.to_string()).join("maps");
            // A process that is gone or inaccessible has no neighbours; one that has not answered
            // yet has none for now.
            let read = move || read_optional(&file).ok().flatten().unwrap_or_default();
            let text = match self.reading.borrow_mut().ask((page.pid, 0), read) {
                Answer::Here(text) => text,
                Answer::NotYet => return None,
                Answer::Hung => String::new(),
            };
            known.insert(page.pid, (at, parse(&text)));
        }
        let ranges = &known.get(&page.pid)?.1;
        let after = ranges.partition_point(|r| r.end <= page.vpn);
        ranges.get(after).filter(|r| r.contains(&page.vpn)).cloned()
    }
}

/// The ranges of /proc/PID/maps, as virtual page numbers; lines of another form are left out.
fn parse(text: &str) -> Vec<Range<u64>> {
    let line = |l: &str| {
        let (start, end) = l.split(' ').next()?.split_once('-')?;
        let page = |hex| u64::from_str_radix(hex, 16).ok().map(|address| address >> PAGE_SHIFT);
        Some(page(start)?..page(end)?)
    };
    text.lines().filter_map(line).collect()
}

/// The combined knowledge of the source and /proc.
#[derive(Debug)]
pub(super) struct View<'a> {
    pub(super) source: Option<&'a HintFaultSource>,
    pub(super) maps: &'a Maps,
}

impl Mappings for View<'_> {
    fn bounds(&self, page: VirtPage) -> Option<Range<u64>> {
        self.maps.bounds(page)
    }

    fn marked(&self, page: VirtPage) -> Option<Marked> {
        self.source.is_some_and(|source| source.is_marked(page)).then_some(Marked { node: None, pfn: None })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mapping_that_holds_a_page_is_found() {
        let dir = tempfile::tempdir().unwrap();
        let root = Root::at(dir.path());
        std::fs::create_dir_all(root.proc.join("7")).unwrap();
        let text = "00400000-00402000 r-xp 00000000 08:01 1 /bin/a\nnonsense\n7f0000000000-7f0000010000 rw-p 0 0:0 0\n";
        std::fs::write(root.proc.join("7/maps"), text).unwrap();
        let maps = Maps::new(&root);
        let bounds = |address| maps.bounds(VirtPage::of_address(Pid(7), address));
        let begin = std::time::Instant::now();
        while bounds(0x40_1fff).is_none() && begin.elapsed() < Duration::from_secs(20) {
            std::thread::yield_now();
        }
        assert_eq!(bounds(0x40_1fff), Some(0x400..0x402));
        assert_eq!(bounds(0x40_2000), None);
        assert_eq!(bounds(0x7f00_0000_f000), Some(0x7_f000_0000..0x7_f000_0010));
        assert_eq!(maps.bounds(VirtPage::of_address(Pid(8), 0x400000)), None);
    }
}
