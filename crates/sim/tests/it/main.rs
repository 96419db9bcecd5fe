//! The simulator against what is known otherwise: its two modes against each other, and ground
//! truths.

mod evidence;
mod lab;
mod laws;
mod managers;
mod modes;
mod numab2;
mod pace;
mod paired;
mod roles;
mod truths;
