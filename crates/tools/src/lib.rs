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
//! | `todo` | writes | the todo list of the conversation |
//! | `wallet` | writes | payments of the agent |
//! | `self` | writes | what the agent says of itself |
//! | `message` | writes | sends a message or acts on a channel |
//! | `read`, `list_files` | reads | the agent's files |
//! | `write`, `append_file`, `edit`, `apply_patch`, `delete_file` | writes | the same |
//! | `exec`, `process` | acts | commands in the agent's workspace |
//! | `send_file` | writes | sends a file of the agent with its answer |
//! | `image` | acts | describes, measures, resizes, draws pictures (feature `image`) |
//! | `tts` | acts | converts text to speech |
//! | `web_fetch`, `web_search` | reads | the web (feature `web`) |
//! | `nodes` | acts | people's own machines (feature `nodes`) |
//! | `memory_search`, `memory_get`, `memory_values`, `kb_search`, `kb_get` | reads | memories, and the knowledge base |
//! | `memory_save`, `memory_set`, `memory_forget`, `kb_ingest`, `kb_update` | writes | the same |
//! | `canvas` | writes | shows pages beside the conversation |
//! | `browser` | acts | pages that need more than reading (feature `browser`) |
//! | `calendar`, `email`, `notion` | acts | connected accounts at other services (feature `connections`) |
//! | `tool_search`, `tool_describe` | reads | finds tools that the model did not get |
//!
//! A tool is an input type and a function ([`Tool`]); a [`Registry`] holds an agent's tools: add
//! one by [`Registry::with`]. Tools that are known only at run time are [`DynamicTool`] and join a
//! registry for a while ([`Registry::with_dynamic_tools`]). Tools access the rest of the system through
//! [`Mesh`], the agent's files through [`Files`], and commands through [`Commands`]; agent-runner
//! implements all three. Text from outside is marked by [`untrusted`] before a model reads it.

mod alias;
mod allowed_hosts;
mod allowed_tools;
mod approval;
#[cfg(feature = "browser")]
mod browser;
mod canvas;
mod chains;
mod commands;
#[cfg(feature = "connections")]
mod connections;
mod cron;
mod disclosure;
mod dynamic;
mod files;
mod gateway;
#[cfg(feature = "image")]
mod image;
mod media;
mod memory;
mod mesh;
#[cfg(feature = "nodes")]
mod nodes;
mod output;
mod patches;
mod registry;
mod reminders;
mod subagents;
mod tool;
mod tts;
mod untrusted;
#[cfg(feature = "web")]
mod web;
mod work;

pub use allowed_hosts::AllowedHosts;
pub use allowed_tools::AllowedTools;
pub use approval::{Approval, Destination, SubjectText};
#[cfg(feature = "browser")]
pub use browser::{Browser, LostWindows, ReasonFuture};
pub use canvas::{Canvas, CanvasSurface, Canvases, SurfaceFormat};
pub use chains::{ChainRun, Chains};
pub use commands::{
    CommandLine, CommandResult, CommandState, Commands, Exec, FileChangeKind, Process,
    ProcessInput, ProcessSignal, ProcessSummary, StreamOutput, WorkspaceChanges,
};
#[cfg(feature = "connections")]
pub use connections::{Calendar, Connections, Email, Notion, OpenConnection};
pub use cron::{Cron, CronJobs, CronRequest, JobTime, ShortJob};
pub use disclosure::DEFAULT_DIRECT_TOOLS;
pub use dynamic::{DynamicTool, DynamicTools, ToolFuture, UnavailableSource};
pub use files::{
    AppendFile, ApplyPatch, DeleteFile, Edit, File, FileChanges, FileEdit, FileSummary, Files,
    FilesError, ListFiles, MAX_PATH_LEN, MAX_READ_BYTES, MAX_SENT_BYTES, MAX_WRITE_BYTES, Read,
    SendFile, StoredChange, Write, file_path, stored_file,
};
pub use gateway::{Gateway, GatewayMethod, GatewayMethods, GatewayParams};
#[cfg(feature = "image")]
pub use image::{Image, ShownPicture, picture_for_models};
pub use media::{MediaBackend, MediaFile, Speaker, Speech};
pub use memory::{
    Article, ArticleChange, ArticleUpdate, KbGet, KbIngest, KbSearch, KbUpdate, MAX_MEMORY_LEN,
    Memories, MemoryDetails, MemoryError, MemoryForget, MemoryGet, MemoryHit, MemoryQuery,
    MemorySave, MemorySearch, MemorySet, MemoryType, MemoryValues, NewArticle, NewMemory, NewValue,
    StoredMemory as KeptMemory, StoredValue,
};
pub use mesh::{
    AgentLine, AgentsList, History, HistoryLine, HistoryPage, Mesh, Message, MessageTarget,
    Outgoing, SendOutcome, SessionFilter, SessionLine, SessionRef, SessionStatus as Status,
    SessionsHistory, SessionsList, sent_text_target, session_status::SessionStatus,
};
#[cfg(feature = "nodes")]
pub use nodes::{NodeLine, Nodes, NodesInput, NodesTool};
pub use output::{MAX_OUTPUT_BYTES, Output, Part};
pub use patches::{SessionsMerge, SubagentChanges};
pub use registry::{Offer, Registry, TOOL_NOT_ALLOWED};
pub use reminders::{ReminderRequest, Reminders, SchedulerAdd, SchedulerCancel, SchedulerList};
pub use subagents::{
    SessionsSend, SessionsSpawn, StartedSubagent, SubagentRequest, SubagentResult, SubagentSummary,
    Subagents, SubagentsTool,
};
pub use tool::{Call, HostContext, Tool, ToolError};
pub use tts::{SpeechExtract, Tts, extract_speech};
pub use untrusted::{clean, is_untrusted, untrusted, visible};
#[cfg(feature = "web")]
pub use web::{
    ANSWER_HEADING, DuckDuckGo, GuardedHosts, KeyedProvider, Perplexity, Search, SearchAccount,
    SearchAccounts, SearchProvider, Searxng, Web, WebFetch, WebSearch,
};
pub use work::{
    NewSelfProposal, SelfChange, SelfLog, SelfProposals, SelfTool, TodoRequest, TodoTool, Todos,
    WalletPayment, WalletTool, Wallets,
};
