//! What every process of Holdfast needs to start, run and stop well.
//!
//! | module | for |
//! |---|---|
//! | [`config`] | the settings: defaults, a TOML file, the environment |
//! | [`telemetry`], [`trace`], [`metrics`] | logs and spans; the trace a message belongs to; numbers |
//! | [`Tasks`], [`shutdown`] | loops that live and die together; SIGTERM |
//! | [`Readiness`] | whether this process wants work |
//! | [`Backoff`] | how long to wait before trying again |
//! | [`boot_clock`] | a clock that a suspended machine does not stop |
//! | [`is_public`] | which addresses may be called for a tenant |
//! | [`net`], [`tls`] | listening; the one crypto provider |

mod address;
mod backoff;
pub mod boot_clock;
pub mod config;
mod health;
pub mod metrics;
pub mod net;
pub mod shutdown;
mod tasks;
pub mod telemetry;
pub mod tls;
pub mod trace;

pub use address::is_public;
pub use backoff::Backoff;
pub use health::{Check, Readiness};
pub use tasks::Tasks;
