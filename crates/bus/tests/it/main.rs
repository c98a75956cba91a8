//! Guarantees of the bus, tested on a real NATS.

#![expect(clippy::unwrap_used, reason = "a panic is how a test fails, in its helpers too")]

mod core;
mod events;
mod login;
mod outage;
mod requests;
mod rights;
mod tenants;
mod world;
