//! Key selection: the order of several keys, and the cooldowns of failed ones.
//!
//! Pure functions of profiles, statistics and the time, in milliseconds since 1970. All runners
//! share the statistics, so a store must update them atomically.

mod order;
mod profile;
mod stats;

pub use order::{Order, order, sticky};
pub use profile::{Credential, Profile};
pub use stats::{Stats, billing_pause, cooldown};
