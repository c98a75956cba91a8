//! NATS, as far as Holdfast uses it: it wakes and informs, and holds nothing that matters.
//!
//! | what | how | lost? |
//! |---|---|---|
//! | wake-ups: "try to claim" | core, one of a group gets it | costs up to the poll's second |
//! | [`Delta`]s: a reply as it is written | core, whoever listens | the listener reads the journal |
//! | [`Control`]: stop early, look at your input | core, one runner | seen at its next renewal |
//! | [`McpProbe`]: what does a server offer? | core, request and reply | who asks is told |
//! | questions: about what one process alone knows | core, whoever knows | asked again, or left |
//! | what a node is asked | core, the gateway that has its connection | who asks is told |
//! | events: what others may like to know | JetStream, kept for days | nobody's correctness |
//!
//! Publishing to core neither waits nor fails: what cannot be sent at once is
//! dropped and counted (`holdfast_bus_dropped_total`). A service starts without
//! NATS, says so once, and heals by itself; subscriptions outlive the connection.

mod about;
mod bus;
mod config;
mod control;
mod delta;
mod error;
mod event;
mod node;
mod probe;
mod question;
mod subject;
mod subscription;
mod wake;

pub use about::RunnerAbout;
pub use bus::Bus;
pub use config::Config;
pub use control::{Control, ControlKind, Controls};
pub use delta::{Delta, DeltaBody, Deltas, Outcome};
pub use error::Error;
pub use probe::{McpProbe, McpProbed, McpProbedTool};
pub use question::{Asker, Questions};
pub use subject::Subject;
pub use subscription::{Message, Subscription};
