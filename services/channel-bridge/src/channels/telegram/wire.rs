//! Objects of the Bot API, with the fields that the bridge reads. Other fields are ignored.

use serde::Deserialize;

#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct BotIdentity {
    pub id: i64,
    /// Name of the bot, without `@`.
    #[serde(default)]
    pub username: String,
}

/// Sent message, reduced to its id.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
pub struct MessageId {
    /// Id, unique within its chat.
    pub message_id: i64,
}

/// Update; at most one of its fields is set.
#[derive(Debug, Clone, Deserialize)]
pub struct Update {
    pub message: Option<Message>,
    pub edited_message: Option<Message>,
    pub callback_query: Option<CallbackQuery>,
    pub message_reaction: Option<Reaction>,
}

/// Change of a person's reactions to a message
/// (<https://core.telegram.org/bots/api#messagereactionupdated>).
#[derive(Debug, Clone, Deserialize)]
pub struct Reaction {
    pub chat: Chat,
    pub message_id: i64,
    pub date: i64,
    pub user: Option<User>,
    #[serde(default)]
    pub new_reaction: Vec<ReactionType>,
}

#[derive(Debug, Clone, Deserialize)]
pub struct ReactionType {
    /// Missing for a custom emoji.
    #[serde(default)]
    pub emoji: String,
}

/// Button press (<https://core.telegram.org/bots/api#callbackquery>).
#[derive(Debug, Clone, Deserialize)]
pub struct CallbackQuery {
    pub id: String,
    pub from: User,
    /// Message with the button; `None` if it is too old.
    pub message: Option<ButtonMessage>,
    pub data: Option<String>,
}

/// Message with a button, of which Telegram may know only these fields.
#[derive(Debug, Clone, Deserialize)]
pub struct ButtonMessage {
    pub message_id: i64,
    pub chat: Chat,
    pub message_thread_id: Option<i64>,
    #[serde(default)]
    pub is_topic_message: bool,
}

#[derive(Debug, Clone, Deserialize)]
pub struct Message {
    pub message_id: i64,
    pub date: i64,
    pub edit_date: Option<i64>,
    pub chat: Chat,
    pub from: Option<User>,
    /// Chat in whose name the message was written: a group's anonymous administrator, a channel.
    pub sender_chat: Option<Chat>,
    pub message_thread_id: Option<i64>,
    #[serde(default)]
    pub is_topic_message: bool,
    pub reply_to_message: Option<Box<RepliedMessage>>,
    pub quote: Option<Quote>,
    /// Set if the message was forwarded.
    pub forward_origin: Option<serde::de::IgnoredAny>,
    /// Set if the message replies to one of another chat.
    pub external_reply: Option<serde::de::IgnoredAny>,
    pub text: Option<String>,
    #[serde(default)]
    pub entities: Vec<Entity>,
    pub caption: Option<String>,
    #[serde(default)]
    pub caption_entities: Vec<Entity>,
    /// Same picture in several sizes, the largest last.
    #[serde(default)]
    pub photo: Vec<File>,
    pub document: Option<File>,
    pub voice: Option<File>,
    pub audio: Option<File>,
    pub video: Option<File>,
    pub video_note: Option<File>,
    pub animation: Option<File>,
    pub sticker: Option<File>,
    /// Further messages of the same album, which `albums` has put here.
    #[serde(default)]
    pub album: Vec<Message>,
}

/// Message that another one replies to.
#[derive(Debug, Clone, Deserialize)]
pub struct RepliedMessage {
    pub message_id: i64,
    pub from: Option<User>,
    pub text: Option<String>,
    pub caption: Option<String>,
    /// Set if the message opened a topic. Then it is not a reply: every message of the topic refers
    /// to it.
    pub forum_topic_created: Option<serde::de::IgnoredAny>,
}

/// Part of a message that is quoted by its reply.
#[derive(Debug, Clone, Deserialize)]
pub struct Quote {
    pub text: String,
}

#[derive(Debug, Clone, Deserialize)]
pub struct Chat {
    pub id: i64,
    #[serde(rename = "type")]
    pub kind: ChatKind,
    #[serde(default)]
    pub title: String,
    #[serde(default)]
    pub username: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ChatKind {
    Private,
    Group,
    Supergroup,
    Channel,
    #[serde(other)]
    Other,
}

#[derive(Debug, Clone, Deserialize)]
pub struct User {
    pub id: i64,
    #[serde(default)]
    pub is_bot: bool,
    #[serde(default)]
    pub first_name: String,
    #[serde(default)]
    pub last_name: String,
    #[serde(default)]
    pub username: String,
}

/// Range of a text with a meaning, in UTF-16 units.
#[derive(Debug, Clone, Deserialize)]
pub struct Entity {
    #[serde(rename = "type")]
    pub kind: String,
    pub offset: usize,
    pub length: usize,
    pub user: Option<User>,
}

#[derive(Debug, Clone, Deserialize)]
pub struct File {
    pub file_id: String,
    #[serde(default)]
    pub file_name: String,
    #[serde(default)]
    pub title: String,
    #[serde(default)]
    pub emoji: String,
}
