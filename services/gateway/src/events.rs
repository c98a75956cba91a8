//! Events of tenants for integrators: subscriptions to the log, and webhooks.
//!
//! | file | contents |
//! |---|---|
//! | `subscription.rs` | a subscription as a stream, for every API: it reads the log at the subscriber's pace |
//! | `source.rs` | wake-ups of the subscriptions of this process |
//! | `recent_pages.rs` | pages of a tenant's log that its subscriptions share |
//! | `convert.rs` | cursors, filters and events in the forms of the protos |
//! | `grpc.rs` | the service `Events`, and the check of a request for every API |
//! | `webhooks.rs` | the service `EventWebhooks`, whose events runners send |
//!
//! Nothing is queued for a slow subscriber: it has at most one page of the log in memory, and reads
//! the next one when it has taken that. Turns know nothing of subscribers.

mod convert;
mod grpc;
mod recent_pages;
mod source;
mod subscription;
mod webhooks;

pub use grpc::{add_services, subscription};
pub use source::EventSource;
pub use subscription::{EventItem, Subscription, SubscriptionStart};
