//! Verbs of the protocol: the acceptance of messages, and the transactions of a turn.

pub mod append;
pub mod batch;
pub mod behaviors;
pub mod branch;
pub mod claim;
pub mod complete;
pub mod held_state;
pub mod import;
mod ingest;
mod load;
pub mod outside_text;
pub mod overdue;
pub mod pause;
pub mod rollback;
pub mod sweep;
pub mod workspaces;
