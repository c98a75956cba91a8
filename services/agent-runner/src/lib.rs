//! Agent-runner: claims sessions that have work and runs their turns.
//!
//! ```text
//!  wake-ups ─▶ pool ── claim ──▶ turn ── load ─ hear ─ next? ─┬─ think ─▶ model
//!  poll ─────▶  │                 │ ▲                         ├─ call ──▶ tools ─▶ mesh
//!  sweep ────▶  │     renewal ──▶ lease: lost? paused? input?  └─ finish ▶ complete ─▶ deliveries
//!               └── as many at once as there are slots              └─▶ deltas, wake-ups
//! ```
//!
//! | file | contents |
//! |---|---|
//! | `pool.rs` | claim pool: claims sessions and runs them |
//! | `run.rs` | one claimed session, until it is idle or released |
//! | `turn.rs` | a turn, step by step |
//! | `intake.rs` | messages that a turn hears; pure |
//! | `routing.rs` | turns whose agent is chosen by a model |
//! | `think.rs`, `call.rs`, `completion.rs` | model requests, tool calls, ends of a turn |
//! | `commands.rs`, `reply_settings.rs` | turns without a model; reply settings |
//! | `progress_messages.rs` | verbose and reasoning messages |
//! | `approvals.rs` | calls that need an approval |
//! | `compaction.rs` | keeps the conversation within the context window |
//! | `compact_command.rs` | compaction on a user's request |
//! | `flush.rs` | memory flush before a compaction |
//! | `limits.rs` | limits of subagents and of memory flushes |
//! | `summaries.rs` | summaries of long conversations, in the background |
//! | `memory.rs`, `memory_subject.rs` | memory for tools, and its subject |
//! | `memory_prefetch.rs`, `notes.rs` | memory prefetch and notes for the prompt |
//! | `extraction.rs`, `indexing.rs`, `turn_index.rs` | memories from conversations, search index of notes and of conversation turns |
//! | `journal.rs` | entries that the turn reads and writes |
//! | `prompts.rs` | cache of the stable parts of prompts |
//! | `replies.rs` | replies and their targets; failure messages; pure |
//! | `quotes.rs` | the message that an answer quotes |
//! | `leases.rs`, `lease_renewal.rs` | leases and their renewal |
//! | `tool_context.rs` | what tools read of a turn and leave for it |
//! | `deltas.rs` | stream of the reply as it is written |
//! | `media.rs` | images and files: stored, shown, sent |
//! | `nodes.rs` | nodes that a conversation may use |
//! | `unknown_outcomes.rs` | unknown outcomes of calls whose runner crashed |
//! | `files.rs` | workspace files, for tools |
//! | `fallback.rs`, `key_health.rs` | model fallback; cooldowns of keys and models |
//! | `budget.rs` | daily budgets |
//! | `shell.rs`, `shell/` | commands in the sandbox, on workspace files |
//! | `skills.rs`, `skills/` | skills: in prompts, called, read, installed |
//! | `channel_messages.rs` | messages sent by the tool `message` |
//! | `media_providers.rs` | providers for vision, images and speech |
//! | `connections.rs` | connections that a turn may use |
//! | `agents.rs`, `mesh.rs` | agent snapshots; the mesh as tools see it |
//! | `policies.rs`, `participants.rs` | compiled policies; participants and refused calls |
//! | `gateway_methods.rs` | gateway methods for a tool |
//! | `mcp.rs` | MCP servers |
//! | `subagents.rs` | subagents and their announcements |
//! | `chains.rs` | sequences of subagents |
//! | `schedules.rs`, `schedules/` | jobs and reminders: their tools and their turns |
//! | `maintenance.rs` | sweep, relay, metrics and pruning, for all sessions |
//!
//! The process is stateless: if it is killed, another runner continues its sessions.
//!
//! ## What can go wrong
//!
//! A crash can happen between any two commits. So a step is stored before it is executed; calls
//! that act on the outside world are stored as begun before they are made; and a runner that lost
//! its session has its writes refused.

mod agents;
mod app;
mod approvals;
mod budget;
mod call;
mod canvas;
mod chains;
mod channel_messages;
mod commands;
mod compact_command;
mod compaction;
mod completion;
mod config;
mod connections;
mod deltas;
mod error;
mod extraction;
mod failpoints;
mod failure_log;
mod fallback;
mod files;
mod flush;
mod gateway_methods;
mod heartbeats;
mod indexing;
mod intake;
mod journal;
mod key_health;
mod lease_renewal;
mod leases;
mod limits;
mod maintenance;
mod mcp;
mod media;
mod media_providers;
mod memory;
mod memory_prefetch;
mod memory_subject;
mod mesh;
mod nodes;
mod notes;
mod participants;
mod patches;
mod policies;
mod pool;
mod progress_messages;
mod prompts;
mod quotes;
mod replies;
mod reply_settings;
mod routing;
mod run;
mod runner_report;
mod schedules;
mod shell;
mod skills;
mod subagents;
mod summaries;
mod think;
mod time_zone;
mod token_renewal;
mod tool_context;
mod tool_usage;
mod turn;
mod turn_index;
mod unknown_outcomes;
mod worker;

pub use app::App;
pub use config::{Config, MemoryConfig, RunnerConfig, ScratchConfig};
pub use mcp::Config as McpConfig;
pub use media_providers::MediaConfig;
