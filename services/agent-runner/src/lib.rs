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
//! | `take.rs` | one claimed session, until it is idle or released |
//! | `turn.rs` | a turn, step by step |
//! | `intake.rs` | messages that a turn hears; pure |
//! | `route.rs` | turns whose agent is chosen by a model |
//! | `think.rs`, `call.rs`, `finish.rs` | model requests, tool calls, ends of a turn |
//! | `command.rs`, `dials.rs` | turns without a model; reply settings |
//! | `telling.rs` | verbose and reasoning messages |
//! | `approvals.rs` | calls that need an approval |
//! | `compaction.rs` | keeps the conversation within the context window |
//! | `shorten.rs` | compaction on a user's request |
//! | `flush.rs` | memory flush before a compaction |
//! | `bounds.rs` | limits of subagents and of memory flushes |
//! | `summaries.rs` | summaries of long conversations, in the background |
//! | `memory.rs`, `person.rs` | memory for tools, and its subject |
//! | `remembering.rs`, `notes.rs` | memory prefetch and notes for the prompt |
//! | `extraction.rs`, `indexing.rs`, `turn_index.rs` | memories from conversations, search index of notes and of conversation turns |
//! | `journal.rs` | entries that the turn reads and writes |
//! | `prompts.rs` | cache of the stable parts of prompts |
//! | `reply.rs` | replies and their targets; failure messages; pure |
//! | `quoting.rs` | the message that an answer quotes |
//! | `held.rs`, `heartbeat.rs` | leases and their renewal |
//! | `deltas.rs` | stream of the reply as it is written |
//! | `media.rs` | images and files: stored, shown, sent |
//! | `nodes.rs` | nodes that a conversation may use |
//! | `recall.rs` | unknown outcomes of calls whose runner crashed |
//! | `files.rs` | workspace files, for tools |
//! | `chain.rs`, `health.rs` | model fallback; cooldowns of keys and models |
//! | `budget.rs` | daily budgets |
//! | `shell.rs`, `shell/` | commands in the sandbox, on workspace files |
//! | `skills.rs`, `skills/` | skills: in prompts, called, read, installed |
//! | `outgoing.rs` | messages sent by the tool `message` |
//! | `studio.rs` | providers for vision, images and speech |
//! | `connections.rs` | connections that a turn may use |
//! | `agents.rs`, `mesh.rs` | agent snapshots; the mesh as tools see it |
//! | `policies.rs`, `standing.rs` | compiled policies; participants and refused calls |
//! | `gateway.rs` | gateway methods for a tool |
//! | `mcp.rs` | MCP servers |
//! | `subagents.rs` | subagents and their announcements |
//! | `chains.rs` | sequences of subagents |
//! | `schedules.rs`, `schedules/` | jobs and reminders: their tools and their turns |
//! | `upkeep.rs` | sweep, relay, metrics and pruning, for all sessions |
//!
//! The process is stateless: if it is killed, another runner continues its sessions.
//!
//! ## What can go wrong
//!
//! A crash can happen between any two commits. So a step is stored before it is executed; calls
//! that act on the outside world are stored as begun before they are made; and a runner that lost
//! its session has its writes refused.

mod about;
mod agents;
mod app;
mod approvals;
mod beat;
mod bill;
mod bounds;
mod budget;
mod call;
mod canvas;
mod chain;
mod chains;
mod command;
mod compaction;
mod config;
mod connections;
mod deltas;
mod dials;
mod error;
mod extraction;
mod fail;
mod files;
mod finish;
mod flush;
mod gateway;
mod health;
mod heartbeat;
mod held;
mod indexing;
mod intake;
mod journal;
mod mcp;
mod media;
mod memory;
mod mesh;
mod nodes;
mod notes;
mod outgoing;
mod patches;
mod person;
mod policies;
mod pool;
mod prompts;
mod quoting;
mod recall;
mod remembering;
mod renewal;
mod reply;
mod route;
mod schedules;
mod shell;
mod shorten;
mod skills;
mod standing;
mod studio;
mod subagents;
mod summaries;
mod take;
mod telling;
mod think;
mod trouble;
mod turn;
mod turn_index;
mod upkeep;
mod worker;
mod zone;

pub use app::App;
pub use config::{Config, Remembering, Runner, Scratch};
pub use mcp::Config as McpConfig;
pub use studio::Media;
