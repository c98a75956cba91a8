//! What Redis does for Holdfast: things that may be lost at any moment.
//!
//! | | |
//! |---|---|
//! | [`SessionLocks`] | makes a runner that has lost its session stop early, and says who runs one |
//! | [`Lease`] | one holder at a time for a thing that is no session: a channel bot's connection |
//! | [`Limit`] | how often a caller may; kept approximately by each process while Redis is gone |
//! | [`Mark`] | what is remembered of a thing that failed; the later one counts |
//! | [`Lately`] | what was said in the last hours, by its hash |
//! | [`Amount`] | what is set aside for work that is under way |
//!
//! All of it saves work or keeps order; none of it makes anything correct. The
//! fence in Postgres does. So every call here ends within half a second, and a
//! caller whom it fails goes on without it.
//!
//! **What can go wrong.** Redis restarts empty: locks and leases are set anew at
//! their next renewal, limits begin full. Redis hangs: the calls in flight wait
//! out [`PATIENCE`], then one call in each half second does and the others fail at
//! once.

mod error;
mod lately;
mod lease;
mod marks;
mod rate;
mod redis;
mod reserve;
mod session;

pub use error::Error;
pub use lately::Lately;
pub use lease::Lease;
pub use marks::Mark;
pub use rate::{Limit, Verdict};
pub use redis::{Config, Locks, PATIENCE};
pub use reserve::Amount;
pub use session::{SessionLock, SessionLocks, Taken};
