//! Source `listing`: frames that another program has found to be hot, from a file that it writes.
//!
//! What would be `crates/core/src/config/listing_source.rs` and `crates/linux/src/source/listing`.

use std::any::Any;
use std::fs;
use std::time::Duration;

use thermocline_core::access::{Access, Detail};
use thermocline_core::config::schema::Any as AnyOf;
use thermocline_core::config::{Enabled, Source, SourceKeys};
use thermocline_core::section;
use thermocline_core::statistics::Declared;
use thermocline_core::units::Pfn;
use thermocline_linux::root::{Root, read_optional};
use thermocline_linux::source::{
    Counted, EvidenceSource, Facts, Frames, Opened, Opening, Probed, Row, SourceStatus, Turn, no_plan,
};

/// The file, below the folder of the kernel's processes so that a test can have its own.
const FILE: &str = "thermocline-hot-frames";
/// How often it is looked for: a new one is not announced.
const LOOK_EVERY: Duration = Duration::from_secs(1);

section! {
    /// `[source.listing]`: frames that another program has found to be hot.
    ListingSource {
        /// Use this source.
        enabled: bool = false, "", AnyOf("true or false"), "ours";
        /// How much the word of this source counts beside that of others.
        weight: u8 = 8, "", 1..=100, "ours";
    }
}

impl SourceKeys for ListingSource {
    fn enabled(&self) -> Enabled {
        self.enabled.into()
    }

    fn weight(&self) -> u8 {
        self.weight
    }
}

/// The source's row. It would be `Source::Listing`, which the row in `config/source.rs` makes.
pub const ROW: Row = Row {
    source: Source::Device,
    what: "listed frames",
    cannot: "listed frames cannot be read",
    counted_as: "listing",
    sees_top_tier: false,
    probe,
    plan: no_plan,
    open,
    statistics: || vec![("listing", Stats::statistics())],
};

fn probe(facts: &mut Facts<'_>) -> Probed {
    let (status, detail) = match facts.root.proc.is_dir() {
        true => (SourceStatus::Usable, "frames that another program lists"),
        false => (SourceStatus::Unavailable, "there is no folder that a list could be in"),
    };
    Probed::new(Source::Device, status, detail)
}

fn open(opening: &mut Opening<'_>) -> Opened {
    Ok(Some(Box::new(Listing { root: opening.root.clone(), stats: Stats::default() })))
}

fn text(stats: &Stats) -> String {
    format!("listing: {} lines read, {} of no frame here\n", stats.lines, stats.malformed)
}

thermocline_core::statistics! {
    /// Counters since the start.
    Stats "listing" {
        /// Lines read.
        lines: u64, "lines", Counter;
        /// Lines that named no frame of this machine.
        malformed: u64, "lines", Counter trouble;
    }
}

/// The open source.
#[derive(Debug)]
struct Listing {
    root: Root,
    stats: Stats,
}

impl EvidenceSource for Listing {
    fn describe(&self) -> String {
        format!("frames listed in {FILE}")
    }

    fn counted(&self) -> Counted {
        Counted::new(&self.stats, text(&self.stats))
    }

    /// Takes the list away, so that each is read once. Lines beyond what is read at once are lost.
    fn poll(&mut self, turn: &mut Turn<'_>) -> bool {
        let file = self.root.proc.join(FILE);
        let Some(list) = read_optional(&file).ok().flatten() else { return false };
        // A list that stays is read again, and says the same.
        let _ = fs::remove_file(&file);
        for line in list.lines().take(turn.max) {
            self.stats.lines += 1;
            let fields = line.split_once(' ');
            let known = fields.and_then(|(frame, count)| {
                let (pfn, count) = (Pfn(frame.parse().ok()?), count.parse::<u32>().ok()?);
                Some((pfn, turn.frames.node_of(pfn)?, count.max(1)))
            });
            let Some((pfn, node, count)) = known else {
                self.stats.malformed += 1;
                continue;
            };
            let detail = Detail::Count { count, gap: None };
            let (time, pfn) = (turn.now, Some(pfn));
            turn.accesses.push(Access { time, pfn, page: None, order: 0, node, accessor: None, detail });
        }
        false
    }

    fn as_any(&self) -> &dyn Any {
        self
    }

    fn look_every(&self) -> Option<Duration> {
        Some(LOOK_EVERY)
    }

    /// The machine finds out which process has each frame.
    fn frames(&self, _root: &Root) -> Frames {
        Frames::Alone
    }
}
