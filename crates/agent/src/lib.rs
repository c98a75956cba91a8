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
//! | `subagent` | what are a subagent and its requester told? |
//! | `history` | what of the journal does it see? |
//! | `outcome` | what came of the turn? |
//! | `tokens` | how long is a text? |
//! | `context` | what goes into a prompt, in which order? |
//! | `compact` | what is summarised when it is too long? |
//! | `recommend` | which skills are worth a look for a message? |

mod bootstrap;
pub mod compact;
pub mod context;
mod history;
mod outcome;
pub mod policy;
mod prompt;
pub mod recommend;
mod step;
mod subagent;
mod text;
pub mod tokens;
mod turn;

pub use bootstrap::{
    Audience, BootstrapFile, BootstrapName, HEAD_PERCENT, MOST_CHARS, TAIL_PERCENT, is_first_run,
    is_shown, may_load, trimmed, wanted,
};
pub use history::Conversation;
pub use outcome::{NO_REPLY, Outcome, is_silent, outcome_of, reply_of, seen};
pub use prompt::{
    CONTEXT_LIMIT, Channel, HEARTBEAT_OK, HEARTBEAT_PROMPT, INLINE_BUTTONS, ModelAlias, Moment,
    Product, PromptInput, PromptMode, REPLY_TAGS, Reactions, Runtime, Sandbox, Setting, Skill,
    WorkspaceAccess, build, build_on, dynamic, lite, stable,
};
pub use step::{HALTED, Limits, Step, UNKNOWN_OUTCOME, limit_reached, next};
pub use subagent::{
    SubagentOutcome, SubagentTask, stats_line, subagent_prompt, task_label, trigger_message,
};
