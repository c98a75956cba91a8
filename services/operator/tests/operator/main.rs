//! The operator against a real gateway and an API server as strict as a real one.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a panic is how a test fails, in its helpers too"
)]

mod definitions;
mod export;
mod leaders;
mod lifecycle;
mod outages;
mod restarts;
mod scale;
mod tenants;
mod world;
