//! The promises of todo lists, worklogs, tasks and the ledger, each on a real Postgres of its own.

mod isolation;
mod large_lists;
mod ledger;
mod replaying;
mod steps;
mod todos;
mod world;
