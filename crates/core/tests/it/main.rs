//! Tests of the engine through its public face.

mod arrows;
mod book;
mod brake;
mod driver;
mod laws;
mod limits;
mod machine;
mod properties;
mod step;
mod wild;
mod world;
