//! The promises of todo lists, worklogs, tasks and the ledger, each on a real Postgres of its own.

#![expect(clippy::unwrap_used, reason = "a panic is how a test fails, in its helpers too")]

mod hit_points;
mod isolation;
mod large_lists;
mod ledger;
mod members;
mod replaying;
mod steps;
mod todos;
mod undoing;
mod wallets;
mod world;
