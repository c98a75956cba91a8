//! Turns: one claimed session at a time, step by step until it is idle.
//!
//! [`TurnState`](state::TurnState) holds what the steps share; each other file is one step or one
//! part of it, as functions that take the state.
//!
//! ```text
//! run ── load ─▶ steps ─▶ commands, routing, skills ─▶ think ─▶ calls ─▶ … ─▶ reply ─▶ after_turn
//! ```
//!
//! | file | contents |
//! |---|---|
//! | `run.rs` | one claimed session, until it is idle or released |
//! | `state.rs` | state of a turn |
//! | `steps.rs` | a turn, step by step |
//! | `intake.rs` | messages that a turn hears; pure |
//! | `journal.rs` | entries that the turn reads and writes |
//! | `think.rs`, `prompt.rs`, `calls.rs` | model requests and their prompts; tool calls, and their unknown outcomes |
//! | `behavior.rs` | steps of agents that work by behaviours |
//! | `client_options.rs` | form of an answer and calls of tools that an API's client asks for |
//! | `approvals.rs` | calls that need an approval |
//! | `context.rs` | what the model is shown: compaction, images, memories |
//! | `reply.rs` | ends of a turn, and what is sent |
//! | `commands.rs`, `reply_settings.rs`, `time_zone.rs` | turns without a model; settings |
//! | `routing.rs` | turns whose agent is chosen by a model |
//! | `skills.rs` | skills that a message invokes, or that may fit it |
//! | `participants.rs`, `limits.rs` | participants and refused calls; limits on tools and files |
//! | `budget.rs` | budgets of model requests |
//! | `firings.rs`, `heartbeats.rs`, `requester.rs` | turns that a job begins; requester of jobs |
//! | `after_turn.rs` | background work that follows a turn |

mod after_turn;
mod approvals;
mod behavior;
mod budget;
mod calls;
mod client_options;
mod commands;
pub(crate) mod context;
mod firings;
mod heartbeats;
mod intake;
mod journal;
mod limits;
pub(crate) mod participants;
pub(crate) mod prompt;
pub(crate) mod reply;
mod reply_settings;
mod requester;
mod routing;
pub(crate) mod run;
mod skills;
pub(crate) mod state;
mod steps;
mod think;
mod time_zone;
