//! Packets written to a file, and the tracks that they are on.

use std::collections::BTreeMap;
use std::io::{self, Write};

use prost::Message;
use prost::encoding::{WireType, encode_key, encode_varint};
use thermocline_core::units::Nanos;

use super::super::messages::{
    COUNTER, ClockReading, ClockSnapshot, CounterDescriptor, DebugAnnotation, INSTANT, MONOTONIC,
    TracePacket, TrackDescriptor, TrackEvent,
};

/// What numbers of tracks begin with, so that they are not those of another program's: "thermo".
const UUIDS: u64 = u64::from_be_bytes(*b"thermo\0\0");
/// The sequence of all packets.
const SEQUENCE: u32 = 0x7468;
/// The field of `Trace` that packets are.
const PACKET: u32 = 1;

/// A track's number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Uuid(u64);

/// Writes packets, each when it comes, so that a trace of any length fits into memory.
pub struct Tracks<'a> {
    to: &'a mut dyn Write,
    /// Whether times are CLOCK_MONOTONIC. Of another clock Perfetto is not told.
    monotonic: bool,
    known: BTreeMap<String, Uuid>,
    buffer: Vec<u8>,
}

impl<'a> Tracks<'a> {
    /// A trace with one track, below which all others lie. It begins at `start`.
    pub fn new(to: &'a mut dyn Write, monotonic: bool, start: Nanos, name: &str) -> io::Result<(Self, Uuid)> {
        let mut tracks = Tracks { to, monotonic, known: BTreeMap::new(), buffer: Vec::new() };
        if monotonic {
            let reading = ClockReading { clock_id: Some(MONOTONIC), timestamp: Some(start.0) };
            let clocks = ClockSnapshot { clocks: vec![reading], primary_trace_clock: Some(MONOTONIC) };
            tracks.packet(TracePacket { clock_snapshot: Some(clocks), ..TracePacket::default() })?;
        }
        let root = tracks.track(None, name, None)?;
        Ok((tracks, root))
    }

    /// The track of a name below another, which is described when it first comes; a counter of
    /// `unit`, if there is one.
    pub fn track(&mut self, parent: Option<Uuid>, name: &str, unit: Option<i32>) -> io::Result<Uuid> {
        let key = format!("{}/{name}", parent.map_or(0, |parent| parent.0));
        if let Some(uuid) = self.known.get(&key) {
            return Ok(*uuid);
        }
        let uuid = Uuid(UUIDS + self.known.len() as u64 + 1);
        let described = TrackDescriptor {
            uuid: Some(uuid.0),
            name: Some(name.to_owned()),
            parent_uuid: parent.map(|parent| parent.0),
            counter: unit.map(|unit| CounterDescriptor { unit: Some(unit) }),
        };
        self.packet(TracePacket { track_descriptor: Some(described), ..TracePacket::default() })?;
        self.known.insert(key, uuid);
        Ok(uuid)
    }

    /// An instant on a track.
    pub fn instant(
        &mut self,
        (track, time): (Uuid, Nanos),
        (category, name): (&str, String),
        details: Vec<DebugAnnotation>,
    ) -> io::Result<()> {
        let event = TrackEvent {
            debug_annotations: details,
            r#type: Some(INSTANT),
            track_uuid: Some(track.0),
            categories: vec![category.to_owned()],
            name: Some(name),
            counter_value: None,
        };
        self.event(time, event)
    }

    /// A counter's value from a time on.
    pub fn count(&mut self, counter: Uuid, time: Nanos, value: u64) -> io::Result<()> {
        let event = TrackEvent {
            r#type: Some(COUNTER),
            track_uuid: Some(counter.0),
            counter_value: Some(i64::try_from(value).unwrap_or(i64::MAX)),
            ..TrackEvent::default()
        };
        self.event(time, event)
    }

    fn event(&mut self, time: Nanos, event: TrackEvent) -> io::Result<()> {
        self.packet(TracePacket {
            timestamp: Some(time.0),
            timestamp_clock_id: self.monotonic.then_some(MONOTONIC),
            track_event: Some(event),
            ..TracePacket::default()
        })
    }

    fn packet(&mut self, packet: TracePacket) -> io::Result<()> {
        let packet = TracePacket { trusted_packet_sequence_id: Some(SEQUENCE), ..packet };
        self.buffer.clear();
        encode_key(PACKET, WireType::LengthDelimited, &mut self.buffer);
        encode_varint(packet.encoded_len() as u64, &mut self.buffer);
        packet.encode(&mut self.buffer).map_err(io::Error::other)?;
        self.to.write_all(&self.buffer)
    }

    /// Writes what waits.
    pub fn flush(&mut self) -> io::Result<()> {
        self.to.flush()
    }
}

/// A number as a detail.
pub fn number(name: &str, number: impl Into<u64>) -> DebugAnnotation {
    DebugAnnotation { uint_value: Some(number.into()), ..named(name) }
}

/// A text as a detail.
pub fn text(name: &str, text: &str) -> DebugAnnotation {
    DebugAnnotation { string_value: Some(text.to_owned()), ..named(name) }
}

/// An address as a detail.
pub fn address(name: &str, address: u64) -> DebugAnnotation {
    DebugAnnotation { pointer_value: Some(address), ..named(name) }
}

fn named(name: &str) -> DebugAnnotation {
    DebugAnnotation { name: Some(name.to_owned()), ..DebugAnnotation::default() }
}
