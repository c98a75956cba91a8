//! Classification of events: messages, edits, and presses of buttons.

use holdfast_directory::channel::DiscordSettings;
use holdfast_proto::gateway::v1::{AcceptRequest, MessageAttachment};
use serde::Deserialize;

use crate::{buttons, channel::Place, inbound::Verdict, media};

/// Prefix of an edited message's text.
const EDITED_PREFIX: &str = "[edited message] ";

/// Maximum length of the quoted text of a replied-to message, in characters.
const MAX_REPLIED_CHARS: usize = 500;

/// Types of messages that people write: a plain one, and a reply
/// (<https://discord.com/developers/docs/resources/message#message-object-message-types>).
const WRITTEN_TYPES: [u64; 2] = [0, 19];

/// Flag of a message that is one recording of its author
/// (<https://discord.com/developers/docs/resources/message#message-object-message-flags>).
const VOICE_FLAG: u64 = 1 << 13;

/// A message, with the fields that the bridge reads.
#[derive(Debug, Clone, Deserialize)]
pub(super) struct Message {
    id: String,
    pub(super) channel_id: String,
    pub(super) guild_id: Option<String>,
    #[serde(rename = "type", default)]
    kind: u64,
    #[serde(default)]
    flags: u64,
    author: Option<User>,
    #[serde(default)]
    content: String,
    timestamp: Option<jiff::Timestamp>,
    edited_timestamp: Option<jiff::Timestamp>,
    webhook_id: Option<String>,
    #[serde(default)]
    mentions: Vec<User>,
    #[serde(default)]
    attachments: Vec<Attachment>,
    referenced_message: Option<Box<ReferencedMessage>>,
    /// Content of a forwarded message.
    #[serde(default)]
    message_snapshots: Vec<Snapshot>,
}

#[derive(Debug, Clone, Deserialize)]
struct User {
    id: String,
    #[serde(default)]
    username: String,
    global_name: Option<String>,
    #[serde(default)]
    bot: bool,
}

#[derive(Debug, Clone, Deserialize)]
struct Attachment {
    url: String,
    #[serde(default)]
    filename: String,
    #[serde(default)]
    content_type: String,
}

#[derive(Debug, Clone, Deserialize)]
struct ReferencedMessage {
    id: String,
    author: Option<User>,
    #[serde(default)]
    content: String,
}

impl ReferencedMessage {
    fn is_by(&self, id: &str) -> bool {
        self.author.as_ref().is_some_and(|author| author.id == id)
    }
}

#[derive(Debug, Clone, Deserialize)]
struct Snapshot {
    message: SnapshotContent,
}

#[derive(Debug, Clone, Deserialize)]
struct SnapshotContent {
    #[serde(default)]
    content: String,
}

/// A press of a button
/// (<https://discord.com/developers/docs/interactions/receiving-and-responding>).
#[derive(Debug, Clone, Deserialize)]
pub(super) struct Interaction {
    pub(super) id: String,
    pub(super) token: String,
    pub(super) channel_id: Option<String>,
    pub(super) guild_id: Option<String>,
    member: Option<Member>,
    user: Option<User>,
    data: Option<ComponentData>,
}

#[derive(Debug, Clone, Deserialize)]
struct Member {
    user: User,
}

#[derive(Debug, Clone, Deserialize)]
struct ComponentData {
    #[serde(default)]
    custom_id: String,
}

/// Classifies a message. `parent` is the channel of the thread in which it stands.
pub(super) fn judge(
    message: Message,
    parent: Option<String>,
    settings: &DiscordSettings,
    me: &str,
) -> Verdict {
    let Some(author) = &message.author else { return Verdict::Ignore("author") };
    // Two bots would answer each other forever.
    if author.bot || author.id == me || message.webhook_id.is_some() {
        return Verdict::Ignore("author");
    }
    if !WRITTEN_TYPES.contains(&message.kind) {
        return Verdict::Ignore("kind");
    }
    let place = match place_of(&message.channel_id, message.guild_id.as_deref(), parent) {
        where_it_is if is_allowed(&where_it_is, author, settings) => where_it_is,
        where_it_is => return refused(where_it_is, author),
    };
    let forwarded: Vec<&str> =
        message.message_snapshots.iter().map(|shown| shown.message.content.as_str()).collect();
    let said = without_mention(&message.content, me);
    let text = [said].into_iter().chain(forwarded.iter().copied().filter(|text| !text.is_empty()));
    let text = text.collect::<Vec<_>>().join("\n");
    if text.trim().is_empty() && message.attachments.is_empty() {
        return Verdict::Ignore("content");
    }
    let replied = message.referenced_message.as_deref();
    let is_mentioned = message.mentions.iter().any(|user| user.id == me)
        || replied.is_some_and(|replied| replied.is_by(me));
    let quotes_others = replied.is_some_and(|replied| {
        !replied.content.is_empty() && !replied.is_by(me) && !replied.is_by(&author.id)
    });
    let is_group = place.is_group;
    let (moment, key, prefix) = match message.edited_timestamp {
        Some(edited) => {
            let moment = edited.as_second();
            (
                Some(edited),
                format!("edit:{}:{}:{moment}", message.channel_id, message.id),
                EDITED_PREFIX,
            )
        }
        None => (message.timestamp, format!("msg:{}:{}", message.channel_id, message.id), ""),
    };
    let peer_id = if is_group { place.chat.clone() } else { author.id.clone() };
    let is_voice = message.flags & VOICE_FLAG != 0;
    let files = message.attachments.iter().map(|file| MessageAttachment {
        kind: if is_voice { "voice" } else { media::kind_of(&file.content_type) }.to_owned(),
        reference: file.url.clone(),
        name: file.filename.clone(),
        media_type: file.content_type.clone(),
        ..MessageAttachment::default()
    });
    Verdict::Take(Box::new(AcceptRequest {
        idempotency_key: key,
        peer_kind: if is_group { "group" } else { "direct" }.to_owned(),
        peer_id,
        thread: place.thread.clone(),
        sender_id: author.id.clone(),
        sender_name: author.global_name.clone().unwrap_or_else(|| author.username.clone()),
        text: format!("{prefix}{text}"),
        platform_message_id: message.id.clone(),
        reply_to_message_id: replied.map(|replied| replied.id.clone()).unwrap_or_default(),
        reply_to_text: replied
            .map(|replied| replied.content.chars().take(MAX_REPLIED_CHARS).collect())
            .unwrap_or_default(),
        attachments: files.collect(),
        reply_chat: place.chat,
        reply_thread: place.thread,
        // In a group the reply quotes the message, so that its recipient is clear.
        reply_to: if is_group { message.id } else { String::new() },
        silent: is_group && settings.groups.mention_only && !is_mentioned,
        sender_listed: settings.allow.names(&author.id, &author.username),
        has_text_of_others: quotes_others || !forwarded.is_empty(),
        sent_at: moment.map(|at| prost_types::Timestamp { seconds: at.as_second(), nanos: 0 }),
        ..AcceptRequest::default()
    }))
}

/// Turns a press into the command that the person could have written.
pub(super) fn judge_press(
    press: &Interaction,
    parent: Option<String>,
    settings: &DiscordSettings,
) -> Verdict {
    let Some(user) = press.member.as_ref().map(|member| &member.user).or(press.user.as_ref())
    else {
        return Verdict::Ignore("author");
    };
    let custom_id = press.data.as_ref().map(|data| data.custom_id.as_str()).unwrap_or_default();
    let Some(text) = buttons::button_command(custom_id) else {
        return Verdict::Ignore("strange_button");
    };
    let Some(channel) = &press.channel_id else { return Verdict::Ignore("chat") };
    let place = place_of(channel, press.guild_id.as_deref(), parent);
    if user.bot || !is_allowed(&place, user, settings) {
        return refused(place, user);
    }
    Verdict::Take(Box::new(AcceptRequest {
        idempotency_key: format!("press:{}", press.id),
        peer_kind: if place.is_group { "group" } else { "direct" }.to_owned(),
        peer_id: if place.is_group { place.chat.clone() } else { user.id.clone() },
        thread: place.thread.clone(),
        sender_id: user.id.clone(),
        sender_name: user.username.clone(),
        text,
        reply_chat: place.chat,
        reply_thread: place.thread,
        ..AcceptRequest::default()
    }))
}

/// Where an event stands.
struct EventPlace {
    is_group: bool,
    guild: String,
    chat: String,
    thread: String,
}

fn place_of(channel: &str, guild: Option<&str>, parent: Option<String>) -> EventPlace {
    let (chat, thread) = match parent {
        Some(parent) => (parent, channel.to_owned()),
        None => (channel.to_owned(), String::new()),
    };
    EventPlace {
        is_group: guild.is_some(),
        guild: guild.unwrap_or_default().to_owned(),
        chat,
        thread,
    }
}

fn is_allowed(place: &EventPlace, author: &User, settings: &DiscordSettings) -> bool {
    if !place.is_group {
        return settings.allow.allows(&author.id, &author.username);
    }
    let groups = &settings.groups.allow;
    [&place.guild, &place.chat, &place.thread]
        .into_iter()
        .any(|id| !id.is_empty() && groups.allows(id, ""))
}

fn refused(place: EventPlace, author: &User) -> Verdict {
    if place.is_group {
        return Verdict::Ignore("not_allowed");
    }
    Verdict::Refuse { place: Place { chat: place.chat, thread: None }, sender: author.id.clone() }
}

/// Removes the mention with which a message begins.
fn without_mention<'a>(text: &'a str, me: &str) -> &'a str {
    let mentions = [format!("<@{me}>"), format!("<@!{me}>")];
    let rest = mentions.iter().find_map(|mention| text.trim_start().strip_prefix(mention.as_str()));
    rest.map_or(text, str::trim_start)
}

#[cfg(test)]
mod tests {
    use holdfast_testkit::inputs::mutated_json;
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;

    const MESSAGES: [&str; 1] = [r#"{"id":"11","channel_id":"70","guild_id":"500","type":19,
        "content":"<@42> hi","author":{"id":"7","username":"anna"},"mentions":[{"id":"42"}],
        "timestamp":"2026-01-02T03:04:05Z","attachments":[{"url":"https://x/y","filename":"a"}],
        "referenced_message":{"id":"10","author":{"id":"8"},"content":"before"},
        "message_snapshots":[{"message":{"content":"told"}}]}"#];

    fn settings() -> DiscordSettings {
        serde_json::from_value(json!({"allow": ["7|anna"], "groups": {"allow": ["500"]}})).unwrap()
    }

    fn message(more: Value) -> Value {
        let mut message = json!({
            "id": "11", "channel_id": "70", "type": 0, "content": "hi",
            "author": {"id": "7", "username": "anna", "global_name": "Anna"},
            "timestamp": "2026-01-02T03:04:05.000000+00:00", "edited_timestamp": null,
            "mentions": [], "attachments": [],
        });
        message.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        message
    }

    fn verdict(more: Value, parent: Option<&str>) -> Verdict {
        let message = serde_json::from_value(message(more)).unwrap();
        judge(message, parent.map(str::to_owned), &settings(), "42")
    }

    fn taken(more: Value, parent: Option<&str>) -> AcceptRequest {
        match verdict(more, parent) {
            Verdict::Take(request) => *request,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_direct_message_belongs_to_its_author() {
        let request = taken(json!({}), None);

        assert_eq!((request.peer_kind.as_str(), request.peer_id.as_str()), ("direct", "7"));
        assert_eq!((request.reply_chat.as_str(), request.reply_to.as_str()), ("70", ""));
        assert_eq!(request.idempotency_key, "msg:70:11");
        assert!(request.sender_listed && !request.silent);
    }

    #[test]
    fn a_voice_message_is_its_author_s_own_recording() {
        let kind = |flags: u64| {
            let files = json!([{"url": "https://x/y", "filename": "voice-message.ogg",
                "content_type": "audio/ogg"}]);
            let request = taken(json!({"flags": flags, "attachments": files}), None);
            request.attachments[0].kind.clone()
        };

        assert_eq!((kind(1 << 13).as_str(), kind(0).as_str()), ("voice", "audio"));
    }

    #[test]
    fn a_thread_belongs_to_its_channel() {
        let in_thread = json!({"guild_id": "500", "channel_id": "9", "mentions": [{"id": "42"}],
            "content": "<@42> help"});

        let request = taken(in_thread, Some("70"));

        assert_eq!((request.peer_id.as_str(), request.thread.as_str()), ("70", "9"));
        assert_eq!((request.reply_chat.as_str(), request.reply_thread.as_str()), ("70", "9"));
        assert_eq!((request.text.as_str(), request.silent), ("help", false));
        assert!(taken(json!({"guild_id": "500"}), None).silent);
        assert_eq!(verdict(json!({"guild_id": "501"}), None), Verdict::Ignore("not_allowed"));
    }

    #[test]
    fn a_reply_to_the_bot_is_for_it_and_text_of_others_is_marked() {
        let reply = |author: &str| {
            json!({"guild_id": "500", "type": 19, "referenced_message":
                {"id": "10", "author": {"id": author}, "content": "before"}})
        };

        let to_bot = taken(reply("42"), None);
        assert!(!to_bot.silent && !to_bot.has_text_of_others);
        let to_other = taken(reply("8"), None);
        assert!(to_other.silent && to_other.has_text_of_others);
        assert_eq!(to_other.reply_to_text, "before");
        let forwarded = taken(
            json!({"message_snapshots": [{"message": {"content": "told"}}], "content": ""}),
            None,
        );
        assert!(forwarded.has_text_of_others && forwarded.text.contains("told"));
    }

    #[test]
    fn bots_strangers_and_service_messages_reach_nobody() {
        for (more, why) in [
            (json!({"author": {"id": "8", "bot": true}}), "author"),
            (json!({"author": {"id": "42"}}), "author"),
            (json!({"webhook_id": "1"}), "author"),
            (json!({"type": 7}), "kind"),
            (json!({"content": " "}), "content"),
        ] {
            assert_eq!(verdict(more.clone(), None), Verdict::Ignore(why), "{more}");
        }
        let stranger = verdict(json!({"author": {"id": "8", "username": "eve"}}), None);
        assert!(matches!(stranger, Verdict::Refuse { sender, .. } if sender == "8"));
    }

    #[test]
    fn an_edit_is_another_message() {
        let edited = taken(json!({"edited_timestamp": "2026-01-02T03:05:00Z"}), None);

        assert_eq!(edited.text, "[edited message] hi");
        assert!(edited.idempotency_key.starts_with("edit:70:11:"));
    }

    proptest! {
        #[test]
        fn no_message_makes_it_fail(text in mutated_json(&MESSAGES)) {
            if let Ok(message) = serde_json::from_str(&text) {
                let _ = judge(message, None, &settings(), "42");
            }
        }
    }
}
