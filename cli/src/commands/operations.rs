//! Commands for the state of a tenant: summary, checks, audit log, dead letters, deliveries.

pub mod audit;
pub mod dead;
pub mod deliveries;
pub mod doctor;
pub mod security;
pub mod status;
