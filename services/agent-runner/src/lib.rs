//! The agent-runner: claims sessions that have something to do, and does it.
//!
//! ```text
//!  wake-ups ─▶ pool ── claim ──▶ turn ── load ─ hear ─ next? ─┬─ think ─▶ model
//!  poll ─────▶  │                 │ ▲                         ├─ call ──▶ tools ─▶ mesh
//!  sweep ────▶  │   heartbeat ──▶ hold: lost? held? input?    └─ finish ▶ complete ─▶ deliveries
//!               └── as many at once as there are slots              └─▶ deltas, wake-ups
//! ```
//!
//! | file | what |
//! |---|---|
//! | `pool.rs` | claiming, and running what is claimed |
//! | `take.rs` | one claimed session, from its claim to its rest |
//! | `turn.rs` | a turn, from step to step |
//! | `intake.rs` | which messages a turn takes in; pure |
//! | `route.rs` | turns whose agent a model chooses |
//! | `think.rs`, `call.rs`, `finish.rs` | the model, the tools, the ends of a turn |
//! | `command.rs`, `dials.rs` | turns that need no model; how turns are answered |
//! | `telling.rs` | calls and thoughts, told to those who asked for it |
//! | `approvals.rs` | calls that need a person's word |
//! | `compaction.rs` | keeping the conversation within what the model can read |
//! | `shorten.rs` | the same because somebody asks for it |
//! | `flush.rs` | writing memory down before that |
//! | `bounds.rs` | what a subagent, or a turn that writes memory down, may use |
//! | `summaries.rs` | summarising long conversations beside the turns |
//! | `memory.rs`, `person.rs` | what is remembered, as tools see it; of whom |
//! | `remembering.rs`, `notes.rs` | what of it is in the prompt |
//! | `extraction.rs`, `indexing.rs` | taking from conversations and notes what is to be found later |
//! | `journal.rs` | what the turn reads and writes |
//! | `prompts.rs` | stable parts of prompts, kept |
//! | `reply.rs` | what is sent where; what people are told when there is no answer; pure |
//! | `quoting.rs` | which message an answer quotes |
//! | `held.rs`, `heartbeat.rs` | what is held, and keeping it |
//! | `deltas.rs` | the reply as it is written |
//! | `media.rs` | pictures and files: kept, shown, sent |
//! | `nodes.rs` | people's own machines, as a conversation may use them |
//! | `recall.rs` | what came of a call whose runner died, where its tool can say |
//! | `files.rs` | the agent's files, as its tools see them |
//! | `chain.rs`, `health.rs` | an agent's models and their keys, asked in turn; what is remembered of those that failed |
//! | `budget.rs` | what may be used in a day |
//! | `shell.rs`, `shell/` | the agent's commands: in a sandbox, among its files |
//! | `skills.rs`, `skills/` | the skills of agents: in prompts, called, read, installed |
//! | `outgoing.rs` | what the tool `message` may do where |
//! | `studio.rs` | who sees, draws and speaks |
//! | `connections.rs` | which connections a turn may use |
//! | `agents.rs`, `mesh.rs` | agents and their models; what tools see of the mesh |
//! | `policies.rs`, `standing.rs` | which tools may be used; who speaks, and what is refused to them |
//! | `gateway.rs` | the gateway's methods that a tool may call |
//! | `mcp.rs` | others' tools: MCP servers, as agents use them |
//! | `subagents.rs` | making subagents, and announcing their ends |
//! | `chains.rs` | several subagents, one after another and at once |
//! | `schedules.rs`, `schedules/` | jobs and reminders: as tools make them, as turns come of them |
//! | `upkeep.rs` | sweep, relay, measure, prune: for all sessions, not only those held here |
//!
//! It is stateless: kill it, and another goes on with what it held.
//!
//! ## What can go wrong
//!
//! Anything, at any moment, between two commits. So a step is stored before
//! anything is done about it; what acts on the world is stored as begun before
//! it is; and a runner that has lost its session finds its writes refused.

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
mod upkeep;
mod worker;
mod zone;

pub use app::App;
pub use config::{Config, Remembering, Runner, Scratch};
pub use mcp::Config as McpConfig;
pub use studio::Media;
