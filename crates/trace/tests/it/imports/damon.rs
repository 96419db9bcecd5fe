//! DAMON's regions as damo and perf write them, and memtierd's.

use thermocline_core::access::{Region, RegionSpace};
use thermocline_core::units::{Nanos, Pid};
use thermocline_trace::import::{Format, Intervals, Options};
use thermocline_trace::piece::RegionCount;

use super::{Got, One, fixture, got, got_as, until_damage};

const INTERVALS: Intervals = Intervals { sample: Nanos::from_ms(5), aggregation: Nanos::from_ms(100) };
/// The regions of `damo.py`: end of the interval, target, first page, page after the last, checks
/// that found an access, and age in intervals.
const REGIONS: [(u64, u32, u64, u64, u64, u64); 5] = [
    (82_877_315_633_000, 0, 0x7_f000_0000, 0x7_f000_0400, 0, 3),
    (82_877_315_633_000, 0, 0x7_f000_0400, 0x7_f000_0500, 20, 7),
    (82_877_415_700_000, 0, 0x7_f000_0000, 0x7_f000_0400, 1, 0),
    (82_877_415_700_000, 0, 0x7_f000_0400, 0x7_f000_0500, 5, 0),
    (82_877_320_000_000, 1, 0x10_0000, 0x14_0000, 2, 41),
];

/// 20 checks make an aggregation interval of 100 ms: a check that found an access is 5 %.
fn shares(targets: [u32; 2]) -> Vec<One> {
    let one = |(time, target, start, end, accesses, age): (u64, u32, u64, u64, u64, u64)| {
        let region = Region {
            space: RegionSpace::Target(targets[target as usize]),
            start,
            end,
            access_rate_bp: 500 * accesses as u16,
            age: Nanos(age * 100_000_000),
            check: Nanos::from_ms(5),
        };
        One::Region(Nanos(time), region)
    };
    REGIONS.map(one).to_vec()
}

fn counts(targets: [u32; 2]) -> Vec<One> {
    let one = |(time, target, start, end, accesses, age): (u64, u32, u64, u64, u64, u64)| {
        let space = RegionSpace::Target(targets[target as usize]);
        One::Count(Nanos(time), RegionCount { space, start, end, accesses, writes: None, age: Some(age) })
    };
    REGIONS.map(one).to_vec()
}

fn with_intervals() -> Options {
    Options { intervals: Some(INTERVALS), ..Options::default() }
}

fn whole(got: Got) -> Vec<One> {
    assert_eq!(got.result.expect("it is whole").damage, None);
    got.evidence
}

#[test]
fn where_intervals_are_named_a_count_is_a_share_of_checks() {
    for name in ["damo-3.4.3.json", "damo-3.4.3.json_compressed"] {
        let got = got(&fixture(name), &Options::default());
        let targets: Vec<&str> = got.settings.iter().map(|(_, name)| name.as_str()).collect();
        assert_eq!(
            targets,
            ["record 0, kdamond 0, context 0, target 0", "record 1, kdamond 1, context 0, target 0"]
        );
        assert_eq!(got.evidence, shares([0, 1]), "{name}");
    }
}

#[test]
fn where_they_are_not_it_stays_a_count_unless_they_are_told() {
    let bytes = fixture("damo-3.4.3-no-intervals.json");
    assert_eq!(got(&bytes, &Options::default()).evidence, counts([0, 1]));
    assert_eq!(got(&bytes, &with_intervals()).evidence, shares([0, 1]));
    // damo's text has no kdamond, so that the two targets of number 0 cannot be told apart. It ends
    // with a region that damo makes up, which is none.
    let bytes = fixture("damo-3.4.3.perf_script");
    assert_eq!(got(&bytes, &Options::default()).evidence, counts([0, 0]));
    assert_eq!(got(&bytes, &with_intervals()).evidence, shares([0, 0]));
}

fn aggregated(thread: &str, time: &str, target: u64, regions: u32, region: &str) -> String {
    let head = format!("{thread} [001] {time}: damon:damon_aggregated:");
    format!("{head} target_id={target} nr_regions={regions} {region}\n")
}

/// Lines of two kdamonds at the same time; the kernel names targets by an address before Linux
/// 5.17, and has no age then.
#[test]
fn snapshots_are_put_together_by_kdamond_and_target() {
    let far = 18_446_623_435_582_458_880;
    let text = [
        aggregated("kdamond.0  4452", "10.000001", far, 2, "4096-8192: 1"),
        aggregated("kdamond.1  4453", "10.000002", far, 1, "4096-8192: 9"),
        "kdamond.0  4452 [000] 10.000003: damon:damos_before_apply: ctx_idx=0 scheme_idx=0\n".to_owned(),
        aggregated("kdamond.0  4452", "10.000004", far, 2, "8192-16384: 2"),
    ];
    let got = got(text.concat().as_bytes(), &with_intervals());
    let count = |ns, target, start, end, accesses| {
        let space = RegionSpace::Target(target);
        One::Count(Nanos(ns), RegionCount { space, start, end, accesses, writes: None, age: None })
    };
    // Without an age no region has all that evidence of a share has.
    let wanted = [
        count(10_000_002_000, 1, 1, 2, 9),
        count(10_000_001_000, 0, 1, 2, 1),
        count(10_000_001_000, 0, 2, 4, 2),
    ];
    assert_eq!(got.evidence, wanted);
    let left_out = got.result.expect("it is whole").left_out;
    assert_eq!(left_out.into_iter().collect::<Vec<_>>(), [("other events of DAMON", 1)]);
}

#[test]
fn a_snapshot_that_lacks_regions_is_kept_and_counted_and_a_cut_one_is_not() {
    let line = |time: &str, region: &str| aggregated("kdamond.0 1", time, 0, 2, region);
    let lost =
        [line("1.5", "0-4096: 1 1"), line("2.5", "0-4096: 2 1"), line("2.5", "4096-8192: 3 1")].concat();
    let found = got(lost.as_bytes(), &Options::default());
    assert_eq!(found.evidence.len(), 3);
    assert_eq!(found.result.expect("it can be read").left_out.values().copied().collect::<Vec<_>>(), [1]);
    let cut = lost + &line("3.5", "0-4096: 4 1");
    let error = got(cut.as_bytes(), &Options::default()).result.expect_err("it is cut").to_string();
    assert!(error.starts_with("line 4: ") && error.contains("1 of its 2 regions"), "{error}");
    assert_eq!(got(cut.as_bytes(), &until_damage()).evidence.len(), 3);
}

#[test]
fn memtierds_regions_are_counts_of_processes() {
    let got = got(&fixture("memtierd-raw.txt"), &Options::default());
    let one = |time, pid, start, pages, accesses, writes| {
        let space = RegionSpace::Virtual(Pid(pid));
        let region =
            RegionCount { space, start, end: start + pages, accesses, writes: Some(writes), age: None };
        One::Count(Nanos(time), region)
    };
    let wanted = [
        one(1_764_295_200_123_456_789, 4711, 0x7_f5a3_c000, 512, 1, 0),
        one(1_764_295_200_123_456_789, 4711, 0x7_f5a3_c200, 17, 0, 0),
        one(1_764_295_200_200_000_000, 4712, 0x5_5d9c_48da, 512, 0, 3),
        one(1_764_295_205_123_456_789, 4711, 0x7_f5a3_c000, 512, 2, 0),
        one(1_764_295_210_123_456_789, 4711, 0x7_f5a3_c000, 512, 0, 0),
    ];
    assert_eq!(whole(got), wanted);
}

#[test]
fn json_that_is_none_of_damos_is_refused_with_its_line() {
    let region = "{\"start\": \"8,192\", \"end\": 4096, \"nr_accesses\": {\"samples\": 1, \"percent\": null}, \
                  \"age\": {\"usec\": null, \"aggr_intervals\": 0}}";
    let snapshot = |end: &str, regions: &str| format!("{{\"end_time\": {end}, \"regions\": [{regions}]}}");
    for (text, line, word) in [
        ("[\n{\"target_id\": 0}\n]", 2, "snapshots"),
        ("[\n\n7]", 3, "a record"),
        ("[]\n[]", 2, "no recording"),
        (&format!("[{{\"snapshots\":\n[{}]}}]", snapshot("5", region)), 2, "ends before it begins"),
        (&format!("[{{\"snapshots\":\n[{}]}}]", snapshot("-5", "")), 2, "end_time"),
        ("[{\"snapshots\": [],\n\"intervals\": null}]", 2, "behind the snapshots"),
        ("[{\"intervals\": {\"sample_us\": \"soon\", \"aggr_us\": 1},\n\"snapshots\": []}]", 2, "intervals"),
    ] {
        let got = got_as(Format::Damo, text.as_bytes(), &Options::default());
        let error = got.result.expect_err("it is refused").to_string();
        assert!(error.starts_with(&format!("line {line}: ")) && error.contains(word), "{text}: {error}");
    }
}

#[test]
fn regions_of_a_snapshot_come_in_order_and_do_not_overlap() {
    let region = |start: u64, end: u64| {
        format!(
            "{{\"start\": {start}, \"end\": {end}, \"nr_accesses\": {{\"samples\": 1}}, \"age\": \
             {{\"aggr_intervals\": 0}}}}"
        )
    };
    let text = |a, b| format!("[{{\"snapshots\": [{{\"end_time\": 5, \"regions\": [{a}, {b}]}}]}}]");
    let found = got(text(region(8192, 12288), region(0, 8192)).as_bytes(), &Options::default());
    let starts = found.evidence.iter().map(|one| match one {
        One::Count(_, region) => region.start,
        other => panic!("{other:?}"),
    });
    assert_eq!(starts.collect::<Vec<_>>(), [0, 2]);
    let got = got(text(region(8192, 12288), region(0, 8193)).as_bytes(), &Options::default());
    let error = got.result.expect_err("they overlap").to_string();
    assert!(error.contains("overlap"), "{error}");
}

/// DAMON may tune its intervals: what was configured is then not how it was monitored.
#[test]
fn a_tuned_interval_leaves_counts() {
    let text = String::from_utf8(fixture("damo-3.4.3.json")).expect("it is text");
    for (tuned, wanted) in [("\"80000\"", counts([0, 1])), ("5000", shares([0, 1]))] {
        let text = text.replace("\"sample_interval_us\": null", &format!("\"sample_interval_us\": {tuned}"));
        assert_eq!(got(text.as_bytes(), &Options::default()).evidence, wanted);
    }
}
