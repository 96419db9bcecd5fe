//! What the live screen takes.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};

/// What `top` takes.
#[derive(Debug, Args)]
pub struct Top {
    /// A recording to show in the place of the running daemon, as `run --record`, `record` and
    /// `sim --record` make it.
    #[arg(value_name = "DIR")]
    pub folder: Option<PathBuf>,
    /// Print one frame as text and end; needs no terminal. Of a daemon it takes two readings, for
    /// rates.
    #[arg(long)]
    pub once: bool,
    /// The moment of the recording that is shown, from its start, as in 90s or 5m; else the end
    /// with --once, and the start without.
    #[arg(long, value_name = "DURATION", value_parser = humantime::parse_duration, requires = "folder")]
    pub at: Option<Duration>,
    /// Columns and rows of that frame.
    #[arg(long, value_name = "COLSxROWS", default_value = "80x24", requires = "once",
          value_parser = size)]
    pub size: FrameSize,
    /// The pane in front at the start.
    #[arg(long, value_name = "PANE", default_value = "tiers")]
    pub pane: Pane,
    /// Time between two readings, as in 500ms or 2s.
    #[arg(long, value_name = "DURATION", default_value = "1s", value_parser = humantime::parse_duration,
          conflicts_with_all = ["once", "folder"])]
    pub every: Duration,
    /// The daemon's socket.
    #[arg(long, value_name = "PATH", conflicts_with = "folder")]
    pub socket: Option<PathBuf>,
}

/// Columns and rows.
pub type FrameSize = (u16, u16);

/// Parses a size, as in 80x24.
///
/// # Errors
/// It is not two numbers of 1 to 1000.
fn size(text: &str) -> Result<FrameSize, String> {
    let number = |text: &str| text.parse::<u16>().ok().filter(|n| (1..=1000).contains(n));
    text.split_once('x')
        .and_then(|(columns, rows)| Some((number(columns)?, number(rows)?)))
        .ok_or_else(|| "give columns and rows of 1 to 1000, as in 80x24".to_owned())
}

/// The panes, in the order of their keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Pane {
    /// Nodes, and what flows between them.
    Tiers,
    /// The scopes.
    Scopes,
    /// The sources.
    Sources,
    /// Refusals by reason.
    Refusals,
    /// The latest decisions.
    Decisions,
}

impl Pane {
    /// All of them.
    pub const ALL: [Pane; 5] = [Pane::Tiers, Pane::Scopes, Pane::Sources, Pane::Refusals, Pane::Decisions];

    /// The title.
    pub const fn title(self) -> &'static str {
        match self {
            Pane::Tiers => "Tiers",
            Pane::Scopes => "Scopes",
            Pane::Sources => "Sources",
            Pane::Refusals => "Refusals",
            Pane::Decisions => "Decisions",
        }
    }

    /// What its rows can be sorted by; the first is the order at the start.
    pub const fn orders(self) -> &'static [&'static str] {
        match self {
            Pane::Scopes => &["DRAM", "share used", "wanted", "cap used", "brake", "moved", "name"],
            Pane::Refusals => &["rate", "total", "reason"],
            Pane::Tiers | Pane::Sources | Pane::Decisions => &[],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_two_numbers() {
        assert_eq!(size("80x24"), Ok((80, 24)));
        for wrong in ["", "80", "80x", "0x24", "80x1001", "-1x2", "80x24x2"] {
            assert!(size(wrong).is_err(), "{wrong}");
        }
    }
}
