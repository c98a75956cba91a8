//! The directory's promises, on a real Postgres.

#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

mod accounts;
mod audit;
mod isolation;
mod keys;
mod models;
mod policies;
mod routing;
mod sealing;
mod tenants;
mod world;
