//! The stalls of a scope without our moves, with which stalls during moves are compared.

/// See the module's description. Shares of the time, in 1/10000.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Baseline {
    known: Option<Known>,
}

#[derive(Clone, Copy, Debug)]
struct Known {
    stall_bp: u32,
    /// Mean deviation of periods from it.
    spread_bp: u32,
}

impl Baseline {
    /// Stalled share of the time without moves, if that has been observed.
    pub(super) fn stall_bp(self) -> Option<u32> {
        self.known.map(|known| known.stall_bp)
    }

    /// Discards earlier observations.
    pub(super) fn forget(&mut self) {
        self.known = None;
    }

    /// Takes a quiet period that follows a quiet one, with weight 1/4, so that a single period has
    /// little influence.
    pub(super) fn quiet(&mut self, stall_bp: u32) {
        let Some(known) = &mut self.known else {
            self.known = Some(Known { stall_bp, spread_bp: 0 });
            return;
        };
        let off_bp = stall_bp.abs_diff(known.stall_bp);
        known.stall_bp = (3 * known.stall_bp + stall_bp) / 4;
        known.spread_bp = (3 * known.spread_bp + off_bp) / 4;
    }

    /// Takes a period with moves. Moves do not reduce stalls, so without them there would have been
    /// at most as many. So both figures can only fall, with weight 1/8.
    pub(super) fn moving(&mut self, stall_bp: u32) {
        let Some(known) = &mut self.known else { return };
        let off_bp = stall_bp.abs_diff(known.stall_bp);
        known.stall_bp -= known.stall_bp.saturating_sub(stall_bp) / 8;
        known.spread_bp -= known.spread_bp.saturating_sub(off_bp) / 8;
    }

    /// Whether a stall is above what it is without moves by more than `rise_bp` and twice the
    /// spread. Without observations the baseline counts as 0: a wrong brake leads to a stop, and
    /// the stop provides the observations.
    pub(super) fn is_exceeded(self, stall_bp: u32, rise_bp: u32) -> bool {
        let most_bp = self.known.map_or(0, |known| known.stall_bp + 2 * known.spread_bp);
        stall_bp > most_bp.saturating_add(rise_bp)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_follows_quiet_periods_and_only_falls_with_moving_ones() {
        let mut b = Baseline::default();
        assert!(b.is_exceeded(1001, 1000) && !b.is_exceeded(1000, 1000));
        b.moving(4000);
        assert_eq!(b.stall_bp(), None, "moves tell of no time without them");
        b.quiet(800);
        assert!(b.is_exceeded(1801, 1000) && !b.is_exceeded(1800, 1000));
        b.quiet(1600);
        assert_eq!(b.stall_bp(), Some(1000));
        assert!(b.is_exceeded(2401, 1000) && !b.is_exceeded(2400, 1000), "periods were 200 off, on average");
        b.moving(9000);
        assert!(!b.is_exceeded(2400, 1000) && b.stall_bp() == Some(1000));
        b.moving(920);
        assert!(b.is_exceeded(2361, 1000) && !b.is_exceeded(2360, 1000), "990, and 185 off");
        b.forget();
        assert_eq!(b.stall_bp(), None);
    }
}
