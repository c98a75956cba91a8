//! Types that all parts of Holdfast share.
//!
//! No type does I/O or reads a clock, except that new ids contain the time. A type belongs here
//! only if at least three crates need it.

mod act;
mod answer_options;
mod approval;
mod behavior;
mod chain;
mod chat;
mod client_tool;
mod command;
mod connection;
mod context;
mod delivery;
mod directive;
mod effect;
mod entry;
mod failure_class;
mod fault;
mod handover;
mod hit_points;
mod id;
mod media;
mod message;
mod model_record;
mod money;
mod name;
mod newer;
mod node;
mod proposal;
mod provider_failure;
mod queue;
mod self_improve;
mod session_key;
mod session_settings;
mod tenant_role;
mod tool_call;
mod tree_path;
mod wait;

pub use act::ChannelAction;
pub use answer_options::{
    AnswerFormat, AnswerOptions, AnswerSchema, Effort, InvalidSchema, NamedSchema,
};
pub use approval::{ApprovalDecision, ApprovalState};
pub use behavior::{
    BehaviorName, BehaviorRole, InvalidBehaviorName, NewSession, NewTodo, SessionDelta, StepAction,
    StepReply, StepResult, TodoEstimate, TodoInit, TodoKind, TodoNoteKind, TodoOperation,
    TodoStatus, WaitDetails, WorkspaceChoice,
};
pub use chain::{Chain, ChainStep, MAX_STAGES, MAX_STEPS_PER_STAGE, SHIPPED_CHAIN_NAME, Stage};
pub use chat::{
    Chat, ChatMessage, Image, ImageData, InvalidModelId, InvalidThinking, ModelId, Reply,
    StopReason, Thinking, ToolSpec,
};
pub use client_tool::{ClientCall, ClientResult, ClientTool, ToolChoice};
pub use command::{
    Command, DecisionCommand, ListTopic, ModelCommand, QueueCommand, TimeZoneCommand,
};
pub use connection::{
    Caldav, ConnectionKind, ConnectionScope, ConnectionSettings, InvalidConnection, Notion,
    SmtpSecurity, SmtpServer,
};
pub use context::{AgentKind, ContextOptions, PromptStrategy, Reactions, RecommendSkills};
pub use delivery::{DeliveryClass, DeliveryState};
pub use directive::{Directive, Directives, Elevated, InvalidLevel, Reasoning, Verbose};
pub use effect::Effect;
pub use entry::{AgentChoice, CallRecord, ChoiceOrigin, Entry, Note, SessionPost, SystemEvent};
pub use failure_class::{FailureClass, UnknownFailureClass};
pub use fault::{Fault, Kind};
pub use handover::Handover;
pub use hit_points::{HitPointSettings, WorkAmounts};
pub use id::{
    AccountId, AgentId, ApprovalId, DeliveryId, InvalidId, InvitationId, JobId, KeyId, MessageId,
    NodeId, PersonId, ProposalId, RunId, RunnerId, SessionId, TenantId,
};
pub use media::{Media, StoredFile, extension, is_picture, media_type};
pub use message::{
    Attachment, Author, BlockBoundary, BlockSettings, Body, ChannelOptions, HEARTBEAT_SOURCE,
    Heartbeat, JobDestination, JobFiring, JobSignature, MainSessionPost, MessageOptions,
    ModelRoute, Peer, PeerKind, ReplyTo, RouteScope, SCHEDULE_SOURCE, Sender, SignedAuthor, Source,
    Target, Transcription, UNVERIFIED_PEER_PREFIX, VoiceReplies, is_scheduler_source,
};
pub use model_record::ModelRecord;
pub use money::{InvalidAmount, Money};
pub use name::{AgentName, account_name};
pub use newer::known_or_default;
pub use node::{
    MAX_NODE_COMMAND_BYTES, MAX_NODE_OUTPUT_BYTES, NodeCommand, NodeCommandState, NodeReply,
    NodeRequest, NodeRequestOutcome, SignedCommand,
};
pub use proposal::{ProposalKind, UnknownProposalKind};
pub use provider_failure::{MAX_PROVIDER_FAILURES, ProviderFailure};
pub use queue::{DropPolicy, QueueMode, QueueSettings};
pub use self_improve::SelfImproveSettings;
pub use session_key::{
    DmScope, GroupScope, InvalidSessionKey, MAIN_CONVERSATION, MAX_LINKED_PERSON_BYTES, NameSpace,
    SINGLE_REQUEST_PREFIX, SessionKey, SessionKind, has_platform_wide_ids, is_reserved_name,
    is_reserved_peer, is_self_improvement, linked_peer, linked_person,
};
pub use session_settings::SessionSettings;
pub use tenant_role::{InvalidTenantRole, TenantRole};
pub use tool_call::{ToolCall, Usage};
pub use tree_path::{InvalidPath, TreePath};
pub use wait::{APPROVAL_RESOLVED, MessageFilter, SessionState, Wait, wakes};
