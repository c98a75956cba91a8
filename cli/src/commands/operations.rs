//! Commands for the state of a tenant: summary, checks, dead letters, deliveries.

pub mod dead;
pub mod deliveries;
pub mod doctor;
pub mod status;
