//! Rule `frequency`: accesses that follow each other within a window.
//!
//! For each access of any source to a page below the top tier:
//! 1. The count restarts at 1 where the page's last access is longer ago than `freq_window_ms`
//!    (3000; 5000 with `pghot-word`), or unknown; else it grows by one, or by what a device counter
//!    reports. A report of a counter that does not state over how long it counted is treated as one
//!    access: the time until the next report shows how long that was.
//! 2. At `freq_threshold` (2) the page is ready and is proposed, now and at each further access.
//! 3. An access from the page's own node, if a lower tier has CPUs, is ignored.
//!
//! Source: S4, RFC v6, `pghot_record_access`. It is a test of the time between accesses, not of a
//! rate: the window slides with each access. Two things differ: the published code clears a record
//! before it asks whether the page may move, so a refused page starts again; here evidence stays
//! until the page moves or goes cold. And it does not rank; here the latest access interval gives
//! the score, or the better estimate of a hint fault or a device's counter. Its second test,
//! whether the last access is still recent when the move is made, belongs to admission, where it is
//! the candidate's expiry.

use crate::access::{Access, Detail};
use crate::candidate::{Candidate, Candidates, Reason, score_of_rate};
use crate::config::{self, RecordLayout};
use crate::published::pghot::Mode;
use crate::record::{Record, RecordTable};
use crate::rule::{Context, Rule, told};
use crate::topology::Topology;
use crate::units::Nanos;

/// See the module's description.
#[derive(Clone, Debug)]
pub struct Frequency {
    threshold: u8,
    window: Nanos,
    life: Nanos,
}

impl Frequency {
    /// The rule with its keys, on records of this layout; candidates live for `life`.
    pub fn new(config: &config::rule::Frequency, record: RecordLayout, life: Nanos) -> Frequency {
        let mode = if record == RecordLayout::PghotWord { Mode::Precise } else { Mode::Default };
        let window_ms = config.freq_window_ms.unwrap_or(mode.window_ms());
        Frequency { threshold: config.freq_threshold, window: Nanos::from_ms(window_ms), life }
    }

    fn test(&self, frequency_max: u8) -> Test {
        Test { window: self.window, threshold: self.threshold.min(frequency_max), frequency_max }
    }

    /// Proposes the page, ranked by its latest known access interval. Separate from the test, which
    /// runs for every access.
    #[cold]
    #[inline(never)]
    fn propose(&self, access: &Access, gap: Option<Nanos>, out: &mut Candidates) {
        let gap = access.detail.between_accesses(told(gap).unwrap_or(self.window));
        out.push(Candidate::promotion(access, score_of_rate(gap), Reason::Frequent, self.life));
    }
}

/// Accesses that a device reports; one where it does not say over how long it counted. Separate
/// from the test, because devices report few pages.
#[cold]
fn counted(detail: Detail) -> u8 {
    match detail {
        Detail::Count { count, gap: Some(_) } => count.min(255) as u8,
        _ => 1,
    }
}

impl Rule for Frequency {
    fn name(&self) -> &'static str {
        "frequency"
    }

    fn window(&self) -> Nanos {
        self.window
    }

    #[inline]
    fn on_access(&mut self, access: &Access, record: &mut Record, ctx: &Context<'_>, out: &mut Candidates) {
        let gap = record.gap;
        if self.test(ctx.frequency_max).passes(access, record, ctx.topology) {
            self.propose(access, gap, out);
        }
    }

    fn on_batch(
        &mut self,
        batch: &[Access],
        table: &mut RecordTable,
        ctx: &Context<'_>,
        out: &mut Candidates,
    ) {
        // Copies that no call in the loop can change stay in registers.
        let (test, topology) = (self.test(ctx.frequency_max), ctx.topology);
        table.observe(batch, |access, record| {
            let gap = record.gap;
            if test.passes(access, record, topology) {
                self.propose(access, gap, out);
            }
        });
    }
}

/// What is asked at every access.
#[derive(Clone, Copy, Debug)]
struct Test {
    window: Nanos,
    /// At most what the layout can count to: there it saturates.
    threshold: u8,
    frequency_max: u8,
}

impl Test {
    /// Counts an access; returns whether the page is ready.
    #[inline(always)]
    fn passes(self, access: &Access, record: &mut Record, topology: &Topology) -> bool {
        if !topology.is_lower(access.node) || access.accessor == Some(access.node) {
            return false;
        }
        let seen = if let Detail::Count { .. } = access.detail { counted(access.detail) } else { 1 };
        // One test that is rarely true: whether there is an interval at all is unpredictable.
        let gap = record.gap.unwrap_or(Nanos(u64::MAX));
        let before = if gap <= self.window { record.frequency } else { 0 };
        record.frequency = before.saturating_add(seen).min(self.frequency_max);
        record.ready = record.frequency >= self.threshold;
        record.ready
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rule::testing::{Machine, fault, sample};
    use proptest::prelude::*;

    fn rule(threshold: u8, window_ms: u64) -> Frequency {
        let config = config::rule::Frequency { freq_threshold: threshold, freq_window_ms: Some(window_ms) };
        Frequency::new(&config, RecordLayout::Word, Nanos::from_s(10))
    }

    /// Frequencies after samples of one page at the given times in ms, and the times at which it
    /// was proposed.
    fn run(rule: &mut Frequency, times_ms: &[u64]) -> (Vec<u8>, Vec<u64>) {
        let mut machine = Machine::new();
        let frequencies =
            times_ms.iter().map(|t| machine.access(rule, &sample(2, 7, *t)).frequency).collect();
        (frequencies, machine.proposed().iter().map(|c| c.time.ms()).collect())
    }

    #[test]
    fn the_window_is_the_published_one_of_the_records_mode() {
        let window = |record| Frequency::new(&Default::default(), record, Nanos(0)).window().ms();
        use RecordLayout::{Byte, PghotByte, PghotWord, Word};
        assert_eq!([Byte, Word, PghotByte, PghotWord].map(window), [3000, 3000, 3000, 5000]);
    }

    #[test]
    fn a_page_is_ready_at_the_threshold_and_starts_again_after_the_window() {
        let (frequencies, proposed) = run(&mut rule(2, 3000), &[1000, 4000, 7001, 7002, 7003]);
        assert_eq!(frequencies, [1, 2, 1, 2, 3]);
        assert_eq!(proposed, [4000, 7002, 7003]);
    }

    #[test]
    fn the_window_slides_so_that_slow_and_steady_is_hot() {
        // Every 2.9 s for 6 s: as hot for this rule as a million accesses a second.
        let (frequencies, proposed) = run(&mut rule(3, 3000), &[0, 2900, 5800]);
        assert_eq!(frequencies, [1, 2, 3]);
        assert_eq!(proposed, [5800]);
    }

    #[test]
    fn threshold_one_proposes_at_once_as_for_hint_faults() {
        let mut machine = Machine::new();
        let mut rule = rule(1, 3000);
        machine.access(&mut rule, &fault(2, 9, 5000, 250));
        assert_eq!(machine.proposed().len(), 1);
        assert_eq!(machine.proposed()[0].score, score_of_rate(Nanos::from_ms(250)));
        assert_eq!(machine.proposed()[0].reason, Reason::Frequent);
        assert_eq!(machine.proposed()[0].expires, Nanos::from_ms(15_000));
    }

    #[test]
    fn evidence_stays_when_nothing_comes_of_a_proposal() {
        let mut machine = Machine::new();
        let mut rule = rule(2, 3000);
        machine.access(&mut rule, &sample(2, 7, 0));
        let record = machine.access(&mut rule, &sample(2, 7, 10));
        assert!(record.ready);
        assert_eq!(machine.access(&mut rule, &sample(2, 7, 20)).frequency, 3);
        assert_eq!(machine.proposed().len(), 2);
    }

    #[test]
    fn a_device_counter_counts_for_as_many_accesses() {
        let mut machine = Machine::new();
        let mut rule = rule(200, 3000);
        let mut access = sample(2, 7, 0);
        access.detail = Detail::Count { count: 100_000, gap: Some(Nanos(10_000)) };
        assert_eq!(machine.access(&mut rule, &access).frequency, 255);
        assert_eq!(machine.proposed().len(), 1);
    }

    #[test]
    fn what_a_device_counted_more_often_comes_first() {
        let score = |count, gap_us: Option<u64>| {
            let (mut machine, mut rule) = (Machine::new(), rule(2, 3000));
            for time_ms in [0, 1000] {
                let gap = gap_us.map(|us| Nanos(us * 1000));
                let access = Access { detail: Detail::Count { count, gap }, ..sample(2, 7, time_ms) };
                machine.access(&mut rule, &access);
            }
            // A count with its time span is accepted at once.
            let times = if gap_us.is_some() { 2 } else { 1 };
            assert_eq!(machine.proposed().len(), times);
            machine.proposed().last().unwrap().score
        };
        assert_eq!(score(20, Some(50_000)), score_of_rate(Nanos::from_ms(50)));
        // Mode always-on: 20 accesses since it was listed a second ago.
        assert_eq!(score(20, None), score_of_rate(Nanos::from_ms(50)));
        assert!(score(200, Some(5_000)) > score(20, Some(50_000)));
    }

    #[test]
    fn a_layout_that_cannot_count_so_far_is_ready_when_full() {
        let mut machine = Machine::new();
        machine.frequency_max = 3;
        let mut rule = rule(5, 3000);
        for t in 0..3 {
            machine.access(&mut rule, &sample(2, 7, t));
        }
        assert_eq!(machine.proposed().len(), 1);
    }

    #[test]
    fn top_tier_pages_and_local_accesses_say_nothing() {
        let mut machine = Machine::new();
        let mut rule = rule(1, 3000);
        machine.access(&mut rule, &sample(0, 7, 0));
        let mut local = sample(2, 8, 0);
        local.accessor = Some(local.node);
        machine.access(&mut rule, &local);
        machine.access(&mut rule, &sample(99, 9, 0));
        assert!(machine.proposed().is_empty());
    }

    #[test]
    fn evidence_that_comes_late_is_not_taken_for_an_access_in_no_time() {
        let (mut machine, mut rule) = (Machine::new(), rule(2, 3000));
        for time_ms in [1000, 800] {
            machine.access(&mut rule, &sample(2, 7, time_ms));
        }
        assert_eq!(machine.proposed()[0].score, score_of_rate(Nanos::from_ms(3000)));
    }

    #[test]
    fn a_sample_stands_for_as_many_accesses_as_its_period() {
        let score = |period| {
            let (mut machine, mut rule) = (Machine::new(), rule(2, 3000));
            for time_ms in [0, 1000] {
                let access = sample(2, 7, time_ms);
                let detail = Detail::Sample { latency_cycles: 0, store: Some(false), period };
                machine.access(&mut rule, &Access { detail, ..access });
            }
            machine.proposed()[0].score
        };
        assert_eq!([0, 1, 1000].map(score), [1000, 1000, 1].map(|ms| score_of_rate(Nanos::from_ms(ms))));
    }

    proptest! {
        #[test]
        fn it_equals_a_count_of_the_last_accesses_that_are_each_within_the_window(
            gaps in proptest::collection::vec(0u64..6000, 1..40), threshold in 1u8..8,
        ) {
            let times: Vec<u64> = gaps.iter().scan(0, |t, gap| { *t += gap; Some(*t) }).collect();
            let (_, proposed) = run(&mut rule(threshold, 3000), &times);
            let mut expected = Vec::new();
            for (i, time) in times.iter().enumerate() {
                let linked = (0..i).rev().take_while(|j| times[j + 1] - times[*j] <= 3000).count() + 1;
                if linked >= usize::from(threshold) {
                    expected.push(*time);
                }
            }
            prop_assert_eq!(proposed, expected);
        }
    }
}
