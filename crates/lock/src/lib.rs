//! Locks, leases, limits and other short-lived shared state in Redis. All of it may be lost at any
//! moment.
//!
//! | | |
//! |---|---|
//! | [`SessionLocks`] | make a runner that lost its session stop early; tell who runs a session |
//! | [`Lease`] | one holder at a time for something that is not a session: a channel bot's connection |
//! | [`Limit`] | rate limits; approximated by each process while Redis is down |
//! | [`Mark`] | shared notes about failures; the latest one wins |
//! | [`RecentMessage`] | hashes of the texts sent in the last hours |
//! | [`Amount`] | reservations for work in progress |
//!
//! All of it saves work or keeps order. Correctness rests on the fence in Postgres only. So every
//! call here ends within half a second, and a caller goes on without Redis if the call fails.
//!
//! **What can go wrong.** Redis restarts empty: locks and leases are set again at their next
//! renewal, limits start full. Redis hangs: calls in flight wait for half a second; after that one
//! call per half second is tried, and the others fail at once.

mod error;
mod lease;
mod limit;
mod marks;
mod rate;
mod recent_messages;
mod redis;
mod reserve;
mod sentinel;
mod session;

pub use error::Error;
pub use lease::Lease;
pub use limit::{Limit, Verdict};
pub use marks::Mark;
pub use recent_messages::RecentMessage;
pub use redis::{Config, Locks, REDIS_TIMEOUT};
pub use reserve::Amount;
pub use session::{SessionLock, SessionLocks, TakeOutcome};
