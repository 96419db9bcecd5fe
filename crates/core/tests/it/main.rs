//! Tests of the engine through its public face.

mod arrows;
mod book;
mod brake;
mod driver;
mod faulty;
mod laws;
mod limits;
mod machine;
mod properties;
mod recipe;
mod step;
mod wild;
mod world;
