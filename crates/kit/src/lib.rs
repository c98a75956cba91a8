//! Start, operation and shutdown of every Holdfast process.
//!
//! | module | contents |
//! |---|---|
//! | [`config`] | settings: defaults, a file, the environment; settings that are read again |
//! | [`telemetry`], [`trace`], [`metrics`] | logs and spans; trace context of messages; Prometheus metrics |
//! | [`Tasks`], [`shutdown`] | long-running tasks that end together; SIGTERM |
//! | [`Readiness`] | whether this process accepts work |
//! | [`Backoff`] | delays between retries |
//! | [`boot_clock`] | a clock that continues while the machine is suspended |
//! | [`Budget`], [`FairSlots`] | limits that tenants share |
//! | [`SeenMessages`] | signed messages that are accepted once |
//! | [`is_public`], [`Network`] | addresses that may be called for a tenant; networks of a setting |
//! | [`net`] | listeners |
//! | [`tls`] | certificates, TLS of servers and clients |

mod address;
mod backoff;
pub mod boot_clock;
mod budget;
pub mod config;
mod fair_slots;
mod health;
pub mod metrics;
pub mod net;
mod seen_messages;
pub mod shutdown;
mod tasks;
pub mod telemetry;
pub mod tls;
pub mod trace;
mod watched;

pub use address::{InvalidNetwork, Network, is_public};
pub use backoff::Backoff;
pub use budget::{Budget, BudgetShare, BudgetSpent};
pub use fair_slots::{FairSlot, FairSlots};
pub use health::{Check, Readiness};
pub use seen_messages::{Nonce, RefusedMessage, SeenMessages};
pub use tasks::Tasks;
