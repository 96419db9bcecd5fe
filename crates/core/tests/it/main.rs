//! Tests of the engine through its public face.

mod arrows;
mod book;
mod brake;
mod caps;
mod driver;
mod faults;
mod faulty;
mod golden;
mod hunt;
mod laws;
mod limits;
mod machine;
mod pages;
mod properties;
mod recipe;
mod reload;
mod shares;
mod step;
mod tidy;
mod wild;
mod world;
