//! The gateway's promises, kept over real Postgres, NATS and Redis.

mod arrivals;
mod bad_input;
mod chat;
mod following;
mod keys;
mod lost_nats;
mod operators;
mod responses;
mod retries;
mod runner;
mod stopping;
mod tenants;
mod world;
mod zz;
