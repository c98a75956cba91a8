//! Behaviours: steps of a turn whose prompt, tools and result are those of a behaviour
//! (docs/decisions/0092-behaviours.md).
//!
//! ```text
//! state ─▶ input? ─▶ model ─▶ calls ─▶ … ─▶ result ─▶ actions ─▶ applied ─┬─▶ state of the next step
//!            └─ none: the session waits                                     └─▶ wait, end: the turn ends
//! ```
//!
//! The result of a step is stored as a thought: its actions are calls, and the last call, which no
//! tool serves, applies the rest. Todos, worklog and state are written in the transaction that
//! stores this call's result, so they change once, whichever runner dies.
//!
//! | file | contents |
//! |---|---|
//! | `run.rs` | the behaviours of a turn, and its state |
//! | `step.rs` | one step: its rounds of calls and its result |
//! | `request.rs` | the model request of a step |
//! | `input.rs` | what a step is shown |
//! | `result.rs` | checks of a result, and its thought |
//! | `apply.rs` | application of a result |
//! | `effects.rs` | what a result writes |
//! | `handover.rs` | messages that the router gives to another session |
//! | `watch.rs` | a wait for a change of files |
//! | `workspace.rs` | the workspace in which a session works |

mod apply;
mod effects;
mod handover;
mod input;
mod request;
mod result;
mod run;
mod step;
mod upkeep;
mod watch;
mod workspace;

pub(crate) use apply::apply_result;
pub(crate) use effects::session_error;
pub(crate) use result::RESULT_MEMORY_TOOLS;
pub(crate) use run::{BehaviorRun, effect_of, is_result, load_behavior};
pub(crate) use step::run_step;
pub(crate) use workspace::{LocalWorkspace, load_workspace};
