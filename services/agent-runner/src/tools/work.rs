//! An agent's own work as its tools see it.

pub(crate) mod self_records;
pub(crate) mod todos;
pub(crate) mod wallets;
