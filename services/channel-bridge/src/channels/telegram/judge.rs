//! Classification of an update: a message to accept, one to refuse, or nothing to do.
//!
//! Pure: the result depends on the update, the account's settings and the bot's identity. An edit
//! becomes a message of its own that says so, since the agent may have read the original already.

use holdfast_proto::gateway::v1::{AcceptRequest, MessageAttachment};

use super::wire::{
    BotIdentity, CallbackQuery, Chat, ChatKind, Entity, File, Message, Reaction, RepliedMessage,
    Update,
};
use crate::{buttons, channel::Place, inbound::Verdict};
use holdfast_directory::channel::TelegramSettings;

/// Prefix of an edited message's text.
const EDITED_PREFIX: &str = "[edited message] ";

/// Maximum length of the quoted text of a replied-to message, in characters.
const MAX_REPLIED_CHARS: usize = 500;

#[must_use]
pub fn judge(update: Update, settings: &TelegramSettings, me: &BotIdentity) -> Verdict {
    if let Some(press) = update.callback_query {
        return judge_button(press, settings);
    }
    if let Some(reaction) = update.message_reaction {
        return judge_reaction(reaction, settings);
    }
    let (message, is_edit) = match (update.message, update.edited_message) {
        (Some(message), _) => (message, false),
        (None, Some(message)) => (message, true),
        (None, None) => return Verdict::Ignore("kind"),
    };
    let Some(author) = Author::of(&message) else { return Verdict::Ignore("author") };
    let is_group = match message.chat.kind {
        ChatKind::Private => false,
        ChatKind::Group | ChatKind::Supergroup => true,
        ChatKind::Channel | ChatKind::Other => return Verdict::Ignore("chat"),
    };
    let is_allowed = if is_group {
        settings.groups.allow.allows(&message.chat.id.to_string(), &message.chat.username)
    } else {
        settings.allow.allows(&author.id, &author.username)
    };
    if !is_allowed && is_group {
        return Verdict::Ignore("not_allowed");
    }
    if !is_allowed {
        return refuse(message.chat.id, author.id);
    }
    let attachments: Vec<MessageAttachment> =
        [&message].into_iter().chain(&message.album).flat_map(attachments).collect();
    let text = text_of(&message);
    if text.trim().is_empty() && attachments.is_empty() {
        // Service messages: a user joined, a message was pinned, a poll was made.
        return Verdict::Ignore("content");
    }
    let silent = is_group && settings.groups.mention_only && !is_mentioned(&message, me);
    let is_listed = settings.allow.names(&author.id, &author.username);
    Verdict::Take(Box::new(accept_request(
        &message,
        author,
        attachments,
        MessageTraits {
            is_group,
            is_edit,
            silent,
            is_listed,
            has_text_of_others: has_text_of_others(&message, me),
        },
    )))
}

/// Turns a button press into the command that the user could have written. Only commands of ours
/// are on buttons, and a press grants no more rights than writing.
fn judge_button(press: CallbackQuery, settings: &TelegramSettings) -> Verdict {
    let CallbackQuery { id, from, message, data } = press;
    let Some(message) = message else { return Verdict::Ignore("old_button") };
    let Some(text) = data.as_deref().and_then(buttons::button_command) else {
        return Verdict::Ignore("strange_button");
    };
    let is_group = match message.chat.kind {
        ChatKind::Private => false,
        ChatKind::Group | ChatKind::Supergroup => true,
        ChatKind::Channel | ChatKind::Other => return Verdict::Ignore("chat"),
    };
    let chat = message.chat.id;
    let sender = from.id.to_string();
    let is_allowed = match is_group {
        true => settings.groups.allow.allows(&chat.to_string(), &message.chat.username),
        false => settings.allow.allows(&sender, &from.username),
    };
    match (is_allowed && !from.is_bot, is_group) {
        (true, _) => {}
        (false, true) => return Verdict::Ignore("not_allowed"),
        (false, false) => return refuse(chat, sender),
    }
    let thread = message.message_thread_id.filter(|_| message.is_topic_message);
    let thread = thread.map(|thread| thread.to_string()).unwrap_or_default();
    Verdict::Take(Box::new(AcceptRequest {
        idempotency_key: format!("press:{id}"),
        peer_kind: if is_group { "group" } else { "direct" }.to_owned(),
        peer_id: chat.to_string(),
        thread: thread.clone(),
        sender_id: sender,
        sender_name: format!("{} {}", from.first_name, from.last_name).trim().to_owned(),
        text,
        reply_chat: chat.to_string(),
        reply_thread: thread,
        reply_to: if is_group { message.message_id.to_string() } else { String::new() },
        ..AcceptRequest::default()
    }))
}

/// Direct chats have no threads.
fn refuse(chat: i64, sender: String) -> Verdict {
    Verdict::Refuse { place: Place { chat: chat.to_string(), thread: None }, sender }
}

/// Turns a reaction into a message that is kept without an answer.
fn judge_reaction(reaction: Reaction, settings: &TelegramSettings) -> Verdict {
    let Reaction { chat, message_id, date, user, new_reaction } = reaction;
    let Some(user) = user.filter(|user| !user.is_bot) else { return Verdict::Ignore("author") };
    let (chat_id, sender) = (chat.id.to_string(), user.id.to_string());
    let is_group = match chat.kind {
        ChatKind::Private => false,
        ChatKind::Group | ChatKind::Supergroup => true,
        ChatKind::Channel | ChatKind::Other => return Verdict::Ignore("chat"),
    };
    let is_allowed = match is_group {
        true => settings.groups.allow.allows(&chat_id, &chat.username),
        false => settings.allow.allows(&sender, &user.username),
    };
    if !is_allowed {
        return Verdict::Ignore("not_allowed");
    }
    let emoji: String = new_reaction.iter().map(|kind| kind.emoji.as_str()).collect();
    let text = match (new_reaction.is_empty(), emoji.as_str()) {
        (true, _) => "[removed the reaction]".to_owned(),
        (false, "") => "[reacted]".to_owned(),
        (false, emoji) => format!("[reacted with {emoji}]"),
    };
    Verdict::Take(Box::new(AcceptRequest {
        idempotency_key: format!("reaction:{chat_id}:{message_id}:{sender}:{date}:{emoji}"),
        peer_kind: if is_group { "group" } else { "direct" }.to_owned(),
        peer_id: chat_id.clone(),
        sender_id: sender,
        sender_name: format!("{} {}", user.first_name, user.last_name).trim().to_owned(),
        text,
        reply_to_message_id: message_id.to_string(),
        reply_chat: chat_id,
        silent: true,
        sent_at: Some(prost_types::Timestamp { seconds: date, nanos: 0 }),
        ..AcceptRequest::default()
    }))
}

/// Returns the text of a message: of an album, the first caption.
fn text_of(message: &Message) -> &str {
    let texts = [message].into_iter().chain(&message.album);
    let mut texts =
        texts.filter_map(|message| message.text.as_deref().or(message.caption.as_deref()));
    texts.next().unwrap_or_default()
}

/// Telegram sends `/start` when somebody opens the bot: the answer is the list of commands.
fn started(text: &str) -> &str {
    let command = text.split([' ', '@']).next().unwrap_or_default();
    if command == "/start" { "/help" } else { text }
}

#[derive(Clone, Copy)]
struct MessageTraits {
    is_group: bool,
    is_edit: bool,
    silent: bool,
    is_listed: bool,
    has_text_of_others: bool,
}

fn accept_request(
    message: &Message,
    author: Author,
    attachments: Vec<MessageAttachment>,
    kind: MessageTraits,
) -> AcceptRequest {
    let (chat, id) = (message.chat.id, message.message_id);
    let text = started(text_of(message));
    let moment = message.edit_date.unwrap_or(message.date);
    let replied = message.reply_to_message.as_deref().filter(|replied| is_reply(replied));
    let replied_text = message.quote.as_ref().map(|quote| quote.text.as_str()).or_else(|| {
        replied.and_then(|replied| replied.text.as_deref().or(replied.caption.as_deref()))
    });
    let thread = message.message_thread_id.filter(|_| message.is_topic_message);
    let thread = thread.map(|thread| thread.to_string()).unwrap_or_default();
    AcceptRequest {
        idempotency_key: if kind.is_edit {
            format!("edit:{chat}:{id}:{moment}")
        } else {
            // An album that comes again with more files is another message.
            match message.album.len() {
                0 => format!("update:{chat}:{id}"),
                more => format!("update:{chat}:{id}:{}", more + 1),
            }
        },
        peer_kind: if kind.is_group { "group" } else { "direct" }.to_owned(),
        peer_id: chat.to_string(),
        thread: thread.clone(),
        sender_id: author.id,
        sender_name: author.name,
        text: format!("{}{text}", if kind.is_edit { EDITED_PREFIX } else { "" }),
        platform_message_id: id.to_string(),
        reply_to_message_id: replied
            .map(|replied| replied.message_id.to_string())
            .unwrap_or_default(),
        reply_to_text: replied_text
            .map(|text| text.chars().take(MAX_REPLIED_CHARS).collect())
            .unwrap_or_default(),
        attachments,
        reply_chat: chat.to_string(),
        reply_thread: thread,
        // In a group the reply quotes the message, so that its recipient is clear.
        reply_to: if kind.is_group { id.to_string() } else { String::new() },
        silent: kind.silent,
        sender_listed: kind.is_listed,
        has_text_of_others: kind.has_text_of_others,
        sent_at: Some(prost_types::Timestamp { seconds: moment, nanos: 0 }),
        ..AcceptRequest::default()
    }
}

struct Author {
    id: String,
    name: String,
    username: String,
}

impl Author {
    /// Returns `None` for messages by bots, since two bots would answer each other forever, and for
    /// messages without an author.
    fn of(message: &Message) -> Option<Self> {
        if let Some(Chat { id, title, username, .. }) = &message.sender_chat {
            return Some(Self {
                id: id.to_string(),
                name: title.clone(),
                username: username.clone(),
            });
        }
        let from = message.from.as_ref().filter(|from| !from.is_bot)?;
        let name = format!("{} {}", from.first_name, from.last_name).trim().to_owned();
        Some(Self { id: from.id.to_string(), name, username: from.username.clone() })
    }
}

/// Whether somebody other than the sender and the bot wrote the message, or the text that it quotes.
fn has_text_of_others(message: &Message, me: &BotIdentity) -> bool {
    let is_own = |id: i64| id == me.id || message.from.as_ref().is_some_and(|from| from.id == id);
    let replied = message.reply_to_message.as_deref().filter(|replied| is_reply(replied));
    let quotes_others = replied.is_some_and(|replied| {
        let has_text = replied.text.is_some() || replied.caption.is_some();
        has_text && !replied.from.as_ref().is_some_and(|from| is_own(from.id))
    });
    message.forward_origin.is_some() || message.external_reply.is_some() || quotes_others
}

fn is_reply(replied: &RepliedMessage) -> bool {
    replied.forum_topic_created.is_none()
}

fn is_mentioned(message: &Message, me: &BotIdentity) -> bool {
    let replied = message.reply_to_message.as_deref().filter(|replied| is_reply(replied));
    if replied.and_then(|replied| replied.from.as_ref()).is_some_and(|from| from.id == me.id) {
        return true;
    }
    let text = message.text.as_deref().unwrap_or_default();
    let caption = message.caption.as_deref().unwrap_or_default();
    let named = |text: &str, entity: &Entity| match entity.kind.as_str() {
        "mention" => is_name(slice(text, entity).strip_prefix('@'), me),
        "bot_command" => is_name(slice(text, entity).split_once('@').map(|(_, name)| name), me),
        "text_mention" => entity.user.as_ref().is_some_and(|user| user.id == me.id),
        _ => false,
    };
    message.entities.iter().any(|entity| named(text, entity))
        || message.caption_entities.iter().any(|entity| named(caption, entity))
}

fn is_name(name: Option<&str>, me: &BotIdentity) -> bool {
    name.is_some_and(|name| !me.username.is_empty() && name.eq_ignore_ascii_case(&me.username))
}

/// Returns an entity's text; empty if it is out of range or splits a character.
fn slice(text: &str, entity: &Entity) -> String {
    let units: Vec<u16> = text.encode_utf16().skip(entity.offset).take(entity.length).collect();
    String::from_utf16(&units).unwrap_or_default()
}

fn attachments(message: &Message) -> Vec<MessageAttachment> {
    // An animation comes as a document too, for clients that do not know animations.
    let document = message.document.as_ref().filter(|_| message.animation.is_none());
    let files = [
        ("photo", message.photo.last()),
        ("document", document),
        ("voice", message.voice.as_ref()),
        ("audio", message.audio.as_ref()),
        ("video", message.video.as_ref()),
        ("video_note", message.video_note.as_ref()),
        ("animation", message.animation.as_ref()),
        ("sticker", message.sticker.as_ref()),
    ];
    let given = files.into_iter().filter_map(|(kind, file)| Some((kind, file?)));
    let attachment = |(kind, file): (&str, &File)| MessageAttachment {
        kind: kind.to_owned(),
        reference: file.file_id.clone(),
        name: [&file.file_name, &file.title, &file.emoji]
            .into_iter()
            .find(|name| !name.is_empty())
            .cloned()
            .unwrap_or_default(),
        ..MessageAttachment::default()
    };
    given.map(attachment).collect()
}

#[cfg(test)]
mod tests {
    use holdfast_testkit::inputs::mutated_json;
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;

    fn me() -> BotIdentity {
        BotIdentity { id: 42, username: "holdfast_bot".into() }
    }

    fn settings(settings: Value) -> TelegramSettings {
        serde_json::from_value(settings).unwrap()
    }

    fn open() -> TelegramSettings {
        settings(json!({"allow": ["7|anna"], "groups": {"allow": [-5]}}))
    }

    fn verdict(update: Value) -> Verdict {
        judge(serde_json::from_value(update).unwrap(), &open(), &me())
    }

    fn taken(update: Value) -> AcceptRequest {
        match verdict(update) {
            Verdict::Take(request) => *request,
            other => panic!("{other:?}"),
        }
    }

    fn private(more: Value) -> Value {
        let message = json!({
            "message_id": 3, "date": 1000, "chat": {"id": 7, "type": "private"},
            "from": {"id": 7, "is_bot": false, "first_name": "Anna", "last_name": "B", "username": "anna"},
        });
        json!({"update_id": 1, "message": merged(message, more)})
    }

    fn group(more: Value) -> Value {
        let message = json!({
            "message_id": 4, "date": 1000, "chat": {"id": -5, "type": "supergroup", "title": "G"},
            "from": {"id": 8, "is_bot": false, "first_name": "Bob"},
        });
        json!({"update_id": 2, "message": merged(message, more)})
    }

    fn merged(mut message: Value, more: Value) -> Value {
        message.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        message
    }

    #[test]
    fn an_album_is_one_message_with_its_caption_and_all_files() {
        let request = taken(private(json!({
            "photo": [{"file_id": "a"}],
            "album": [{
                "message_id": 4, "date": 1000, "chat": {"id": 7, "type": "private"},
                "photo": [{"file_id": "b"}], "caption": "look",
            }],
        })));

        let files: Vec<_> =
            request.attachments.iter().map(|file| file.reference.as_str()).collect();
        assert_eq!(files, ["a", "b"]);
        assert_eq!(
            (request.text.as_str(), request.idempotency_key.as_str()),
            ("look", "update:7:3:2")
        );
    }

    #[test]
    fn a_reaction_is_kept_without_an_answer_and_start_lists_the_commands() {
        let reaction = |user: i64, new: Value| {
            json!({"update_id": 5, "message_reaction": {"chat": {"id": user, "type": "private"},
                "message_id": 3, "date": 9, "user": {"id": user, "first_name": "Anna"},
                "old_reaction": [], "new_reaction": new}})
        };

        let thumb = taken(reaction(7, json!([{"type": "emoji", "emoji": "👍"}])));
        assert!(thumb.silent);
        assert_eq!(
            (thumb.text.as_str(), thumb.reply_to_message_id.as_str()),
            ("[reacted with 👍]", "3")
        );
        assert_eq!(taken(reaction(7, json!([]))).text, "[removed the reaction]");
        assert_eq!(verdict(reaction(9, json!([]))), Verdict::Ignore("not_allowed"));
        for (text, taken_as) in
            [("/start", "/help"), ("/start abc", "/help"), ("/starts", "/starts")]
        {
            assert_eq!(taken(private(json!({"text": text}))).text, taken_as);
        }
    }

    #[test]
    fn a_private_message_is_taken() {
        let request = taken(private(json!({"text": "hi"})));

        assert_eq!(
            request,
            AcceptRequest {
                idempotency_key: "update:7:3".into(),
                peer_kind: "direct".into(),
                peer_id: "7".into(),
                sender_id: "7".into(),
                sender_name: "Anna B".into(),
                text: "hi".into(),
                platform_message_id: "3".into(),
                reply_chat: "7".into(),
                sender_listed: true,
                sent_at: Some(prost_types::Timestamp { seconds: 1000, nanos: 0 }),
                ..AcceptRequest::default()
            }
        );
    }

    #[test]
    fn an_edit_is_a_message_of_its_own_that_says_so() {
        let mut update = private(json!({"text": "ho", "edit_date": 2000}));
        update["edited_message"] = update["message"].take();

        let request = taken(update);

        assert_eq!(request.idempotency_key, "edit:7:3:2000");
        assert_eq!(request.text, "[edited message] ho");
    }

    #[test]
    fn a_stranger_is_refused_in_private_and_ignored_in_groups() {
        let stranger = private(json!({"text": "hi", "from": {"id": 9, "first_name": "M"}}));
        let elsewhere =
            group(json!({"text": "@holdfast_bot", "chat": {"id": -6, "type": "group"}}));

        assert_eq!(verdict(stranger), refuse(7, "9".into()));
        assert_eq!(verdict(elsewhere), Verdict::Ignore("not_allowed"));
    }

    #[test]
    fn in_a_group_only_what_mentions_the_bot_asks_for_an_answer() {
        let mention =
            |text: &str, entities: Value| group(json!({"text": text, "entities": entities}));
        let entity = |kind: &str, offset: u32, length: u32| json!([{"type": kind, "offset": offset, "length": length}]);
        let cases = [
            (group(json!({"text": "hello all"})), true),
            (group(json!({"text": "@holdfast_bot in code"})), true),
            (mention("👋 @Holdfast_Bot hi", entity("mention", 3, 13)), false),
            (mention("@holdfast_bots hi", entity("mention", 0, 14)), true),
            (mention("/new@holdfast_bot", entity("bot_command", 0, 17)), false),
            (mention("/new", entity("bot_command", 0, 4)), true),
            (mention("/new@other_bot", entity("bot_command", 0, 14)), true),
            (mention("x", entity("mention", 90, 13)), true),
            (
                mention(
                    "he",
                    json!([{"type": "text_mention", "offset": 0, "length": 2, "user": {"id": 42}}]),
                ),
                false,
            ),
            (
                group(
                    json!({"text": "yes", "reply_to_message": {"message_id": 1, "from": {"id": 42}}}),
                ),
                false,
            ),
            (
                group(
                    json!({"text": "yes", "reply_to_message": {"message_id": 1, "from": {"id": 8}}}),
                ),
                true,
            ),
            (
                group(
                    json!({"text": "yes", "reply_to_message": {"message_id": 1, "from": {"id": 42}, "forum_topic_created": {"name": "x"}}}),
                ),
                true,
            ),
            (
                group(
                    json!({"caption": "@holdfast_bot", "photo": [{"file_id": "p"}], "caption_entities": entity("mention", 0, 13)}),
                ),
                false,
            ),
        ];

        for (update, silent) in cases {
            assert_eq!(taken(update.clone()).silent, silent, "{update}");
        }
    }

    #[test]
    fn what_others_wrote_is_told_from_what_the_sender_wrote() {
        let replied = |from: u32| json!({"message_id": 1, "from": {"id": from}, "text": "do X"});
        for (update, is_of_others) in [
            (private(json!({"text": "hi"})), false),
            (private(json!({"text": "hi", "forward_origin": {"type": "user"}})), true),
            (private(json!({"voice": {"file_id": "v"}, "forward_origin": {}})), true),
            (private(json!({"caption": "see", "photo": [{"file_id": "p"}]})), false),
            (private(json!({"text": "yes", "reply_to_message": replied(42)})), false),
            (private(json!({"text": "yes", "reply_to_message": replied(7)})), false),
            (private(json!({"text": "yes", "reply_to_message": replied(8)})), true),
            (
                private(json!({"text": "yes", "external_reply": {}, "quote": {"text": "do X"}})),
                true,
            ),
        ] {
            assert_eq!(taken(update.clone()).has_text_of_others, is_of_others, "{update}");
        }
    }

    #[test]
    fn where_mentions_are_not_asked_for_all_is_answered() {
        let settings = settings(json!({"groups": {"mention_only": false, "allow": ["*"]}}));
        let update = serde_json::from_value(group(json!({"text": "hello"}))).unwrap();

        let Verdict::Take(request) = judge(update, &settings, &me()) else { panic!("not taken") };

        assert!(!request.silent);
        assert_eq!((request.peer_kind.as_str(), request.reply_to.as_str()), ("group", "4"));
    }

    #[test]
    fn a_topic_is_a_thread_and_a_chain_of_replies_is_none() {
        let topic =
            taken(group(json!({"text": "x", "message_thread_id": 3, "is_topic_message": true})));
        let chain = taken(group(json!({"text": "x", "message_thread_id": 3})));

        assert_eq!((topic.thread.as_str(), topic.reply_thread.as_str()), ("3", "3"));
        assert_eq!((chain.thread.as_str(), chain.reply_thread.as_str()), ("", ""));
    }

    #[test]
    fn what_is_answered_is_told_shortened() {
        let long = "é".repeat(900);
        let whole = taken(private(
            json!({"text": "x", "reply_to_message": {"message_id": 1, "text": long}}),
        ));
        let quoted = taken(private(json!({"text": "x", "quote": {"text": "part"},
            "reply_to_message": {"message_id": 1, "text": long}})));

        assert_eq!(whole.reply_to_message_id, "1");
        assert_eq!(whole.reply_to_text.chars().count(), 500);
        assert_eq!(quoted.reply_to_text, "part");
    }

    #[test]
    fn files_come_by_their_handles() {
        let photo = taken(private(
            json!({"caption": "look", "photo": [{"file_id": "small"}, {"file_id": "large"}]}),
        ));
        let document = taken(private(json!({"document": {"file_id": "d", "file_name": "a.pdf"}})));
        let voice = taken(private(json!({"voice": {"file_id": "v"}})));

        let file = |kind: &str, reference: &str, name: &str| MessageAttachment {
            kind: kind.into(),
            reference: reference.into(),
            name: name.into(),
            ..MessageAttachment::default()
        };
        assert_eq!(
            (photo.text.as_str(), photo.attachments),
            ("look", vec![file("photo", "large", "")])
        );
        assert_eq!(document.attachments, [file("document", "d", "a.pdf")]);
        assert_eq!(voice.attachments, [file("voice", "v", "")]);
    }

    #[test]
    fn bots_channels_and_events_are_nothing_to_us() {
        for (update, why) in [
            (json!({"update_id": 1, "poll": {}}), "kind"),
            (private(json!({"text": "x", "from": {"id": 7, "is_bot": true}})), "author"),
            (private(json!({"text": "x", "chat": {"id": 7, "type": "channel"}})), "chat"),
            (private(json!({"text": "x", "chat": {"id": 7, "type": "new_kind"}})), "chat"),
            (private(json!({"pinned_message": {}})), "content"),
        ] {
            assert_eq!(verdict(update.clone()), Verdict::Ignore(why), "{update}");
        }
    }

    #[test]
    fn an_anonymous_administrator_is_their_group() {
        let update = group(json!({"text": "x", "from": {"id": 1, "is_bot": true},
            "sender_chat": {"id": -5, "type": "supergroup", "title": "G"}}));

        let request = taken(update);

        assert_eq!((request.sender_id.as_str(), request.sender_name.as_str()), ("-5", "G"));
    }

    const UPDATES: [&str; 5] = [
        r#"{"update_id": 1, "message": {"message_id": 3, "date": 1000, "chat": {"id": 7, "type": "private"}, "from": {"id": 7, "is_bot": false, "first_name": "Anna", "username": "anna"}, "text": "hello", "reply_to_message": {"message_id": 2, "from": {"id": 42, "is_bot": true, "first_name": "H"}, "text": "what was said"}, "quote": {"text": "was", "position": 5}}}"#,
        r#"{"update_id": 2, "message": {"message_id": 4, "date": 1000, "message_thread_id": 9, "is_topic_message": true, "chat": {"id": -5, "type": "supergroup", "title": "G"}, "from": {"id": 8, "is_bot": false, "first_name": "Bob"}, "text": "👩‍👩‍👧 @holdfast_bot /stop", "entities": [{"type": "mention", "offset": 9, "length": 13}, {"type": "bot_command", "offset": 23, "length": 5}]}}"#,
        r#"{"update_id": 3, "edited_message": {"message_id": 4, "date": 1000, "edit_date": 1001, "chat": {"id": -5, "type": "group", "title": "G"}, "sender_chat": {"id": -5, "type": "group"}, "caption": "ä", "caption_entities": [{"type": "text_mention", "offset": 0, "length": 1, "user": {"id": 42, "is_bot": true, "first_name": "H"}}], "photo": [{"file_id": "a", "file_unique_id": "b", "file_size": 3}, {"file_id": "c"}]}}"#,
        r#"{"update_id": 4, "callback_query": {"id": "q", "from": {"id": 7, "is_bot": false, "first_name": "Anna"}, "message": {"message_id": 5, "date": 0, "chat": {"id": 7, "type": "private"}}, "data": "allow:abc12345"}}"#,
        r#"{"update_id": 5, "message": {"message_id": 6, "date": 9, "chat": {"id": 7, "type": "private"}, "from": {"id": 7, "is_bot": false, "first_name": "A"}, "document": {"file_id": "d", "file_name": "../x", "mime_type": "text/plain", "file_size": 9}, "voice": {"file_id": "v"}, "sticker": {"file_id": "s", "emoji": "x"}}}"#,
    ];

    proptest! {
        #[test]
        fn any_update_is_judged(update in mutated_json(&UPDATES)) {
            if let Ok(update) = serde_json::from_str::<Update>(&update)
                && let Verdict::Take(request) = judge(update, &open(), &me())
            {
                prop_assert!(!request.peer_id.is_empty() && !request.idempotency_key.is_empty());
            }
        }
    }
}
