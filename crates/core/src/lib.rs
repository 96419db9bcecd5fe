//! The engine: evidence in, moves out; no clock, no I/O, no threads, no `unsafe`.
