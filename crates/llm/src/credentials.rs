//! Which of several keys is used next, and for how long one that failed is left alone.
//!
//! Pure: profiles, what is remembered of them and the moment go in, decisions come out. Moments
//! are milliseconds since 1970. Who stores what is remembered must change it in one step: all
//! runners share it.

mod order;
mod profile;
mod stats;

pub use order::{Order, order, sticky};
pub use profile::{Credential, Profile};
pub use stats::{Stats, billing_pause, cooldown};
