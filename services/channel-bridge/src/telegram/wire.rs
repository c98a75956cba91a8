//! The parts of the Bot API's objects that the bridge reads. Everything else in them is passed over.

use serde::Deserialize;

/// The bot itself.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Me {
    /// Its number.
    pub id: i64,
    /// Its name, without `@`.
    #[serde(default)]
    pub username: String,
}

/// What is read of a message that was sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
pub struct MessageId {
    /// Its number in its chat.
    pub message_id: i64,
}

/// Something that happened.
#[derive(Debug, Clone, Deserialize)]
pub struct Update {
    /// Somebody wrote.
    pub message: Option<Message>,
    /// Somebody changed what they wrote.
    pub edited_message: Option<Message>,
    /// Somebody pressed a button.
    pub callback_query: Option<CallbackQuery>,
}

/// A button that was pressed (<https://core.telegram.org/bots/api#callbackquery>).
#[derive(Debug, Clone, Deserialize)]
pub struct CallbackQuery {
    pub id: String,
    pub from: User,
    /// The message that the button is on; without it, an old one.
    pub message: Option<Pressed>,
    /// What the button says to the bot.
    pub data: Option<String>,
}

/// The message that a button is on, of which Telegram may not know more.
#[derive(Debug, Clone, Deserialize)]
pub struct Pressed {
    pub message_id: i64,
    pub chat: Chat,
    pub message_thread_id: Option<i64>,
    #[serde(default)]
    pub is_topic_message: bool,
}

/// A message.
#[derive(Debug, Clone, Deserialize)]
pub struct Message {
    pub message_id: i64,
    pub date: i64,
    pub edit_date: Option<i64>,
    pub chat: Chat,
    pub from: Option<User>,
    /// The chat in whose name it was written: a group's anonymous administrator, a channel.
    pub sender_chat: Option<Chat>,
    pub message_thread_id: Option<i64>,
    #[serde(default)]
    pub is_topic_message: bool,
    pub reply_to_message: Option<Box<Replied>>,
    pub quote: Option<Quote>,
    pub text: Option<String>,
    #[serde(default)]
    pub entities: Vec<Entity>,
    pub caption: Option<String>,
    #[serde(default)]
    pub caption_entities: Vec<Entity>,
    /// The same picture in several sizes, the largest last.
    #[serde(default)]
    pub photo: Vec<File>,
    pub document: Option<File>,
    pub voice: Option<File>,
    pub audio: Option<File>,
    pub video: Option<File>,
    pub video_note: Option<File>,
    pub animation: Option<File>,
    pub sticker: Option<File>,
}

/// The message that a message answers.
#[derive(Debug, Clone, Deserialize)]
pub struct Replied {
    pub message_id: i64,
    pub from: Option<User>,
    pub text: Option<String>,
    pub caption: Option<String>,
    /// Where it opened a topic it is no answer: every message of the topic names it.
    pub forum_topic_created: Option<serde::de::IgnoredAny>,
}

/// The part of a message that its answer is about.
#[derive(Debug, Clone, Deserialize)]
pub struct Quote {
    pub text: String,
}

/// Where messages are written.
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

/// What a chat is.
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

/// Somebody, or a bot.
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

/// A stretch of a text that means something, in UTF-16 units.
#[derive(Debug, Clone, Deserialize)]
pub struct Entity {
    #[serde(rename = "type")]
    pub kind: String,
    pub offset: usize,
    pub length: usize,
    pub user: Option<User>,
}

/// A file, by its handle.
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
