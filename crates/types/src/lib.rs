//! Types that all parts of Holdfast share.
//!
//! No type does I/O or reads a clock, except that new ids contain the time. A type belongs here
//! only if at least three crates need it.

mod act;
mod approval;
mod chain;
mod chat;
mod command;
mod connection;
mod context;
mod delivery;
mod dial;
mod effect;
mod entry;
mod fault;
mod heartbeat;
mod id;
mod media;
mod message;
mod name;
mod node;
mod queue;
mod route;
mod scheduled;
mod session_key;
mod session_settings;
mod tree_path;
mod wait;

pub use act::Act;
pub use approval::{ApprovalState, Verdict};
pub use chain::{Chain, ChainStep, MOST_AT_ONCE, MOST_STAGES, SHIPPED_CHAIN, Stage};
pub use chat::{
    Chat, ChatMessage, Image, ImageData, InvalidModelId, InvalidThinking, ModelId, Reply, Stop,
    Thinking, ToolSpec,
};
pub use command::{Command, Listed, ModelWish, ZoneWish};
pub use connection::{
    Caldav, Connected, ConnectionKind, InvalidConnection, Notion, SmtpSecurity, SmtpServer, UsedBy,
};
pub use context::{ContextOptions, RecommendSkills, Strategy};
pub use delivery::{DeliveryClass, DeliveryState};
pub use dial::{Dial, Dials, Elevated, InvalidLevel, Reasoning, Verbose};
pub use effect::Effect;
pub use entry::{Entry, Note, ToolCall, Usage};
pub use fault::{Fault, Kind};
pub use heartbeat::Heartbeat;
pub use id::{
    AccountId, AgentId, ApprovalId, DeliveryId, InvalidId, JobId, KeyId, MessageId, NodeId, RunId,
    RunnerId, SessionId, TenantId,
};
pub use media::{Media, StoredFile, extension, media_type};
pub use message::{Attachment, Author, Body, Peer, PeerKind, ReplyTo, Sender, Source, Target};
pub use name::{AgentName, account_name};
pub use node::{
    MOST_NODE_COMMAND, MOST_NODE_OUTPUT, NodeCommand, NodeRan, NodeReached, NodeSaid, NodeWish,
};
pub use queue::QueueMode;
pub use route::{Choice, ChosenBy, ModelRoute, RouteEach};
pub use scheduled::{Fired, Post, Posted, SCHEDULE, SystemEvent};
pub use session_key::{DmScope, GroupScope, InvalidKey, SessionKey, SessionKind};
pub use session_settings::SessionSettings;
pub use tree_path::{InvalidPath, TreePath};
pub use wait::{APPROVAL_RESOLVED, Filter, State, Wait, wakes};
