//! Where a process has memory, as initial regions for DAMON.
//!
//! By default DAMON starts with three regions for a process's addresses, which leave out only the
//! two largest holes. A heap far from its program is then a small part of a region that is mostly a
//! hole, and is hardly ever checked. So the mapped ranges are set explicitly. DAMON never joins
//! regions that do not touch, and splits none once it has half of `regions_max`. So a process gets
//! at most a quarter of that, and if it has more mappings, those with the smallest holes between
//! them are joined. A region is hot as a whole until it is split, which takes time, so mapped
//! ranges start in pieces, another quarter of `regions_max`.

use std::io::{self, BufRead};
use std::ops::Range;

/// Minimum size of a piece, and the unit of its size.
const PIECE_BYTES: u64 = 64 << 10;
/// Ranges kept while mappings are read; above that the smallest holes are filled. More than any
/// kdamond gets.
const HELD_MAX: usize = 1 << 16;

/// Ranges of addresses, ascending, of which no two touch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Ranges {
    all: Vec<Range<u64>>,
    /// Mapped bytes in them.
    mapped: u64,
}

impl Ranges {
    /// Reads `/proc/PID/maps` into at most `most` ranges. Inaccessible mappings are left out, and
    /// so are the pages that the kernel maps into every process.
    ///
    /// # Errors
    /// It cannot be read.
    pub(super) fn read(maps: impl BufRead, most: usize) -> io::Result<Ranges> {
        let mut ranges = Ranges::default();
        for line in maps.split(b'\n') {
            if let Some(range) = mapping(&String::from_utf8_lossy(&line?)) {
                ranges.add(range);
            }
        }
        join(&mut ranges.all, most.max(1));
        Ok(ranges)
    }

    /// The kernel lists mappings in order. Those of a process that maps meanwhile may come twice.
    fn add(&mut self, range: Range<u64>) {
        let end = self.all.last().map_or(0, |last| last.end);
        self.mapped += range.end.saturating_sub(range.start.max(end));
        match self.all.last_mut() {
            Some(last) if range.start <= last.end => last.end = last.end.max(range.end),
            _ => self.all.push(range),
        }
        if self.all.len() > HELD_MAX {
            join(&mut self.all, HELD_MAX / 2);
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    pub(super) fn len(&self) -> usize {
        self.all.len()
    }

    /// The same as regions: new parts, not in `before`, in pieces of one size except the last of
    /// each range, about `more` in all; the rest whole, because a kdamond keeps its findings for
    /// ranges set whole. Their number is at most four times that of ranges and `more` together.
    pub(super) fn pieces(&self, before: &Ranges, more: usize) -> Vec<Range<u64>> {
        let other = self.watched() - overlap(&self.all, &before.all);
        let size = other.div_ceil(more.max(1) as u64).next_multiple_of(PIECE_BYTES);
        let mut pieces = Vec::new();
        let mut known = before.all.iter().peekable();
        for range in &self.all {
            let mut at = range.start;
            while let Some(old) = known.next_if(|old| old.end <= range.end) {
                let both = old.start.max(range.start)..old.end;
                if !both.is_empty() {
                    cut(at..both.start, size, &mut pieces);
                    at = both.end;
                    pieces.push(both);
                }
            }
            let both = known.peek().map_or(range.end, |old| old.start.clamp(at, range.end))..range.end;
            cut(at..both.start, size, &mut pieces);
            if !both.is_empty() {
                pieces.push(both);
            }
        }
        pieces
    }

    /// Bytes that are mapped.
    pub(super) fn mapped(&self) -> u64 {
        self.mapped
    }

    /// Watched bytes: mapped ones, and the holes within ranges.
    pub(super) fn watched(&self) -> u64 {
        bytes(&self.all)
    }

    /// Whether they differ from `other` by more than a sixty-fourth of what is watched.
    pub(super) fn differs(&self, other: &Ranges) -> bool {
        let both = overlap(&self.all, &other.all);
        let apart = self.watched() + other.watched() - 2 * both;
        apart > self.watched() / 64
    }
}

/// The addresses of a line of /proc/PID/maps; `None` if there is nothing to watch.
fn mapping(line: &str) -> Option<Range<u64>> {
    let mut words = line.split_ascii_whitespace();
    let (start, end) = words.next()?.split_once('-')?;
    let may = words.next()?;
    let of_kernel = words.nth(3).is_some_and(|name| name.starts_with("[v"));
    let address = |hex| u64::from_str_radix(hex, 16).ok();
    let range = address(start)?..address(end)?;
    (!may.starts_with("---") && !of_kernel && range.start < range.end).then_some(range)
}

/// Joins ranges until there are at most `most`: only the largest holes stay.
fn join(all: &mut Vec<Range<u64>>, most: usize) {
    let surplus = all.len().saturating_sub(most);
    if surplus == 0 {
        return;
    }
    let hole = |(i, two): (usize, &[Range<u64>])| (two[1].start - two[0].end, i + 1);
    let mut holes: Vec<(u64, usize)> = all.windows(2).enumerate().map(hole).collect();
    holes.sort_unstable();
    let mut filled = vec![false; all.len()];
    holes.iter().take(surplus).for_each(|(_, after)| filled[*after] = true);
    let mut joined: Vec<Range<u64>> = Vec::with_capacity(most);
    for (range, filled) in all.drain(..).zip(filled) {
        match joined.last_mut() {
            Some(last) if filled => last.end = range.end,
            _ => joined.push(range),
        }
    }
    *all = joined;
}

/// Cuts a range into pieces of `size` bytes.
fn cut(range: Range<u64>, size: u64, pieces: &mut Vec<Range<u64>>) {
    let mut at = range.start;
    while at < range.end {
        let end = at.saturating_add(size).min(range.end);
        pieces.push(at..end);
        at = end;
    }
}

fn bytes(all: &[Range<u64>]) -> u64 {
    all.iter().map(|range| range.end - range.start).sum()
}

/// Bytes that are in both.
fn overlap(one: &[Range<u64>], other: &[Range<u64>]) -> u64 {
    let (mut i, mut j, mut sum) = (0, 0, 0);
    while let (Some(a), Some(b)) = (one.get(i), other.get(j)) {
        sum += a.end.min(b.end).saturating_sub(a.start.max(b.start));
        if a.end < b.end { i += 1 } else { j += 1 }
    }
    sum
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const MAPS: &str = "\
00400000-00402000 r-xp 00000000 08:01 1 /bin/a
00402000-00403000 rw-p 00002000 08:01 1 /bin/a
10000000-14000000 rw-p 00000000 00:00 0                          [heap]
nonsense
7f0000000000-7f0040000000 ---p 00000000 00:00 0
7f0040000000-7f0040010000 rw-p 00000000 00:00 0
7f0040011000-7f0040012000 r--s 00000000 08:01 2 /a file
7ffd00000000-7ffd00004000 r--p 00000000 00:00 0                  [vvar]
7ffd00004000-7ffd00006000 r-xp 00000000 00:00 0                  [vdso]
7ffe00000000-7ffe00021000 rw-p 00000000 00:00 0                  [stack]
ffffffffff600000-ffffffffff601000 --xp 00000000 00:00 0          [vsyscall]
";

    fn ranges(maps: &str, most: usize) -> Ranges {
        Ranges::read(maps.as_bytes(), most).unwrap()
    }

    fn heap(start: u64, end: u64) -> Ranges {
        ranges(&format!("{start:x}-{end:x} rw-p 0 0:0 0 [heap]\n"), 9)
    }

    #[test]
    fn what_is_mapped_is_watched_and_heaps_have_ranges_of_their_own() {
        let ranges = ranges(MAPS, 100);
        let expected = [
            0x40_0000..0x40_3000,
            0x1000_0000..0x1400_0000,
            0x7f00_4000_0000..0x7f00_4001_0000,
            0x7f00_4001_1000..0x7f00_4001_2000,
            0x7ffe_0000_0000..0x7ffe_0002_1000,
        ];
        assert_eq!(ranges.all, expected);
        assert_eq!(ranges.mapped(), ranges.watched());
    }

    #[test]
    fn the_smallest_holes_are_filled_first() {
        let four = ranges(MAPS, 4);
        assert_eq!(four.all[2], 0x7f00_4000_0000..0x7f00_4001_2000);
        assert_eq!(four.watched() - four.mapped(), 0x1000);
        assert_eq!(ranges(MAPS, 3).all[0], 0x40_0000..0x1400_0000, "the program and its heap");
        assert_eq!(ranges(MAPS, 0).all, heap(0x40_0000, 0x7ffe_0002_1000).all);
        assert!(ranges("", 3).is_empty());
    }

    #[test]
    fn any_number_of_mappings_is_read_in_bounded_memory() {
        let number = 3 * HELD_MAX as u64;
        // Every thousandth hole is the larger one.
        let at = |n: u64| (n << 13) + ((n / 1000) << 20);
        let lines = (0..number).map(|n| format!("{:x}-{:x} rw-p 0 0:0 0\n", at(n), at(n) + 0x1000));
        let ranges = ranges(&lines.collect::<String>(), 250);
        assert_eq!((ranges.len(), ranges.mapped()), (250, number << 12));
        assert!(ranges.watched() <= 2 * ranges.mapped(), "none of the larger holes is filled");
    }

    #[test]
    fn what_is_mapped_begins_in_pieces() {
        let ranges = ranges("10000000-14000000 rw-p 0 0:0 0 [heap]\n20000000-20001000 rw-p 0 0:0 0\n", 9);
        let pieces = ranges.pieces(&Ranges::default(), 64);
        assert_eq!(pieces.len(), 62);
        assert_eq!(pieces[0], 0x1000_0000..0x1011_0000);
        assert_eq!(pieces[61], 0x2000_0000..0x2000_1000);
        assert!(Ranges::default().pieces(&ranges, 3).is_empty());
    }

    #[test]
    fn what_was_watched_before_stays_whole_and_the_rest_is_cut() {
        let before = heap(0x1000_0000, 0x1400_0000);
        assert_eq!(before.pieces(&before, 64), before.all);
        let grown = heap(0x0ff0_0000, 0x1410_0000).pieces(&before, 4);
        assert_eq!(
            grown,
            [
                0x0ff0_0000..0x0ff8_0000,
                0x0ff8_0000..0x1000_0000,
                0x1000_0000..0x1400_0000,
                0x1400_0000..0x1408_0000,
                0x1408_0000..0x1410_0000,
            ]
        );
        let shrunk = heap(0x1200_0000, 0x1300_0000);
        assert_eq!(shrunk.pieces(&before, 4), shrunk.all);
    }

    #[test]
    fn what_grew_by_little_is_no_other_process() {
        let to = |end: u64| heap(0x1000_0000, end);
        let before = to(0x1400_0000);
        assert!(!before.differs(&before) && !to(0x1400_1000).differs(&before));
        assert!(to(0x1500_0000).differs(&before) && before.differs(&to(0x1500_0000)));
        assert!(to(0x1500_0000).differs(&Ranges::default()));
    }

    /// Mappings with holes before them, in pages; whether they may be accessed.
    fn steps() -> impl Strategy<Value = Vec<(u64, u64, bool)>> {
        prop::collection::vec((0u64..50, 1u64..50, any::<bool>()), 0..200)
    }

    /// The text of such mappings, and the bytes that may be accessed.
    fn text(steps: &[(u64, u64, bool)]) -> (String, u64) {
        let (mut at, mut text, mut mapped) = (0u64, String::new(), 0);
        for (hole, size, may) in steps {
            let start = (at + hole) << 12;
            at += hole + size;
            let end = at << 12;
            mapped += if *may { end - start } else { 0 };
            text += &format!("{start:x}-{end:x} {}p 0 0:0 0\n", if *may { "rw-" } else { "---" });
        }
        (text, mapped)
    }

    proptest! {
        /// For any mappings, all of them are in at most the allowed number of ranges, which do not
        /// touch.
        #[test]
        fn any_process_fits(steps in steps(), most in 1usize..60) {
            let (text, mapped) = text(&steps);
            let found = ranges(&text, most);
            prop_assert!(found.len() <= most);
            prop_assert!(found.all.windows(2).all(|two| two[0].end < two[1].start));
            prop_assert_eq!(found.mapped(), mapped);
            let single = ranges(&text, usize::MAX);
            prop_assert_eq!(single.watched(), mapped);
            prop_assert_eq!(overlap(&single.all, &found.all), mapped, "nothing is left out");
            prop_assert!(!found.differs(&found));
        }

        /// For any ranges watched before, the pieces cover the ranges, in order, and are bounded in
        /// number.
        #[test]
        fn pieces_are_all_of_the_ranges(now in steps(), before in steps(), most in 1usize..60) {
            let (now, before) = (ranges(&text(&now).0, most), ranges(&text(&before).0, most));
            let pieces = now.pieces(&before, most);
            prop_assert!(pieces.iter().all(|piece| piece.start < piece.end));
            prop_assert!(pieces.windows(2).all(|two| two[0].end <= two[1].start));
            prop_assert_eq!(bytes(&pieces), now.watched());
            prop_assert_eq!(overlap(&pieces, &now.all), now.watched());
            prop_assert!(pieces.len() <= 4 * (now.len() + most), "{} pieces", pieces.len());
            for old in &before.all {
                let within = |piece: &&Range<u64>| piece.start < old.end && old.start < piece.end;
                for piece in pieces.iter().filter(within) {
                    prop_assert!(old.start <= piece.start && piece.end <= old.end, "{piece:?} {old:?}");
                }
            }
        }
    }
}
