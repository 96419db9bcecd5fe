//! Pages whose moves gain nothing stay where they are, and those whose moves gain something go up.

use thermocline_lab::{Line, ThpMode};

use super::{Run, number};

/// What hotcold takes, and the DRAM that it finds.
const FOOTPRINT_MIB: u64 = 300;
const FREE_MIB: u64 = 110;
const QUIET_S: u64 = 15;
/// Pages that trials may move meanwhile: half of one percent of two CPUs, at 10 us each. The first
/// refusals come before the price is known, so that some more are on their way.
const TRIALS_MAX: u64 = QUIET_S * 1000 + 2048;

#[test]
fn moves_are_made_where_they_gain_on_6_12() {
    let run = Run::new(Line::Stable, [512, 128, 768], ThpMode::Never, 300)
        .env("MIB", FOOTPRINT_MIB)
        .env("FREE_MIB", FREE_MIB)
        .env("QUIET_SECONDS", QUIET_S);
    let Some(outcome) = run.run(include_str!("payoff.sh")) else { return };
    println!("{}", run.text("daemon-alike").lines().last().unwrap_or_default());
    println!("{}", run.text("daemon-hot").lines().last().unwrap_or_default());
    let (alike, hot) = (number(&outcome, "moved_alike"), number(&outcome, "moved_hot"));
    assert!(alike < TRIALS_MAX, "{alike} pages moved although all are alike");
    assert!(hot > 1000, "{hot}");
}
