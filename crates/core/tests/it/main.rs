//! Tests of the engine through its public face.

mod arrows;
mod book;
mod brake;
mod laws;
mod limits;
mod properties;
mod step;
mod wild;
mod world;
