//! NATS: wake-ups, signals, streams and events. Nothing stored there is needed for correctness.
//!
//! | message | transport | if it is lost |
//! |---|---|---|
//! | wake-ups: "try to claim" | core, one member of a group | the poll finds the work within a second |
//! | [`Delta`]s: a reply while it is written | core, all listeners | the listener reads the journal |
//! | [`Control`]: stop early, read new input | core, one runner | the runner sees it at its next renewal |
//! | [`McpProbe`]: tools of an MCP server | core, request and reply | the caller gets an error |
//! | [`ModelQuestion`]: a request to a model outside of sessions | core, request and reply | the caller gets an error |
//! | [`PromptQuestion`]: the prompt of a model call, composed again | core, request and reply | the caller gets an error |
//! | [`ProcessReport`]: a process about itself | core, request and replies | the operator does not see it |
//! | questions about state that one process holds | core, processes that know | the caller asks again or goes on without |
//! | requests to a node | core, the gateway that holds its connection | the caller gets an error |
//! | events: history for other components | JetStream, kept for days | history has a gap |
//!
//! Questions, apart from those for reports and to nodes, are signed: only gateways and runners can ask
//! them. Wake-ups and [`Control`]s are hints: what they lead to is read from the database.
//!
//! Publishing to core NATS neither waits nor fails: a message that cannot be sent at once is
//! dropped and counted (`holdfast_bus_dropped_total`). A service starts without NATS, logs that
//! once, and recovers by itself. Subscriptions survive a reconnect.

mod bus;
mod config;
mod control;
mod delta;
mod error;
mod event;
mod login;
mod model_question;
mod node;
mod probe;
mod process_report;
mod prompt_question;
mod question;
mod request_keys;
mod rights;
mod runner_report;
mod signature;
mod subject;
mod subscription;
mod wake;

pub use bus::Bus;
pub use config::Config;
pub use control::{Control, ControlKind, Controls};
pub use delta::{Delta, DeltaBody, Deltas, Outcome, StepProgress, TenantDeltas};
pub use error::Error;
pub use model_question::{ModelAnswer, ModelQuestion};
pub use probe::{McpOmittedTool, McpProbe, McpProbeResult, McpProbeTool};
pub use process_report::ProcessReport;
pub use prompt_question::{PromptAnswer, PromptQuestion, RenderedMessage, RenderedPrompt};
pub use question::{Questions, Responder};
pub use runner_report::RunnerReport;
pub use signature::RequestKeys;
pub use subject::Subject;
pub use subscription::{Message, Subscription};
pub use wake::TenantWakes;
