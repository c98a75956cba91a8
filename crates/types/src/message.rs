//! What people and programs say to an agent, and where its answer goes.

use serde::{Deserialize, Serialize};

use crate::{AccountId, Fired, Heartbeat, ModelRoute, StoredFile};

/// Where a message came in: half of what makes it the same message when sent again.
///
/// An idempotency key is unique within one source of one tenant.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Source {
    /// An account on a channel.
    Channel(AccountId),
    /// An API key.
    Key(crate::KeyId),
    /// The mesh itself: `cron`, `subagent`, `system` ….
    Internal(String),
}

impl Source {
    /// The text the database stores.
    #[must_use]
    pub fn as_text(&self) -> String {
        match self {
            Self::Channel(account) => account.to_string(),
            Self::Key(key) => key.to_string(),
            Self::Internal(kind) => kind.clone(),
        }
    }
}

/// What kind of counterpart a conversation on a channel is held with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PeerKind {
    /// One person.
    Direct,
    /// A group of people.
    Group,
    /// A broadcast channel or a room.
    Channel,
}

impl PeerKind {
    /// The word that keys and bindings use.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Direct => "direct",
            Self::Group => "group",
            Self::Channel => "channel",
        }
    }
}

/// The counterpart of a conversation: whose direct messages, which group.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Peer {
    /// What it is.
    pub kind: PeerKind,
    /// Its id on the platform, in the platform's own case.
    pub id: String,
}

/// Who wrote a message.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sender {
    /// Their id on the platform.
    pub id: String,
    /// Their name, for the model to read; untrusted.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub name: String,
}

/// Who is behind a message, as the door that let it in knows them.
///
/// Never what somebody says of themselves: the door has verified it (a platform's sender, an API
/// key).
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Author {
    /// Their id, with the door's word before it: `telegram:12345`, `api:key_…`.
    pub id: String,
    /// What the door vouches for: `owner` and `admin` for a key that may change everything,
    /// `member` for a key and for whom an account's allow-list names.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub roles: Vec<String>,
}

/// A file that came with a message, by reference.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attachment {
    /// What it is, as the platform says: `photo`, `document`, `voice` ….
    pub kind: String,
    /// The platform's handle for it.
    pub reference: String,
    /// Its name, where it has one.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// The file itself, where it was taken in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file: Option<StoredFile>,
}

/// The message that a message answers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReplyTo {
    /// Its id on the platform.
    pub message_id: String,
    /// What it said, shortened; untrusted.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub text: String,
}

/// What was said, as it is stored in the inbox and in the journal.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Body {
    /// The text.
    pub text: String,
    /// Who wrote it, where the source has more than one voice.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sender: Option<Sender>,
    /// Its id on the platform.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message_id: Option<String>,
    /// What it answers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reply_to: Option<ReplyTo>,
    /// Files that came with it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub attachments: Vec<Attachment>,
    /// The role, where it is not the user's own word: `system` or `assistant` in a seeded history.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub role: Option<String>,
    /// The message is part of the record and asks for no answer (a group message that does not
    /// mention the agent).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub silent: bool,
    /// The tools that a turn with this message may use, where a rule of its tenant says so; an
    /// empty list allows none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tools: Option<Vec<String>>,
    /// That a model says which agent answers, where a binding or a rule of its tenant says so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub route: Option<Box<ModelRoute>>,
    /// An event of the mesh (an approval, a timer) and not a person's message.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub event: Option<String>,
    /// Who is behind it, where a door let it in; absent for what the mesh says itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub author: Option<Author>,
    /// The firing of a job that it is, if it is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fired: Option<Box<Fired>>,
    /// That a heartbeat asks it, and what becomes of the answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub heartbeat: Option<Box<Heartbeat>>,
}

impl Body {
    /// A body of text and nothing else.
    #[must_use]
    pub fn text(text: impl Into<String>) -> Self {
        Self { text: text.into(), ..Self::default() }
    }
}

/// Where an answer goes on a channel.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Target {
    /// The kind of channel: `telegram`, `webhook`.
    pub channel: String,
    /// The account that sends.
    pub account: AccountId,
    /// The conversation on the platform.
    pub chat: String,
    /// The topic or thread in it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub thread: Option<String>,
    /// The message that is answered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reply_to: Option<String>,
}
