//! Where in a recording the screen is, and how fast it goes on. Time that passes goes in.

use std::time::Duration;

use thermocline_core::units::Nanos;

use super::film::{SECOND, nanos};

/// The fastest.
const SPEED_MAX: u32 = 256;

/// What a key does to time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    /// Go on, or stop.
    Play,
    /// Twice as fast.
    Faster,
    /// Half as fast.
    Slower,
    /// So many seconds on.
    Step(i64),
    /// To the start.
    Begin,
    /// To the end.
    End,
}

/// A position that moves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Player {
    /// Since the recording's begin.
    pub at: Nanos,
    /// How long that is.
    pub length: Nanos,
    /// Whether it goes on.
    pub playing: bool,
    /// How many times as fast as it was.
    pub speed: u32,
}

impl Player {
    /// Stands at a position.
    pub fn new(at: Nanos, length: Nanos) -> Player {
        Player { at: at.min(length), length, playing: false, speed: 1 }
    }

    /// Whether it is at the end.
    pub fn is_at_end(&self) -> bool {
        self.at >= self.length
    }

    /// Does what a key asks for.
    pub fn turn(&mut self, turn: Turn) {
        match turn {
            // At the end there is nothing to go on with, and it plays from the start.
            Turn::Play if self.is_at_end() => (self.at, self.playing) = (Nanos(0), true),
            Turn::Play => self.playing = !self.playing,
            Turn::Faster => self.speed = (self.speed * 2).min(SPEED_MAX),
            Turn::Slower => self.speed = (self.speed / 2).max(1),
            Turn::Step(seconds) => {
                let by = seconds.unsigned_abs().saturating_mul(SECOND.0);
                let at =
                    if seconds < 0 { self.at.0.saturating_sub(by) } else { self.at.0.saturating_add(by) };
                self.at = Nanos(at).min(self.length);
            }
            Turn::Begin => self.at = Nanos(0),
            Turn::End => self.at = self.length,
        }
    }

    /// So much time has passed. At the end it stops.
    pub fn passes(&mut self, time: Duration) {
        if self.playing {
            let on = nanos(time).0.saturating_mul(self.speed.into());
            self.at = Nanos(self.at.0.saturating_add(on)).min(self.length);
            self.playing = !self.is_at_end();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_plays_as_fast_as_is_asked_and_stops_at_the_end() {
        let mut player = Player::new(Nanos(0), Nanos::from_s(60));
        player.passes(Duration::from_secs(5));
        assert_eq!(player.at, Nanos(0), "it stands at first");
        player.turn(Turn::Play);
        player.passes(Duration::from_secs(2));
        [Turn::Faster, Turn::Faster, Turn::Slower].into_iter().for_each(|turn| player.turn(turn));
        player.passes(Duration::from_secs(4));
        assert_eq!((player.at, player.speed), (Nanos::from_s(10), 2));
        player.passes(Duration::from_secs(100));
        assert!(player.is_at_end() && !player.playing && player.at == Nanos::from_s(60));
        player.turn(Turn::Play);
        assert!(player.playing && player.at == Nanos(0), "it plays from the start");
        (0..20).for_each(|_| player.turn(Turn::Faster));
        assert_eq!(player.speed, SPEED_MAX);
        (0..20).for_each(|_| player.turn(Turn::Slower));
        assert_eq!(player.speed, 1);
    }

    #[test]
    fn steps_stay_within_it() {
        let mut player = Player::new(Nanos::from_s(99), Nanos::from_s(60));
        assert!(player.is_at_end());
        for (turn, s) in [(Turn::Step(-10), 50), (Turn::Step(1), 51), (Turn::Step(-99), 0), (Turn::End, 60)] {
            player.turn(turn);
            assert_eq!(player.at, Nanos::from_s(s), "{turn:?}");
        }
        player.turn(Turn::Step(i64::MIN));
        player.turn(Turn::Step(i64::MAX));
        assert!(player.is_at_end());
        player.turn(Turn::Begin);
        assert_eq!(player.at, Nanos(0));
    }
}
