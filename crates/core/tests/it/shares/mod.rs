//! Laws of shares of the top tier, on a machine whose scopes heat up, cool down, allocate and free
//! at arbitrary times, and where moves fail and answers are lost.

mod world;

use proptest::prelude::*;
use thermocline_core::demotion::OVER_PAGES;
use thermocline_core::refusal::RefusalReason;
use thermocline_core::units::{Nanos, PAGES_PER_MIB};

use world::{COLD, FOLIO, GIVEN_UP, HOT, RESERVE, SETTLE, Step, WARM, World, fault, shares, step};

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, ..ProptestConfig::default() })]

    /// After any course all scopes have what they want of their shares as soon as the pace allows,
    /// and nobody is taken below its own share for that.
    #[test]
    fn a_share_comes_back_within_bounded_time(
        shares in shares(), steps in prop::collection::vec(step(), 1..50), slow in 0u64..4,
    ) {
        let mut world = World::new(shares, Vec::new());
        world.slow = slow;
        steps.iter().for_each(|step| world.happen(*step));
        // Twice: moves and demands take up to as long as a second's pages do.
        let most = Nanos(2 * world.lacking() * 1_000_000_000 / world.pace()).plus(SETTLE);
        world.until_all_have_their_shares(most);
    }

    /// The same where moves fail, answers are lost and holdings are not reported, once that is
    /// over.
    #[test]
    fn so_it_does_on_a_machine_that_fails(
        shares in shares(), steps in prop::collection::vec(step(), 1..50), slow in 0u64..4,
        faults in prop::collection::vec(fault(), 1..60),
    ) {
        let mut world = World::new(shares, faults);
        world.slow = slow;
        steps.iter().for_each(|step| world.happen(*step));
        world.faults.clear();
        // Rests double up to 8 s while nothing is found.
        let given_up = Nanos(2 * GIVEN_UP.0).plus(Nanos::from_s(8 + 8));
        let most = Nanos(2 * world.lacking() * 1_000_000_000 / world.pace()).plus(SETTLE).plus(given_up);
        world.until_all_have_their_shares(most);
    }

    /// What the owner of a share does not want is used by others.
    #[test]
    fn nothing_is_kept_for_a_scope_that_does_not_want_it(shares in shares(), held in 0u64..400) {
        let mut world = World::new(shares, Vec::new());
        world.held[0][COLD] = held * FOLIO;
        world.heat(2, 600);
        let begin = world.now;
        while world.free() > RESERVE + OVER_PAGES + FOLIO || world.held[0][COLD] > 0 {
            world.tick();
            let hold = [0, 1, 2].map(|scope| world.holds(scope) / PAGES_PER_MIB);
            prop_assert!(world.now.since(begin) < Nanos::from_s(60), "{hold:?} MiB, {} free", world.free());
        }
        prop_assert_eq!(world.engine.counters().held.get(RefusalReason::KeptForShare), 0);
    }
}

/// A hog with hotter memory fills DRAM, and the owner of a share comes back.
#[test]
fn who_comes_back_has_its_share_in_seconds_and_the_rest_stays_with_the_others() {
    let mut world = World::new([512, 0], Vec::new());
    world.heat(2, 600);
    world.happen(Step::Wait { ticks: 100 });
    let before = world.holds(2);
    assert!(before > 900 * PAGES_PER_MIB, "it has all: {before}");
    world.heat(0, 400);
    world.until_all_have_their_shares(Nanos::from_s(14));
    world.happen(Step::Wait { ticks: 300 });
    let [server, hog] = [0, 2].map(|scope| world.holds(scope) / PAGES_PER_MIB);
    assert!((508..=516).contains(&server), "a share, and no more than that: {server} MiB");
    assert!(hog >= 1024 - 512 - 60, "the rest is the hog's: {hog} MiB");
}

/// What others free is kept for a share's owner who wants a little at a time, also in between.
#[test]
fn room_does_not_go_to_others_between_two_candidates_of_a_share() {
    let mut world = World::new([512, 0], Vec::new());
    world.heat(2, 600);
    world.happen(Step::Wait { ticks: 100 });
    world.heat(0, 20);
    world.until_all_have_their_shares(Nanos::from_s(14));
    let mut regained = 0;
    for _ in 0..20 {
        // Nothing of the owner's waits when the other frees as much as the owner will want next.
        world.held[2][HOT] -= 2 * FOLIO;
        let before = world.holds(2);
        world.happen(Step::Wait { ticks: 2 });
        regained += world.holds(2).saturating_sub(before) / FOLIO;
        world.heat(0, 2);
        world.until_all_have_their_shares(Nanos::from_s(14));
    }
    assert!(regained <= 4, "{regained} folios of 40 went back");
}

/// Room is kept for what will be wanted soon, and rate only for what is wanted now.
#[test]
fn who_comes_back_slowly_leaves_the_rate_that_it_does_not_use() {
    // 47 folios a second, of which the owner of the share wants ten.
    let mut world = World::with([900, 0], Vec::new(), |config| config.admission.rate_limit_mbps = 100);
    world.heat(2, 600);
    for _ in 0..80 {
        world.heat(0, 1);
        world.tick();
    }
    let [server, other] = [0, 2].map(|scope| world.holds(scope) / FOLIO);
    assert!(server >= 70 && other >= 250, "{server} and {other} folios");
}

/// Of two that hold too much, the one further above gives until both are equally far above.
#[test]
fn those_furthest_above_give_first() {
    let mut world = World::new([300, 100], Vec::new());
    world.held[1][WARM] = 300 * PAGES_PER_MIB;
    world.held[2][WARM] = 700 * PAGES_PER_MIB;
    world.heat(0, 100);
    world.until_all_have_their_shares(Nanos::from_s(20));
    let above = [world.holds(1) / PAGES_PER_MIB - 100, world.holds(2) / PAGES_PER_MIB];
    assert_eq!(above[0], 200, "{above:?}");
    assert!((490..=520).contains(&above[1]), "{above:?}");
}

/// One whose memory cannot be moved does not keep the claim from the next.
#[test]
fn who_cannot_give_is_passed_over() {
    let mut world = World::new([200, 0], Vec::new());
    world.locked = Some(2);
    world.held[1][WARM] = 400 * PAGES_PER_MIB;
    world.held[2][WARM] = 600 * PAGES_PER_MIB;
    world.heat(0, 100);
    world.until_all_have_their_shares(Nanos::from_s(30));
    assert_eq!(world.holds(2), 600 * PAGES_PER_MIB);
}
