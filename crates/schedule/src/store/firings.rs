//! Firings: the claim, delivery and end of due slots.

pub mod claim;
pub mod close;
mod decide;
mod delivery_start;
mod events;
mod failures;
pub mod open_firings;
mod queue_wait;
pub mod reply_delivery;
pub mod reports;
pub mod requests;
pub mod rows;
pub mod sweep;
