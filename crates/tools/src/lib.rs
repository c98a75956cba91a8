//! Tools that agents can call.
//!
//! | tool | effect | purpose |
//! |---|---|---|
//! | `session_status` | reads | state of this session |
//! | `agents_list` | reads | the tenant's agents |
//! | `sessions_list` | reads | the tenant's sessions |
//! | `sessions_history` | reads | messages of a session |
//! | `gateway` | reads | read-only methods of the gateway |
//! | `sessions_spawn` | writes | gives a task to a subagent |
//! | `sessions_merge` | writes | merges a subagent's changes to its copy of the files |
//! | `sessions_send` | writes | sends a message to another session |
//! | `scheduler_add`, `scheduler_cancel` | writes | reminders for the user of the conversation |
//! | `scheduler_list` | reads | the same |
//! | `cron` | writes | jobs that run at given times |
//! | `message` | writes | sends a message or acts on a channel |
//! | `read`, `list_files` | reads | the agent's files |
//! | `write`, `append_file`, `edit`, `apply_patch`, `delete_file` | writes | the same |
//! | `exec`, `process` | acts | commands in the agent's workspace |
//! | `send_file` | writes | sends a file of the agent with its answer |
//! | `image` | acts | describes, measures, resizes, draws pictures (feature `image`) |
//! | `tts` | acts | converts text to speech |
//! | `web_fetch`, `web_search` | reads | the web (feature `web`) |
//! | `nodes` | acts | people's own machines (feature `nodes`) |
//! | `memory_search`, `memory_get`, `kb_search`, `kb_get` | reads | memories, and the knowledge base |
//! | `memory_save`, `memory_forget`, `kb_ingest`, `kb_update` | writes | the same |
//! | `canvas` | writes | shows pages beside the conversation |
//! | `browser` | acts | pages that need more than reading (feature `browser`) |
//! | `calendar`, `email`, `notion` | acts | connected accounts at other services (feature `connections`) |
//! | `tool_search`, `tool_describe` | reads | finds tools that the model did not get |
//!
//! A tool is an input type and a function ([`Tool`]); a [`Registry`] holds an agent's tools: add
//! one by [`Registry::with`]. Tools that are known only at run time are [`Dynamic`] and join a
//! registry for a while ([`Registry::joined_by`]). Tools access the rest of the system through
//! [`Mesh`], the agent's files through [`Files`], and commands through [`Commands`]; agent-runner
//! implements all three. Text from outside is marked by [`untrusted`] before a model reads it.

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
