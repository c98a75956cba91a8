//! Commands for the state of a tenant: summary, dead letters, deliveries.

pub mod dead;
pub mod deliveries;
pub mod status;
