//! Recordings for other tools: lackey's text, and Perfetto's traces.

mod lackey;
mod messages;
mod perfetto;

pub use lackey::{Lackey, lackey};
pub use messages::{
    ClockReading, ClockSnapshot, CounterDescriptor, DebugAnnotation, Trace, TracePacket, TrackDescriptor,
    TrackEvent,
};
pub use perfetto::{Perfetto, perfetto};

use std::io;

use thermocline_core::units::Pid;

/// Why a recording is not exported.
#[derive(Debug, thiserror::Error)]
pub enum ExportError {
    /// The format has no processes, and the recording has several.
    #[error(
        "it has pages of several processes, {} and {} first, which lackey's text cannot tell apart; choose \
         one with --pid", .0.0, .1.0
    )]
    Several(Pid, Pid),
    /// It cannot be written.
    #[error("it cannot be written: {0}")]
    Write(#[from] io::Error),
}
