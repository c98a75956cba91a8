//! Allowed dependencies between crates, and rules for every source file. The layers are drawn in
//! `docs/architecture.md`.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a panic is how a test fails, in its helpers too"
)]

mod architecture {
    pub mod arrows;
    pub mod bus_users;
    pub mod exceptions;
    pub mod features;
    pub mod logs;
    pub mod metrics;
    pub mod names;
    pub mod reload;
    pub mod routes;
    pub mod sources;
    pub mod structure;
    pub mod syntax;
    pub mod unwired;
}
