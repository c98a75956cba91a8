//! What an agent can do besides talk.
//!
//! | tool | effect | what |
//! |---|---|---|
//! | `session_status` | reads | how this session stands |
//! | `agents_list` | reads | the tenant's agents |
//! | `sessions_list` | reads | the tenant's sessions |
//! | `sessions_history` | reads | what was said in one of them |
//! | `sessions_spawn` | writes | gives a task to a subagent |
//! | `sessions_send` | writes | says something in another session |
//! | `message` | writes | sends a message on a channel |
//! | `read`, `list_files` | reads | the agent's files |
//! | `write`, `append_file`, `edit`, `apply_patch`, `delete_file` | writes | the same |
//! | `web_fetch`, `web_search` | reads | the web (feature `web`) |
//! | `tool_search`, `tool_describe` | reads | the tools that the model was not told of |
//!
//! A tool is an input type and a function ([`Tool`]); a [`Registry`] holds
//! those that an agent has: adding one is [`Registry::with`]. What they know of
//! the mesh they ask of [`Mesh`], and of the agent's files of [`Files`]; the
//! runner implements both. What others wrote is marked by [`untrusted`] before
//! a model reads it.

mod agents_list;
mod alias;
mod allowed;
mod chains;
mod disclosure;
mod files;
mod mesh;
mod message;
mod output;
mod registry;
mod session_status;
mod sessions_history;
mod sessions_list;
mod subagents;
mod tool;
mod untrusted;
#[cfg(feature = "web")]
mod web;

pub use agents_list::AgentsList;
pub use allowed::Allowed;
pub use chains::{ChainRun, Chains};
pub use disclosure::DIRECT;
pub use files::{
    AppendFile, ApplyPatch, Change, Committed, DeleteFile, Edit, File, FileEdit, FileLine, Files,
    FilesError, ListFiles, MOST_PATH, MOST_READ, MOST_WRITTEN, Read, Write, file_path,
};
pub use mesh::{
    AgentLine, HistoryLine, Mesh, Outgoing, SendOutcome, SessionFilter, SessionLine,
    SessionStatus as Status, To, Which,
};
pub use message::Message;
pub use output::{Output, Part};
pub use registry::{MOST_OUTPUT, Registry};
pub use session_status::SessionStatus;
pub use sessions_history::SessionsHistory;
pub use sessions_list::SessionsList;
pub use subagents::{
    Ended, SessionsSend, SessionsSpawn, Spawned, SubagentLine, Subagents, SubagentsTool, Wanted,
};
pub use tool::{Call, Tool, ToolError};
pub use untrusted::{clean, untrusted};
#[cfg(feature = "web")]
pub use web::{
    DuckDuckGo, Keyed, Perplexity, Search, SearchProvider, Searxng, Web, WebFetch, WebSearch,
};
