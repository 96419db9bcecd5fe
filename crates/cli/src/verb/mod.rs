//! One file per verb.

pub mod compare;
pub mod config;
pub mod doctor;
pub mod explain;
pub mod export;
pub mod generate;
pub mod import;
mod picture;
pub mod plan;
pub mod reload;
pub mod replay;
pub mod report;
pub mod reproduce;
pub mod restore;
pub mod sim;
pub mod status;
pub mod sweep;
pub mod switch;
