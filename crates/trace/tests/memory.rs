//! Inputs larger than memory: what an import needs of it does not depend on their size. Alone in
//! its process, the memory of which is measured.

use std::io::{self, Read};

use thermocline_trace::import::{Done, Options, into_folder};

/// Length of each input, in bytes.
const INPUT_BYTES: u64 = 400 << 20;
/// Memory of the process at most: a quarter of an input.
const PEAK_BYTES_MAX: u64 = 100 << 20;

/// A beginning, and then lines that follow each other without end, up to a length; the last one is
/// whole.
struct Text<F> {
    line: F,
    count: u64,
    left: u64,
    waiting: Vec<u8>,
}

impl<F: FnMut(u64) -> String> Text<F> {
    fn new(begin: &str, line: F) -> Text<F> {
        Text { line, count: 0, left: INPUT_BYTES, waiting: begin.as_bytes().to_vec() }
    }
}

impl<F: FnMut(u64) -> String> Read for Text<F> {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        while self.waiting.len() < to.len() && self.left > 0 {
            let line = (self.line)(self.count);
            self.count += 1;
            self.left = self.left.saturating_sub(line.len() as u64);
            self.waiting.extend_from_slice(line.as_bytes());
        }
        let read = to.len().min(self.waiting.len());
        to[..read].copy_from_slice(&self.waiting[..read]);
        self.waiting.drain(..read);
        Ok(read)
    }
}

/// The most memory that the process has had, in bytes.
fn peak() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("Linux has it");
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("it has the line");
    line.trim().trim_end_matches(" kB").parse::<u64>().expect("a number") << 10
}

fn import(name: &str, mut input: impl Read) -> Done {
    let folder = tempfile::tempdir().expect("a folder");
    let until = Options { until_damage: true, ..Options::default() };
    let done = into_folder(&mut input, None, &until, (folder.path(), &[]), &mut |_| ());
    let done = done.expect("it can be imported");
    assert!(peak() < PEAK_BYTES_MAX, "{name}: {} MiB after {INPUT_BYTES} bytes", peak() >> 20);
    done
}

#[test]
fn memory_does_not_depend_on_the_length_of_an_input() {
    let line = |n: u64| format!(" L {:08x},8\n", n.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 20);
    let done = import("lackey", Text::new("", line));
    assert!(done.read.pieces > INPUT_BYTES / 20 && done.read.damage.is_none(), "{:?}", done.read);

    let region = |n: u64| {
        let (second, start) = (n / 500, n % 500 * 8192);
        let head = format!("kdamond.0 7 [000] {second}.000001: damon:damon_aggregated: target_id=0");
        format!("{head} nr_regions=500 {start}-{}: {} {}\n", start + 8192, n % 21, n % 7)
    };
    let done = import("damon", Text::new("", region));
    // The text ends in a snapshot.
    assert!(done.read.pieces > INPUT_BYTES / 150 && done.read.damage.is_some(), "{:?}", done.read);

    let snapshot = |n: u64| {
        let regions: Vec<String> = (0..50)
            .map(|i| {
                let (start, end) = (i * 8192, i * 8192 + 4096);
                format!(
                    "{{\"start\": \"{start}\", \"end\": \"{end}\", \"nr_accesses\": {{\"samples\": {i}, \"percent\": \
                     null}}, \"age\": {{\"usec\": null, \"aggr_intervals\": 1}}}}"
                )
            })
            .collect();
        format!("{{\"start_time\": \"0\", \"end_time\": \"{n}\", \"regions\": [{}]}},\n", regions.join(", "))
    };
    let begin = "[{\"intervals\": null, \"target_id\": 0, \"snapshots\": [\n";
    let done = import("damo", Text::new(begin, snapshot));
    assert!(done.read.pieces > INPUT_BYTES / 200 && done.read.damage.is_some(), "{:?}", done.read);

    // One text that never ends, in either.
    let done = import("a long line", Text::new(" L 00001000,8\n", |_| "x".repeat(1 << 16)));
    assert_eq!((done.read.pieces, done.read.damage.map(|flaw| flaw.line)), (1, Some(2)));
    let done = import("a long name", Text::new("[{\"scheme_filters\": \"", |_| "x".repeat(1 << 16)));
    assert_eq!((done.read.pieces, done.read.damage.map(|flaw| flaw.line)), (0, Some(1)));
}
