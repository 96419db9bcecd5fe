//! The rules of three published series on a live kernel, each beside the same without it.

use serde_json::Value;
use thermocline_lab::truth::{attach, offer_samples};
use thermocline_lab::{Line, Machine, ThpMode};

use super::{MIB, Run, count, soak, where_time_is_no_matter};

/// A page of the slow program is accessed once in this many seconds.
const WAIT_S: u64 = 5;

fn published_series_do_what_they_claim(line: Line) {
    let sizes = [640, 128, 512];
    let mut run = Run::new(line, sizes, ThpMode::Never, 400)
        .env("WAIT_S", WAIT_S)
        .env("SECONDS_EACH", if soak() { 40 } else { 15 })
        .env("PAGES", if soak() { 12_000 } else { 3600 })
        .env("WAYS", if soak() { "up down both" } else { "up" });
    // Not in the folder that the script clears.
    let plugin = tempfile::Builder::new().prefix("series").tempdir_in("/tmp").unwrap();
    let machine = Machine::of_sizes(&sizes.map(|size| size * MIB));
    let (guest, rings) = offer_samples(run.guest, plugin.path());
    run.guest = attach(guest, &machine, plugin.path(), &["cache-kib=256", &rings]).unwrap();
    let Some(_) = run.run(include_str!("series.sh")) else { return };

    fault_counts_take_what_time_rejects(&run.json("latency"), &run.json("fault-count"));

    let sampled = run.json("inter-arrival");
    let hot = run.verdict("judged").hot_in_dram;
    println!("inter-arrival: hot {:.1} % in DRAM; {}", hot * 100.0, sampled["hwsample"]);
    assert_eq!(count(&sampled, "/counters/evidence/hint-fault"), 0, "samples are the only source");
    assert!(hot >= 0.7, "two samples of a hot page soon after one another promote it");

    for way in if soak() { &["up", "down", "both"][..] } else { &["up"] } {
        let [without, with] = [false, true].map(|on| Walk::of(&run.json(&format!("{way}-{on}"))));
        println!("{way}: {without:?}, with pages ahead {with:?}");
        assert_eq!(without.ahead, 0);
        assert!(with.ahead * 10 >= with.promoted, "hardly a page was proposed ahead");
        assert!(with.faults_a_page() <= 0.8 * without.faults_a_page(), "no fault was saved");
    }
}

/// Waits of several seconds: mainline's second rejects most of them (all but 1 - e^(-1/5), 18 %), a
/// million faults of the process none.
fn fault_counts_take_what_time_rejects(by_time: &Value, by_count: &Value) {
    let share = |found: &Value| {
        let counter = |name: &str| count(found, &format!("/counters/{name}")) as f64;
        println!("{} of {} hint faults proposed", counter("proposed"), counter("numa_hint_faults"));
        assert!(counter("numa_hint_faults") > 5000.0, "too few to show anything");
        counter("proposed") / counter("numa_hint_faults")
    };
    let (by_time, by_count) = (share(by_time), share(by_count));
    assert!(by_time < 0.4, "latency takes {by_time}");
    assert!(by_count > 0.9, "fault-count takes {by_count}");
}

/// What came of a walk through memory.
#[derive(Debug)]
struct Walk {
    faults: u64,
    promoted: u64,
    /// Pages proposed before the program came to them.
    ahead: u64,
}

impl Walk {
    fn of(found: &Value) -> Walk {
        let gauges = found["gauges"].as_array().unwrap();
        let ahead = gauges.iter().find(|gauge| gauge["name"] == "neighbours_proposed");
        Walk {
            faults: count(found, "/counters/numa_hint_faults"),
            promoted: count(found, "/counters/pgpromote_success"),
            ahead: ahead.map_or(0, |gauge| gauge["value"].as_u64().unwrap()),
        }
    }

    fn faults_a_page(&self) -> f64 {
        assert!(self.promoted > 500, "hardly a page came up: {self:?}");
        self.faults as f64 / self.promoted as f64
    }
}

#[test]
fn published_series_do_what_they_claim_on_6_12() {
    published_series_do_what_they_claim(Line::Stable);
}

#[test]
fn published_series_do_what_they_claim_on_the_newest() {
    where_time_is_no_matter(|| published_series_do_what_they_claim(Line::Newest));
}
