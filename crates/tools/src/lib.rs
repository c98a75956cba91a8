//! What an agent can do besides talk.
//!
//! | tool | effect | what |
//! |---|---|---|
//! | `session_status` | reads | how this session stands |
//! | `agents_list` | reads | the tenant's agents |
//! | `sessions_list` | reads | the tenant's sessions |
//! | `sessions_history` | reads | what was said in one of them |
//! | `gateway` | reads | how the tenant stands, by the gateway's own words |
//! | `sessions_spawn` | writes | gives a task to a subagent |
//! | `sessions_merge` | writes | takes over what a subagent changed in its copy of the files |
//! | `sessions_send` | writes | says something in another session |
//! | `scheduler_add`, `scheduler_cancel` | writes | reminders of whoever is spoken with |
//! | `scheduler_list` | reads | the same |
//! | `cron` | writes | jobs that run at their times |
//! | `message` | writes | says or does something on a channel |
//! | `read`, `list_files` | reads | the agent's files |
//! | `write`, `append_file`, `edit`, `apply_patch`, `delete_file` | writes | the same |
//! | `exec`, `process` | acts | commands in the agent's workspace |
//! | `send_file` | writes | sends one of the agent's files with its answer |
//! | `image` | acts | looks at, measures, resizes, draws pictures (feature `image`) |
//! | `tts` | acts | speaks a text |
//! | `web_fetch`, `web_search` | reads | the web (feature `web`) |
//! | `nodes` | acts | people's own machines (feature `nodes`) |
//! | `memory_search`, `memory_get`, `kb_search`, `kb_get` | reads | what is remembered, and known |
//! | `memory_save`, `memory_forget`, `kb_ingest`, `kb_update` | writes | the same |
//! | `canvas` | writes | shows something beside the conversation |
//! | `browser` | acts | pages that need more than reading (feature `browser`) |
//! | `calendar`, `email`, `notion` | acts | what is kept for people elsewhere (feature `connections`) |
//! | `tool_search`, `tool_describe` | reads | the tools that the model was not told of |
//!
//! A tool is an input type and a function ([`Tool`]); a [`Registry`] holds
//! those that an agent has: adding one is [`Registry::with`]. Those that others
//! bring while the mesh runs are [`Dynamic`] and join a registry for a while
//! ([`Registry::joined_by`]). What they know of the mesh they ask of [`Mesh`], of
//! the agent's files of [`Files`], and what runs of [`Commands`]; the runner
//! implements all three. What others wrote is marked by [`untrusted`] before a
//! model reads it.

mod agents_list;
mod alias;
mod allowed;
mod approval;
#[cfg(feature = "browser")]
mod browser;
mod canvas;
mod chains;
mod commands;
#[cfg(feature = "connections")]
mod connected;
mod cron;
mod disclosure;
mod dynamic;
mod files;
mod gateway;
#[cfg(feature = "image")]
mod image;
mod memory;
mod mesh;
mod message;
#[cfg(feature = "nodes")]
mod nodes;
mod output;
mod patches;
mod registry;
mod reminders;
mod session_status;
mod sessions_history;
mod sessions_list;
mod studio;
mod subagents;
mod tool;
mod tts;
mod untrusted;
#[cfg(feature = "web")]
mod web;

pub use agents_list::AgentsList;
pub use allowed::Allowed;
pub use approval::Approval;
#[cfg(feature = "browser")]
pub use browser::Browser;
pub use canvas::{Canvas, Canvases, Shown, ShownAs};
pub use chains::{ChainRun, Chains};
pub use commands::{
    CommandLine, Commands, Exec, FileMark, Kept, Process, ProcessInput, ProcessLine, ProcessSignal,
    Ran, Stands, Written,
};
#[cfg(feature = "connections")]
pub use connected::{Calendar, Connections, Email, Notion, Opened};
pub use cron::{Cron, CronWish, Crons, Saying, When};
pub use disclosure::DIRECT;
pub use dynamic::{Away, Brought, Dynamic, Making};
pub use files::{
    AppendFile, ApplyPatch, Change, Committed, DeleteFile, Edit, File, FileEdit, FileLine, Files,
    FilesError, ListFiles, MOST_PATH, MOST_READ, MOST_SENT, MOST_WRITTEN, Read, SendFile, Write,
    file_path, stored_file,
};
pub use gateway::{Gateway, Method, Methods, Params};
#[cfg(feature = "image")]
pub use image::Image;
pub use memory::{
    Article, ArticleChange, Found, KbGet, KbIngest, KbSearch, KbUpdate, Kept as KeptMemory,
    MOST_REMEMBERED, Memories, MemoryError, MemoryForget, MemoryGet, MemorySave, MemorySearch,
    MemoryType, NewArticle, Sought, ToKeep, Updated,
};
pub use mesh::{
    AgentLine, HistoryLine, Mesh, Outgoing, SendOutcome, SessionFilter, SessionLine,
    SessionStatus as Status, To, Which,
};
pub use message::{Message, said_with_message};
#[cfg(feature = "nodes")]
pub use nodes::{NodeLine, Nodes, NodesInput, NodesTool};
pub use output::{Output, Part};
pub use patches::{Patches, SessionsMerge};
pub use registry::{MOST_OUTPUT, NOT_YOURS, Offer, Registry};
pub use reminders::{Remind, Reminders, SchedulerAdd, SchedulerCancel, SchedulerList};
pub use session_status::SessionStatus;
pub use sessions_history::SessionsHistory;
pub use sessions_list::SessionsList;
pub use studio::{Made, Speaker, Speech, Studio};
pub use subagents::{
    Ended, SessionsSend, SessionsSpawn, Spawned, SubagentLine, Subagents, SubagentsTool, Wanted,
};
pub use tool::{Call, Tool, ToolError};
pub use tts::{Spoken, Tts, spoken};
pub use untrusted::{clean, untrusted};
#[cfg(feature = "web")]
pub use web::{
    DuckDuckGo, Guard, Keyed, Perplexity, Refused, Search, SearchProvider, Searxng, Web, WebFetch,
    WebSearch,
};
