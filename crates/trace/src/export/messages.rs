//! The few messages of Perfetto's trace format that are written, by the numbers of its fields.
//!
//! Source: `protos/perfetto/trace` of github.com/google/perfetto: `trace_packet.proto`,
//! `clock_snapshot.proto`, `track_event/*.proto`.

use prost::Message;

/// CLOCK_MONOTONIC among the built-in clocks.
pub const MONOTONIC: u32 = 3;
/// `TrackEvent.Type`: an instant.
pub const INSTANT: i32 = 3;
/// `TrackEvent.Type`: a counter's new value.
pub const COUNTER: i32 = 4;
/// `CounterDescriptor.Unit`: ns.
pub const UNIT_TIME_NS: i32 = 1;
/// `CounterDescriptor.Unit`: a number of things.
pub const UNIT_COUNT: i32 = 2;
/// `CounterDescriptor.Unit`: bytes.
pub const UNIT_BYTES: i32 = 3;

/// A trace: packets.
#[derive(Clone, PartialEq, Message)]
pub struct Trace {
    /// The packets, in any order.
    #[prost(message, repeated, tag = "1")]
    pub packet: Vec<TracePacket>,
}

/// A packet, with one of its contents.
#[derive(Clone, PartialEq, Message)]
pub struct TracePacket {
    /// Readings of clocks at one time.
    #[prost(message, optional, tag = "6")]
    pub clock_snapshot: Option<ClockSnapshot>,
    /// When, by the clock of `timestamp_clock_id`.
    #[prost(uint64, optional, tag = "8")]
    pub timestamp: Option<u64>,
    /// The packets of one writer have the same.
    #[prost(uint32, optional, tag = "10")]
    pub trusted_packet_sequence_id: Option<u32>,
    /// An event.
    #[prost(message, optional, tag = "11")]
    pub track_event: Option<TrackEvent>,
    /// The clock; the trace's where there is none.
    #[prost(uint32, optional, tag = "58")]
    pub timestamp_clock_id: Option<u32>,
    /// A track.
    #[prost(message, optional, tag = "60")]
    pub track_descriptor: Option<TrackDescriptor>,
}

/// Readings of clocks at one time.
#[derive(Clone, PartialEq, Message)]
pub struct ClockSnapshot {
    /// The readings.
    #[prost(message, repeated, tag = "1")]
    pub clocks: Vec<ClockReading>,
    /// The clock of the trace.
    #[prost(uint32, optional, tag = "2")]
    pub primary_trace_clock: Option<u32>,
}

/// `ClockSnapshot.Clock`: the reading of a clock.
#[derive(Clone, PartialEq, Message)]
pub struct ClockReading {
    /// The clock.
    #[prost(uint32, optional, tag = "1")]
    pub clock_id: Option<u32>,
    /// What it shows, ns.
    #[prost(uint64, optional, tag = "2")]
    pub timestamp: Option<u64>,
}

/// A track, on which events lie.
#[derive(Clone, PartialEq, Message)]
pub struct TrackDescriptor {
    /// Its number.
    #[prost(uint64, optional, tag = "1")]
    pub uuid: Option<u64>,
    /// Its name.
    #[prost(string, optional, tag = "2")]
    pub name: Option<String>,
    /// The track that it belongs to.
    #[prost(uint64, optional, tag = "5")]
    pub parent_uuid: Option<u64>,
    /// That it is a counter.
    #[prost(message, optional, tag = "8")]
    pub counter: Option<CounterDescriptor>,
}

/// That a track is a counter.
#[derive(Clone, PartialEq, Message)]
pub struct CounterDescriptor {
    /// Its unit.
    #[prost(int32, optional, tag = "3")]
    pub unit: Option<i32>,
}

/// An event.
#[derive(Clone, PartialEq, Message)]
pub struct TrackEvent {
    /// Details.
    #[prost(message, repeated, tag = "4")]
    pub debug_annotations: Vec<DebugAnnotation>,
    /// What kind of event it is.
    #[prost(int32, optional, tag = "9")]
    pub r#type: Option<i32>,
    /// Its track.
    #[prost(uint64, optional, tag = "11")]
    pub track_uuid: Option<u64>,
    /// What can be filtered by.
    #[prost(string, repeated, tag = "22")]
    pub categories: Vec<String>,
    /// Its name.
    #[prost(string, optional, tag = "23")]
    pub name: Option<String>,
    /// A counter's value.
    #[prost(int64, optional, tag = "30")]
    pub counter_value: Option<i64>,
}

/// A detail of an event.
#[derive(Clone, PartialEq, Message)]
pub struct DebugAnnotation {
    /// A number.
    #[prost(uint64, optional, tag = "3")]
    pub uint_value: Option<u64>,
    /// A text.
    #[prost(string, optional, tag = "6")]
    pub string_value: Option<String>,
    /// An address.
    #[prost(uint64, optional, tag = "7")]
    pub pointer_value: Option<u64>,
    /// What it is about.
    #[prost(string, optional, tag = "10")]
    pub name: Option<String>,
}
