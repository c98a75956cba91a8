//! Classification of an event: a message to accept, one to refuse, or nothing to do.
//!
//! Pure: the result depends on the event, the account's settings, and what is known about the room.
//! An edit becomes a message of its own that says so, since the agent may have read the original
//! already.

use holdfast_directory::channel::MatrixSettings;
use holdfast_proto::gateway::v1::{AcceptRequest, MessageAttachment};
use serde_json::Value;

use super::wire::Event;
use crate::{channel::Place, inbound::Verdict};

/// Prefix of an edited message's text.
const EDITED_PREFIX: &str = "[edited message] ";

/// Maximum length of the quoted text of a replied-to message, in characters.
const MAX_REPLIED_CHARS: usize = 500;

/// User of the account.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Me {
    pub id: String,
    /// Display name; empty if there is none.
    pub name: String,
}

/// What is known about the place of an event.
#[derive(Debug, Clone, Copy)]
pub struct Room<'a> {
    pub id: &'a str,
    /// Whether only the account and one other user are in it.
    pub is_direct: bool,
    /// Message that the event answers, if it is visible.
    pub replied: Option<&'a Event>,
}

pub fn judge(event: &Event, settings: &MatrixSettings, room: Room<'_>, me: &Me) -> Verdict {
    if event.sender == me.id {
        return Verdict::Ignore("own");
    }
    if event.kind != "m.room.message" || event.state_key.is_some() {
        return Verdict::Ignore("kind");
    }
    if event.event_id.is_empty() || event.sender.is_empty() {
        return Verdict::Ignore("author");
    }
    let is_allowed = is_allowed_in(room, &event.sender, settings);
    if !is_allowed && !room.is_direct {
        return Verdict::Ignore("not_allowed");
    }
    let is_edit = matches!(event.relation(), Some(("m.replace", _)));
    let content = if is_edit { &event.content["m.new_content"] } else { &event.content };
    // Bots send notices, and two bots would answer each other for ever.
    if content["msgtype"] == "m.notice" {
        return Verdict::Ignore("notice");
    }
    if !is_allowed {
        let place = Place { chat: room.id.to_owned(), thread: None };
        return Verdict::Refuse { place, sender: event.sender.clone() };
    }
    let message = Message::read(content);
    if message.text.trim().is_empty() && message.file.is_none() {
        return Verdict::Ignore("content");
    }
    let is_mentioned = mentions(content, &message.text, me)
        || room.replied.is_some_and(|replied| replied.sender == me.id);
    let silent = !room.is_direct && settings.groups.mention_only && !is_mentioned;
    Verdict::Take(Box::new(accept_request(event, room, settings, (message, is_edit, silent), me)))
}

/// Whether a sender's messages in a room are for the account.
pub fn is_allowed_in(room: Room<'_>, sender: &str, settings: &MatrixSettings) -> bool {
    match room.is_direct {
        true => settings.allow.allows(sender, ""),
        false => settings.groups.allow.allows(room.id, ""),
    }
}

/// Content of a message, as the agent gets it.
struct Message {
    text: String,
    file: Option<MessageAttachment>,
}

impl Message {
    fn read(content: &Value) -> Self {
        let body = content["body"].as_str().unwrap_or_default();
        let kind = match content["msgtype"].as_str().unwrap_or_default() {
            "m.image" => "photo",
            "m.audio" if content["org.matrix.msc3245.voice"].is_object() => "voice",
            "m.audio" => "audio",
            "m.video" => "video",
            "m.file" => "document",
            "m.emote" => return Self { text: format!("* {body}"), file: None },
            _ => {
                let text = match content["m.relates_to"]["m.in_reply_to"].is_object() {
                    true => without_fallback(body),
                    false => body,
                };
                return Self { text: text.to_owned(), file: None };
            }
        };
        // Without `filename` the body is the file's name; with it, the body is the caption.
        let name = content["filename"].as_str().unwrap_or(body);
        let caption = if body == name { "" } else { body };
        let file = MessageAttachment {
            kind: kind.to_owned(),
            reference: content["url"].as_str().unwrap_or_default().to_owned(),
            name: name.to_owned(),
            media_type: content["info"]["mimetype"].as_str().unwrap_or_default().to_owned(),
            ..MessageAttachment::default()
        };
        Self { text: caption.to_owned(), file: Some(file) }
    }
}

/// Removes the quotation that older clients write before an answer.
fn without_fallback(body: &str) -> &str {
    let mut rest = body;
    if !rest.starts_with("> ") {
        return body;
    }
    while let Some(line) = rest.strip_prefix('>') {
        rest = line.split_once('\n').map_or("", |(_, rest)| rest);
    }
    rest.trim_start_matches('\n')
}

/// Whether a message mentions the account: by `m.mentions`, which clients send that know it, else by
/// its id or display name in the text.
fn mentions(content: &Value, text: &str, me: &Me) -> bool {
    if let Some(mentions) = content.get("m.mentions").filter(|mentions| mentions.is_object()) {
        let users = mentions["user_ids"].as_array();
        return users.is_some_and(|users| users.iter().any(|user| *user == me.id.as_str()));
    }
    let localpart = me.id.trim_start_matches('@').split(':').next().unwrap_or_default();
    [me.id.as_str(), localpart, &me.name].iter().any(|name| has_word(text, name))
}

/// Whether a name stands in a text as words of their own, in any case.
fn has_word(text: &str, name: &str) -> bool {
    if name.trim().is_empty() {
        return false;
    }
    let (text, name) = (text.to_lowercase(), name.to_lowercase());
    let is_apart = |letter: Option<char>| letter.is_none_or(|letter| !letter.is_alphanumeric());
    text.match_indices(&name).any(|(at, found)| {
        is_apart(text[..at].chars().next_back())
            && is_apart(text[at + found.len()..].chars().next())
    })
}

fn accept_request(
    event: &Event,
    room: Room<'_>,
    settings: &MatrixSettings,
    (message, is_edit, silent): (Message, bool, bool),
    me: &Me,
) -> AcceptRequest {
    let thread = match event.relation() {
        Some(("m.thread", root)) => root.to_owned(),
        _ => String::new(),
    };
    let replied_text = room.replied.and_then(|replied| replied.content["body"].as_str());
    let is_of_others = room
        .replied
        .is_some_and(|replied| replied.sender != me.id && replied.sender != event.sender);
    AcceptRequest {
        idempotency_key: format!("event:{}", event.event_id),
        peer_kind: if room.is_direct { "direct" } else { "group" }.to_owned(),
        peer_id: if room.is_direct { event.sender.clone() } else { room.id.to_owned() },
        thread: thread.clone(),
        sender_id: event.sender.clone(),
        sender_name: localpart(&event.sender).to_owned(),
        text: format!("{}{}", if is_edit { EDITED_PREFIX } else { "" }, message.text),
        platform_message_id: event.event_id.clone(),
        reply_to_message_id: event.replied_id().unwrap_or_default().to_owned(),
        reply_to_text: replied_text
            .map(|text| without_fallback(text).chars().take(MAX_REPLIED_CHARS).collect())
            .unwrap_or_default(),
        attachments: message.file.into_iter().collect(),
        reply_chat: room.id.to_owned(),
        reply_thread: thread,
        // In a room the reply quotes the message, so that its recipient is clear.
        reply_to: if room.is_direct { String::new() } else { event.event_id.clone() },
        silent,
        sender_listed: settings.allow.names(&event.sender, ""),
        has_text_of_others: is_of_others,
        sent_at: Some(prost_types::Timestamp {
            seconds: event.origin_server_ts.div_euclid(1000),
            nanos: 0,
        }),
        ..AcceptRequest::default()
    }
}

fn localpart(user: &str) -> &str {
    user.trim_start_matches('@').split(':').next().unwrap_or(user)
}

#[cfg(test)]
mod tests {
    use holdfast_testkit::inputs::mutated_json;
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn me() -> Me {
        Me { id: "@bot:x".into(), name: "Holdfast Bot".into() }
    }

    fn settings() -> MatrixSettings {
        serde_json::from_value(json!({
            "homeserver": "https://x", "allow": ["@anna:x"], "groups": {"allow": ["!room:x"]},
        }))
        .unwrap()
    }

    fn event(content: Value) -> Event {
        let event = json!({"type": "m.room.message", "event_id": "$1", "sender": "@anna:x",
            "origin_server_ts": 5000, "content": content});
        serde_json::from_value(event).unwrap()
    }

    fn text(body: &str) -> Event {
        event(json!({"msgtype": "m.text", "body": body}))
    }

    const DIRECT: Room<'_> = Room { id: "!dm:x", is_direct: true, replied: None };
    const GROUP: Room<'_> = Room { id: "!room:x", is_direct: false, replied: None };

    fn taken(event: &Event, room: Room<'_>) -> AcceptRequest {
        match judge(event, &settings(), room, &me()) {
            Verdict::Take(request) => *request,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_direct_message_is_taken_once_by_its_event_id() {
        let request = taken(&text("hi"), DIRECT);

        assert_eq!(
            request,
            AcceptRequest {
                idempotency_key: "event:$1".into(),
                peer_kind: "direct".into(),
                peer_id: "@anna:x".into(),
                sender_id: "@anna:x".into(),
                sender_name: "anna".into(),
                text: "hi".into(),
                platform_message_id: "$1".into(),
                reply_chat: "!dm:x".into(),
                sender_listed: true,
                sent_at: Some(prost_types::Timestamp { seconds: 5, nanos: 0 }),
                ..AcceptRequest::default()
            }
        );
    }

    #[test]
    fn a_stranger_is_refused_in_private_and_ignored_in_other_rooms() {
        let stranger = Event { sender: "@eve:x".into(), ..text("hi") };
        let elsewhere = Room { id: "!other:x", ..GROUP };

        assert!(matches!(
            judge(&stranger, &settings(), DIRECT, &me()),
            Verdict::Refuse { sender, .. } if sender == "@eve:x"
        ));
        assert_eq!(
            judge(&text("bot"), &settings(), elsewhere, &me()),
            Verdict::Ignore("not_allowed")
        );
        assert!(!taken(&Event { sender: "@eve:x".into(), ..text("bot: hi") }, GROUP).sender_listed);
    }

    #[test]
    fn in_a_room_only_what_mentions_the_account_asks_for_an_answer() {
        let ours = Event { sender: "@bot:x".into(), ..text("yes?") };
        let mentions =
            |users: Value| json!({"msgtype": "m.text", "body": "bot", "m.mentions": users});
        for (event, replied, silent) in [
            (text("hello all"), None, true),
            (text("hello robots"), None, true),
            (text("Bot: hello"), None, false),
            (text("is @bot:x here"), None, false),
            (text("HOLDFAST bot?"), None, false),
            (event(mentions(json!({}))), None, true),
            (event(mentions(json!({"user_ids": ["@other:x"]}))), None, true),
            (event(mentions(json!({"user_ids": ["@bot:x"]}))), None, false),
            (text("hello all"), Some(&ours), false),
            (text("hello all"), Some(&text("x")), true),
        ] {
            let request = taken(&event, Room { replied, ..GROUP });
            assert_eq!(request.silent, silent, "{}", event.content);
            assert_eq!((request.peer_kind.as_str(), request.reply_to.as_str()), ("group", "$1"));
        }
    }

    #[test]
    fn edits_replies_and_threads_are_what_they_are() {
        let edit = event(json!({"msgtype": "m.text", "body": "* ho",
            "m.new_content": {"msgtype": "m.text", "body": "ho"},
            "m.relates_to": {"rel_type": "m.replace", "event_id": "$0"}}));
        assert_eq!(taken(&edit, DIRECT).text, "[edited message] ho");

        let reply = event(json!({"msgtype": "m.text", "body": "> <@bot:x> a\n> b\n\nyes",
            "m.relates_to": {"m.in_reply_to": {"event_id": "$0"}}}));
        let quoted = Event { sender: "@eve:x".into(), ..text("a\nb") };
        let request = taken(&reply, Room { replied: Some(&quoted), ..DIRECT });
        assert_eq!((request.text.as_str(), request.reply_to_text.as_str()), ("yes", "a\nb"));
        assert_eq!(request.reply_to_message_id, "$0");
        assert!(request.has_text_of_others);

        let thread = event(json!({"msgtype": "m.text", "body": "x", "m.relates_to": {
            "rel_type": "m.thread", "event_id": "$root", "is_falling_back": true,
            "m.in_reply_to": {"event_id": "$0"}}}));
        let request = taken(&thread, DIRECT);
        assert_eq!((request.thread.as_str(), request.reply_thread.as_str()), ("$root", "$root"));
        assert_eq!(request.reply_to_message_id, "");
    }

    #[test]
    fn a_file_has_its_name_and_its_caption() {
        let file = event(json!({"msgtype": "m.image", "body": "look", "filename": "a.png",
            "url": "mxc://x/1", "info": {"mimetype": "image/png"}}));
        let request = taken(&file, DIRECT);
        let attached = &request.attachments[0];
        assert_eq!(request.text, "look");
        assert_eq!((attached.kind.as_str(), attached.name.as_str()), ("photo", "a.png"));
        assert_eq!(
            (attached.reference.as_str(), attached.media_type.as_str()),
            ("mxc://x/1", "image/png")
        );

        let bare = event(json!({"msgtype": "m.file", "body": "a.csv", "url": "mxc://x/1"}));
        let request = taken(&bare, DIRECT);
        assert_eq!((request.text.as_str(), request.attachments[0].name.as_str()), ("", "a.csv"));
    }

    #[test]
    fn what_nobody_wrote_to_us_is_ignored() {
        let own = Event { sender: "@bot:x".into(), ..text("hi") };
        let notice = event(json!({"msgtype": "m.notice", "body": "hi"}));
        let empty = event(json!({}));
        let reaction = Event { kind: "m.reaction".into(), ..text("x") };
        for (event, why) in
            [(own, "own"), (notice, "notice"), (empty, "content"), (reaction, "kind")]
        {
            assert_eq!(judge(&event, &settings(), DIRECT, &me()), Verdict::Ignore(why));
        }
    }

    const EVENTS: [&str; 2] = [
        r#"{"type": "m.room.message", "event_id": "$1", "sender": "@anna:x", "content": {"msgtype": "m.text", "body": "> a\n\nb", "m.relates_to": {"m.in_reply_to": {"event_id": "$0"}}}}"#,
        r#"{"type": "m.room.message", "event_id": "$1", "sender": "@anna:x", "content": {"msgtype": "m.file", "body": "b", "url": "mxc://x/1", "info": {"mimetype": "x"}}}"#,
    ];

    proptest! {
        #[test]
        fn any_event_is_judged(text in mutated_json(&EVENTS)) {
            if let Ok(event) = serde_json::from_str::<Event>(&text)
                && let Verdict::Take(request) = judge(&event, &settings(), DIRECT, &me())
            {
                prop_assert_eq!(request.sender_id, "@anna:x");
                prop_assert!(!request.text.trim().is_empty() || !request.attachments.is_empty());
            }
        }
    }
}
