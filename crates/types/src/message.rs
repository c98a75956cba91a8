//! Messages to an agent, and targets for its answers.

mod heartbeat;
mod job_firing;
mod options;
mod route;
mod transcription;

use serde::{Deserialize, Serialize};

pub use heartbeat::Heartbeat;
pub use job_firing::{
    HEARTBEAT_SOURCE, JobDestination, JobFiring, JobSignature, MainSessionPost, SCHEDULE_SOURCE,
    SignedAuthor, is_scheduler_source,
};
pub use options::{BlockBoundary, BlockSettings, ChannelOptions, MessageOptions, VoiceReplies};
pub use route::{ModelRoute, RouteScope};
pub use transcription::Transcription;

use crate::{AccountId, AnswerOptions, ClientResult, StoredFile, ToolCall};

/// Origin of a message.
///
/// An idempotency key is unique within one source of one tenant.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Source {
    Channel(AccountId),
    Key(crate::KeyId),
    /// The mesh itself: `cron`, `subagent`, `system` ….
    Internal(String),
}

impl Source {
    /// Text that the database stores.
    #[must_use]
    pub fn as_text(&self) -> String {
        match self {
            Self::Channel(account) => account.to_string(),
            Self::Key(key) => key.to_string(),
            Self::Internal(kind) => kind.clone(),
        }
    }
}

/// Kind of counterpart in a conversation on a channel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PeerKind {
    Direct,
    Group,
    /// A broadcast channel or a room.
    Channel,
}

impl PeerKind {
    /// Word in session keys and bindings.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Direct => "direct",
            Self::Group => "group",
            Self::Channel => "channel",
        }
    }
}

/// Counterpart of a conversation on a channel.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Peer {
    pub kind: PeerKind,
    /// Id on the platform, in the platform's own case.
    pub id: String,
}

/// Platform's sender of a message.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sender {
    pub id: String,
    /// Display name, for the model to read; untrusted.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub name: String,
}

/// Verified author of a message.
///
/// Set by the edge that accepted the message from verified credentials (a platform's sender id, an
/// API key), never from the message's own text.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Author {
    /// Id with a prefix of the edge: `telegram:12345`, `api:key_…`.
    pub id: String,
    /// Roles that the edge has verified: `owner` and `admin` for a key that may change everything,
    /// `member` for other keys and for people on an account's allow-list.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub roles: Vec<String>,
}

/// End of the prefix of authors who may not be who their ids say: `email-unverified:a@example.com`.
/// No channel has such a name.
const UNVERIFIED_SUFFIX: &str = "-unverified";

/// Prefix of senders and peers who may not be who their ids say, so that they share no conversation,
/// binding or link with the people whom the ids name.
pub const UNVERIFIED_PEER_PREFIX: &str = "unverified:";

impl Author {
    /// Author whom the channel has not verified: without roles, and known to no list.
    #[must_use]
    pub fn unverified(channel: &str, id: &str) -> Self {
        Self { id: format!("{channel}{UNVERIFIED_SUFFIX}:{id}"), roles: Vec::new() }
    }

    /// Stands for several authors at once, with the roles that all of them have. No list can name it,
    /// as no channel has such a name.
    #[must_use]
    pub fn several(roles: Vec<String>) -> Self {
        Self { id: format!("several{UNVERIFIED_SUFFIX}:people"), roles }
    }

    /// Whether the edge has verified who the author is.
    #[must_use]
    pub fn is_verified(&self) -> bool {
        self.id.split_once(':').is_none_or(|(edge, _)| !edge.ends_with(UNVERIFIED_SUFFIX))
    }
}

/// Reference to a file that came with a message.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attachment {
    /// The platform's kind: `photo`, `document`, `voice` ….
    pub kind: String,
    /// The platform's handle of the file.
    pub reference: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// The stored file; `None` if it was not downloaded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file: Option<StoredFile>,
    /// Text of a recording, if the attachment is one and was transcribed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub transcription: Option<Box<Transcription>>,
}

/// The message that a message replies to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReplyTo {
    pub message_id: String,
    /// Text, shortened; untrusted.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub text: String,
}

/// Message as it is stored in the inbox and in the journal.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Body {
    pub text: String,
    /// Sender, where several people write in one conversation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sender: Option<Sender>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message_id: Option<String>,
    /// Time when the message was sent, as the platform says, in seconds since 1970; untrusted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sent_at: Option<i64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reply_to: Option<Box<ReplyTo>>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub attachments: Vec<Attachment>,
    /// Role in a seeded history: `system`, `assistant` or `tool`; `None` is the user.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub role: Option<String>,
    /// The message is recorded but needs no answer (a group message that does not mention the
    /// agent).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub silent: bool,
    /// Allow-list of tools for turns with this message, set by a rule of the tenant; an empty list
    /// allows none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tools: Option<Vec<String>>,
    /// Set if a binding or a rule lets a model choose the agent that answers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub route: Option<Box<ModelRoute>>,
    /// How the message is queued and answered, where its channel's settings say so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub options: Option<Box<MessageOptions>>,
    /// Name of an event of the mesh (an approval, a timer); `None` is a person's message.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub event: Option<String>,
    /// `None` for messages of the mesh itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub author: Option<Author>,
    /// Set if the message is a job's firing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fired: Option<Box<JobFiring>>,
    /// Proof of the author, if a job's firing is the message; the journal does not keep it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job_signature: Option<Box<JobSignature>>,
    /// Set if the message is a heartbeat.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub heartbeat: Option<Box<Heartbeat>>,
    /// The text may repeat text from outside: a subagent wrote it, a guest, or a conversation that
    /// has read text from outside.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub outside: bool,
    /// What the client asks of the model for this message.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answer_options: Option<Box<AnswerOptions>>,
    /// What an API repeats when the answer is read again; only that API reads it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub response_fields: Option<Box<serde_json::Value>>,
    /// Calls of the client's tools, in a seeded message of the assistant.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub calls: Vec<ToolCall>,
    /// Results of the client's tools, for the calls right before the message.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub results: Vec<ClientResult>,
}

impl Body {
    /// Returns a body with only a text.
    #[must_use]
    pub fn text(text: impl Into<String>) -> Self {
        Self { text: text.into(), ..Self::default() }
    }

    /// Whether the message has text from outside, a file or picture that anyone may have made, or a
    /// result of a client's tool. A voice message is its sender's own.
    #[must_use]
    pub fn is_outside_text(&self) -> bool {
        self.outside
            || !self.results.is_empty()
            || self.attachments.iter().any(|attachment| attachment.kind != "voice")
    }
}

/// Destination of an answer on a channel.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Target {
    /// Kind of channel: `telegram`, `webhook`.
    pub channel: String,
    pub account: AccountId,
    pub chat: String,
    /// Topic or thread within the chat.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub thread: Option<String>,
    /// Id of the message that is answered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reply_to: Option<String>,
}
