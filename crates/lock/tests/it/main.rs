//! Guarantees of the locks, tested on a real Redis.

#![expect(clippy::unwrap_used, reason = "a panic is how a test fails, in its helpers too")]

mod lately;
mod lease;
mod marks;
mod outage;
mod rate;
mod rights;
mod sentinel;
mod session;
mod tenants;
mod world;
