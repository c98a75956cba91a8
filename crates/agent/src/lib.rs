//! What an agent does next, what its model is told, and what came of it.
//!
//! All of it is decided from the journal of the session and nothing else: no
//! clock, no I/O, no runtime. A runner reads the journal, asks [`next`], does
//! what it says, appends what happened, and asks again; when it dies, another
//! one reads the same journal and goes on.
//!
//! | module | question |
//! |---|---|
//! | `turn` | where does a turn begin, and where does it end? |
//! | `step` | what is to be done next? |
//! | `prompt` | what is the model told? |
//! | `bootstrap` | which files make an agent, and who sees them? |
//! | `bundle` | which tools is a subagent given by a name? |
//! | `chain` | what is next once a step of a chain has ended? |
//! | `subagent` | what are a subagent and its requester told? |
//! | `history` | what of the journal does it see? |
//! | `sought` | which tools did it look up? |
//! | `outcome` | what came of the turn? |
//! | `tokens` | how long is a text? |
//! | `context` | what goes into a prompt, in which order? |
//! | `compact` | what is summarised when it is too long? |
//! | `memory` | what of a conversation is worth remembering? |
//! | `person` | whom is a conversation with? |
//! | `recommend` | which skills are worth a look for a message? |
//! | `route` | which agent answers, where a model says so? |

pub mod bootstrap;
pub mod bundle;
pub mod chain;
pub mod compact;
pub mod context;
mod history;
pub mod memory;
mod outcome;
pub mod person;
pub mod policy;
pub mod prompt;
pub mod recommend;
pub mod route;
mod sought;
mod step;
pub mod subagent;
mod text;
pub mod tokens;
mod turn;

pub use history::{Conversation, Picture};
pub use outcome::{NO_REPLY, Outcome, is_silent, outcome_of, reply_of, seen};
pub use prompt::{CONTEXT_LIMIT, PromptInput, build, build_on};
pub use sought::sought;
pub use step::{
    Came, HALTED, Limit, Limits, Step, UNKNOWN_OUTCOME, is_allowed, limit_reached, next, unheard,
    untouched,
};
