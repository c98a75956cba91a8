//! Decisions of an agent: the next step, the prompt, the outcome of a turn.
//!
//! Everything is decided from the session's journal alone: no clock, no I/O, no runtime. A runner
//! reads the journal, calls [`next`], executes the step, appends the result, and repeats. If it
//! crashes, another runner reads the same journal and continues.
//!
//! | module | contents |
//! |---|---|
//! | `access` | whose a conversation is, and with which rights a turn acts |
//! | `turn` | beginning and end of a turn |
//! | `step` | the next step |
//! | `prompt` | the system prompt |
//! | `behavior` | behaviours: prompts, results and limits of steps |
//! | `bootstrap` | the files that define an agent |
//! | `bundle` | named sets of tools for subagents |
//! | `chain` | the next stage of a chain |
//! | `file_view` | the files that a conversation sees |
//! | `subagent` | texts for a subagent and its requester |
//! | `history` | the part of the journal that the model sees |
//! | `recent_tools` | tools that the agent looked up |
//! | `outcome` | the outcome of a turn |
//! | `tokens` | token estimates |
//! | `compact` | summaries of long conversations |
//! | `memory` | extraction of memories |
//! | `person` | the user of a conversation |
//! | `policy` | tool permissions and approvals |
//! | `recommend` | skill recommendations |
//! | `route` | the choice of an agent by a model |
//! | `turns_to_index` | conversation turns to index for search |
//! | `yaml` | a parser of YAML with limits |

pub mod access;
pub mod behavior;
pub mod bootstrap;
pub mod bundle;
pub mod chain;
pub mod compact;
pub mod file_view;
mod history;
pub mod memory;
mod outcome;
pub mod person;
pub mod policy;
pub mod prompt;
mod recent_tools;
pub mod recommend;
pub mod route;
mod step;
pub mod subagent;
pub mod templates;
mod text;
pub mod tokens;
mod turn;
mod turns_to_index;
pub mod yaml;

pub use history::{Conversation, Picture};
pub use outcome::{NO_REPLY, Outcome, heard_seqs, is_silent, outcome_of};
pub use prompt::{CONTEXT_LIMIT, PromptInput, build_on};
pub use recent_tools::recently_used_tools;
pub use step::{
    CallResult, Limit, Limits, Step, UNKNOWN_OUTCOME, calls_awaiting_approval, has_lost_call,
    is_allowed, limit_reached, new_calls, next,
};
pub use turn::may_begin_earlier;
pub use turns_to_index::{ASSISTANT, IndexEntry, turns_to_index};
