//! What the bridge promises, with real backends, a fake platform at one end and a fake gateway at
//! the other.

#![expect(clippy::unwrap_used, reason = "a panic is how a test fails, in its helpers too")]

mod acting;
mod delivering;
mod gateway;
mod polling;
mod posting;
mod programs;
mod silence;
mod world;
