//! What was read on its way to a recording: accesses are collected into batches.

use thermocline_core::access::{Access, RegionSnapshot};
use thermocline_core::units::Nanos;

use super::{ImportError, LEFT_OUT, Summary};
use crate::piece::{Piece, RegionCount};

/// Accesses of a batch, and rows of counted regions.
const BATCH: usize = 4096;

/// Passes on pieces.
pub struct Out<'a> {
    take: &'a mut dyn FnMut(Nanos, Piece) -> bool,
    /// What it comes to.
    pub summary: Summary,
    time: Nanos,
    batch: Vec<Access>,
}

impl<'a> Out<'a> {
    /// To `take`, as long as it returns `true`.
    pub fn new(take: &'a mut dyn FnMut(Nanos, Piece) -> bool) -> Out<'a> {
        Out { take, summary: Summary::default(), time: Nanos(0), batch: Vec::new() }
    }

    /// Adds an access.
    ///
    /// # Errors
    /// No more is taken.
    pub fn access(&mut self, access: Access) -> Result<(), ImportError> {
        self.time = self.time.max(access.time);
        self.batch.push(access);
        if self.batch.len() >= BATCH { self.flush() } else { Ok(()) }
    }

    /// Adds a snapshot of regions.
    ///
    /// # Errors
    /// No more is taken.
    pub fn regions(&mut self, snapshot: RegionSnapshot) -> Result<(), ImportError> {
        self.time = self.time.max(snapshot.time);
        self.piece(Piece::Regions(snapshot))
    }

    /// Adds regions whose accesses were counted.
    ///
    /// # Errors
    /// No more is taken.
    pub fn counts(&mut self, time: Nanos, regions: Vec<RegionCount>) -> Result<(), ImportError> {
        self.time = self.time.max(time);
        self.piece(Piece::RegionCounts(time, regions))
    }

    /// Adds what the recording says about itself from here on.
    ///
    /// # Errors
    /// No more is taken.
    pub fn setting(&mut self, key: &str, value: String) -> Result<(), ImportError> {
        self.piece(Piece::Setting(key.to_owned(), value))
    }

    /// Counts what is no evidence.
    pub fn leave_out(&mut self, what: &'static str, count: u64) {
        *self.summary.left_out.entry(what).or_default() += count;
    }

    fn piece(&mut self, piece: Piece) -> Result<(), ImportError> {
        self.summary.pieces += piece.pieces();
        if (self.take)(self.time, piece) { Ok(()) } else { Err(ImportError::Stopped) }
    }

    fn flush(&mut self) -> Result<(), ImportError> {
        match self.batch.is_empty() {
            true => Ok(()),
            false => {
                let batch = std::mem::take(&mut self.batch);
                self.piece(Piece::Accesses(batch, Vec::new()))
            }
        }
    }

    /// Passes on the rest, and says what was left out and where the input is damaged.
    ///
    /// # Errors
    /// No more is taken.
    pub fn finish(mut self) -> Result<Summary, ImportError> {
        self.flush()?;
        if !self.summary.left_out.is_empty() {
            let parts: Vec<String> =
                self.summary.left_out.iter().map(|(what, count)| format!("{count} {what}")).collect();
            self.setting(LEFT_OUT, parts.join(", "))?;
        }
        if let Some(damage) = &self.summary.damage {
            let text = damage.to_string();
            self.setting(super::DAMAGE, text)?;
        }
        Ok(self.summary)
    }
}
