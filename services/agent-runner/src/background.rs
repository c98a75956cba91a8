//! Work outside of turns, each for all sessions of this process.
//!
//! | file | contents |
//! |---|---|
//! | `lease_renewal.rs` | renewal of leases |
//! | `runner_renewal.rs` | renewal of this runner, as the holder of sessions' state |
//! | `maintenance.rs` | sweep, metrics and pruning |
//! | `event_log.rs`, `webhooks.rs` | the log of events and its publication; webhooks for events |
//! | `tenant_deletion.rs` | deletion of tenants |
//! | `tenant_events.rs`, `tenant_limits.rs` | publication of tenants' events; plans, expiry and warnings |
//! | `announcements.rs` | ended subagents are announced |
//! | `summaries.rs` | summaries of long conversations |
//! | `extraction.rs` | memories from conversations |
//! | `file_watches.rs` | changes of files are told to waiting sessions |
//! | `indexing.rs`, `turn_index.rs` | search index of notes and of conversation turns |
//! | `work.rs` | todo changes are told to waiting sessions; the chain of the ledger |
//! | `self_improvement.rs` | agents that have rested are asked to look after themselves |
//! | `mcp_servers.rs` | upkeep of connections to MCP servers, and probes of them |
//! | `questions.rs`, `model_questions.rs` | questions that gateways ask any runner, and those to models |
//! | `tool_list.rs`, `runner_report.rs` | what this runner announces: its tools and its state |

pub(crate) mod announcements;
pub(crate) mod event_log;
pub(crate) mod extraction;
pub(crate) mod file_watches;
pub(crate) mod indexing;
pub(crate) mod lease_renewal;
pub(crate) mod maintenance;
pub(crate) mod mcp_servers;
pub(crate) mod model_questions;
pub(crate) mod questions;
pub(crate) mod runner_renewal;
pub(crate) mod runner_report;
pub(crate) mod self_improvement;
pub(crate) mod summaries;
pub(crate) mod tenant_deletion;
pub(crate) mod tenant_events;
pub(crate) mod tenant_limits;
pub(crate) mod tool_list;
pub(crate) mod turn_index;
pub(crate) mod webhooks;
pub(crate) mod work;
