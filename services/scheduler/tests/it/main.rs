//! Guarantees of the scheduler, tested on a real Postgres and a real NATS.

mod arriving;
mod ending;
mod firing;
mod idling;
mod sharing;
mod world;
