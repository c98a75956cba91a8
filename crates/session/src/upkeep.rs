//! Upkeep of the whole installation, which one runner at a time does.

pub mod duties;
pub mod partial;
pub mod prune;
pub mod retention;
