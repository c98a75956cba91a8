//! Classification of events: messages, edits, and presses of buttons.

use holdfast_directory::channel::SlackSettings;
use holdfast_proto::gateway::v1::{AcceptRequest, MessageAttachment};
use serde::Deserialize;

use super::client::Identity;
use crate::{buttons, channel::Place, inbound::Verdict, media};

/// Prefix of an edited message's text.
const EDITED_PREFIX: &str = "[edited message] ";

/// Event `message` (<https://docs.slack.dev/reference/events/message>).
#[derive(Debug, Clone, Deserialize)]
pub(super) struct MessageEvent {
    channel: String,
    #[serde(default)]
    channel_type: String,
    #[serde(default)]
    subtype: String,
    #[serde(flatten)]
    content: MessageContent,
    /// The message as it is after an edit.
    message: Option<Box<MessageContent>>,
}

#[derive(Debug, Clone, Deserialize)]
struct MessageContent {
    user: Option<String>,
    bot_id: Option<String>,
    #[serde(default)]
    text: String,
    #[serde(default)]
    ts: String,
    #[serde(default)]
    thread_ts: String,
    edited: Option<EditMark>,
    #[serde(default)]
    files: Vec<File>,
}

#[derive(Debug, Clone, Deserialize)]
struct EditMark {
    ts: String,
}

#[derive(Debug, Clone, Deserialize)]
struct File {
    #[serde(default)]
    name: String,
    #[serde(default)]
    mimetype: String,
    /// `slack_audio` for a recording of its author.
    #[serde(default)]
    subtype: String,
    #[serde(default)]
    url_private_download: String,
}

/// A press of a button (<https://docs.slack.dev/reference/interaction-payloads/block_actions-payload>).
#[derive(Debug, Clone, Deserialize)]
pub(super) struct Press {
    user: PressedBy,
    channel: Option<PressedIn>,
    #[serde(default)]
    actions: Vec<PressedButton>,
    #[serde(default)]
    message: PressedMessage,
}

#[derive(Debug, Clone, Deserialize)]
struct PressedBy {
    id: String,
    #[serde(default)]
    name: String,
}

#[derive(Debug, Clone, Deserialize)]
struct PressedIn {
    id: String,
}

#[derive(Debug, Clone, Deserialize)]
struct PressedButton {
    #[serde(default)]
    value: String,
    #[serde(default)]
    action_ts: String,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct PressedMessage {
    thread_ts: String,
}

/// Classifies a message.
pub(super) fn judge(event: MessageEvent, settings: &SlackSettings, me: &Identity) -> Verdict {
    let (content, is_edit) = match (event.subtype.as_str(), event.message) {
        ("" | "file_share" | "thread_broadcast", _) => (event.content, false),
        ("message_changed", Some(changed)) if changed.edited.is_some() => (*changed, true),
        _ => return Verdict::Ignore("kind"),
    };
    let Some(user) = &content.user else { return Verdict::Ignore("author") };
    // Two bots would answer each other forever.
    if content.bot_id.is_some() || *user == me.user {
        return Verdict::Ignore("author");
    }
    let is_group = match event.channel_type.as_str() {
        "" => !is_direct(&event.channel),
        kind => kind != "im",
    };
    if let Some(refused) = refused(&event.channel, user, is_group, settings) {
        return refused;
    }
    let mention = format!("<@{}>", me.user);
    let is_mentioned = content.text.contains(&mention);
    let text = content.text.trim_start();
    let text = plain(text.strip_prefix(&mention).map_or(content.text.as_str(), str::trim_start));
    if text.trim().is_empty() && content.files.is_empty() {
        return Verdict::Ignore("content");
    }
    let channel = event.channel;
    let (key, prefix) = match (&content.edited, is_edit) {
        (Some(edited), true) => {
            (format!("edit:{channel}:{}:{}", content.ts, edited.ts), EDITED_PREFIX)
        }
        _ => (format!("msg:{channel}:{}", content.ts), ""),
    };
    // The first message of a thread names itself.
    let thread = if content.thread_ts == content.ts { String::new() } else { content.thread_ts };
    let files = content.files.iter().filter(|file| !file.url_private_download.is_empty());
    let files = files.map(|file| MessageAttachment {
        kind: match file.subtype.as_str() {
            "slack_audio" => "voice",
            _ => media::kind_of(&file.mimetype),
        }
        .to_owned(),
        reference: file.url_private_download.clone(),
        name: file.name.clone(),
        media_type: file.mimetype.clone(),
        ..MessageAttachment::default()
    });
    Verdict::Take(Box::new(AcceptRequest {
        idempotency_key: key,
        peer_kind: if is_group { "group" } else { "direct" }.to_owned(),
        peer_id: if is_group { channel.clone() } else { user.clone() },
        thread: thread.clone(),
        sender_id: user.clone(),
        sender_name: user.clone(),
        text: format!("{prefix}{text}"),
        platform_message_id: content.ts.clone(),
        attachments: files.collect(),
        reply_chat: channel,
        reply_thread: thread,
        silent: is_group && settings.groups.mention_only && !is_mentioned,
        sender_listed: settings.allow.names(user, ""),
        sent_at: seconds(&content.ts),
        ..AcceptRequest::default()
    }))
}

/// Turns a press into the command that the person could have written.
pub(super) fn judge_press(press: Press, settings: &SlackSettings) -> Verdict {
    let Some(button) = press.actions.first() else { return Verdict::Ignore("strange_button") };
    let Some(text) = buttons::button_command(&button.value) else {
        return Verdict::Ignore("strange_button");
    };
    let Some(channel) = press.channel.map(|channel| channel.id) else {
        return Verdict::Ignore("chat");
    };
    let (user, is_group) = (press.user.id, !is_direct(&channel));
    if let Some(refused) = refused(&channel, &user, is_group, settings) {
        return refused;
    }
    Verdict::Take(Box::new(AcceptRequest {
        idempotency_key: format!("press:{channel}:{user}:{}:{}", button.action_ts, button.value),
        peer_kind: if is_group { "group" } else { "direct" }.to_owned(),
        peer_id: if is_group { channel.clone() } else { user.clone() },
        thread: press.message.thread_ts.clone(),
        sender_id: user,
        sender_name: press.user.name,
        text,
        reply_chat: channel,
        reply_thread: press.message.thread_ts,
        ..AcceptRequest::default()
    }))
}

/// Whether a chat is a direct one, by its id.
fn is_direct(channel: &str) -> bool {
    channel.starts_with('D')
}

fn refused(channel: &str, user: &str, is_group: bool, settings: &SlackSettings) -> Option<Verdict> {
    if is_group {
        let is_allowed = settings.groups.allow.allows(channel, "");
        return (!is_allowed).then_some(Verdict::Ignore("not_allowed"));
    }
    let place = Place { chat: channel.to_owned(), thread: None };
    let refused = Verdict::Refuse { place, sender: user.to_owned() };
    (!settings.allow.allows(user, "")).then_some(refused)
}

/// Returns a text as people see it: links and names in `<…>`, and `&`, `<`, `>` are escaped
/// (<https://docs.slack.dev/messaging/formatting-message-text>).
fn plain(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(start) = rest.find('<') {
        plain.push_str(&rest[..start]);
        rest = &rest[start + 1..];
        let Some(end) = rest.find('>') else {
            plain.push('<');
            break;
        };
        let (target, label) = match rest[..end].split_once('|') {
            Some((target, label)) => (target, Some(label)),
            None => (&rest[..end], None),
        };
        match (target.chars().next(), label) {
            (Some('@'), _) => plain.push_str(target),
            (Some('#' | '!'), Some(label)) => plain.push_str(label),
            (Some('#' | '!'), None) => plain.push_str(target),
            (_, Some(label)) if label != target => {
                plain.push_str(&format!("{label} ({target})"));
            }
            _ => plain.push_str(target),
        }
        rest = &rest[end + 1..];
    }
    plain.push_str(rest);
    plain.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&")
}

fn seconds(ts: &str) -> Option<prost_types::Timestamp> {
    let seconds = ts.split('.').next()?.parse().ok()?;
    Some(prost_types::Timestamp { seconds, nanos: 0 })
}

#[cfg(test)]
mod tests {
    use holdfast_testkit::inputs::mutated_json;
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;

    const EVENTS: [&str; 2] = [
        r#"{"channel":"C1","channel_type":"channel","user":"U7","text":"<@U42> hi &amp; <http://x|x>",
            "ts":"1700000000.1","thread_ts":"1699999999.1","files":[{"name":"a","mimetype":"image/png",
            "url_private_download":"https://x/y"}]}"#,
        r#"{"channel":"C1","subtype":"message_changed","message":{"user":"U7","text":"x","ts":"1.1",
            "edited":{"ts":"2.1"}}}"#,
    ];

    fn me() -> Identity {
        let (name, team) = ("bot".to_owned(), "acme".to_owned());
        Identity { user: "U42".into(), name, team }
    }

    fn settings() -> SlackSettings {
        serde_json::from_value(json!({"allow": ["U7"], "groups": {"allow": ["C1"]}})).unwrap()
    }

    fn verdict(more: Value) -> Verdict {
        let mut event = json!({"channel": "D1", "channel_type": "im", "user": "U7", "text": "hi", "ts": "1700000000.1"});
        event.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        judge(serde_json::from_value(event).unwrap(), &settings(), &me())
    }

    fn taken(more: Value) -> AcceptRequest {
        match verdict(more) {
            Verdict::Take(request) => *request,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_direct_message_belongs_to_its_author() {
        let request = taken(json!({}));

        assert_eq!((request.peer_kind.as_str(), request.peer_id.as_str()), ("direct", "U7"));
        assert_eq!((request.reply_chat.as_str(), request.thread.as_str()), ("D1", ""));
        assert_eq!(request.idempotency_key, "msg:D1:1700000000.1");
        let stranger = verdict(json!({"user": "U8"}));
        assert!(matches!(stranger, Verdict::Refuse { sender, .. } if sender == "U8"));
    }

    #[test]
    fn in_a_channel_what_names_nobody_is_silent_and_a_thread_is_its_own() {
        let in_channel = |text: &str| json!({"channel": "C1", "channel_type": "channel", "text": text, "thread_ts": "1.5"});

        assert!(taken(in_channel("just talking")).silent);
        let asked = taken(in_channel("<@U42> help"));
        assert_eq!((asked.text.as_str(), asked.silent), ("help", false));
        assert_eq!((asked.thread.as_str(), asked.reply_thread.as_str()), ("1.5", "1.5"));
        let elsewhere = json!({"channel": "C2", "channel_type": "channel"});
        assert_eq!(verdict(elsewhere), Verdict::Ignore("not_allowed"));
    }

    #[test]
    fn bots_and_service_messages_reach_nobody_and_an_edit_is_told() {
        for (more, why) in [
            (json!({"bot_id": "B1"}), "author"),
            (json!({"user": "U42"}), "author"),
            (json!({"user": null}), "author"),
            (json!({"subtype": "channel_join"}), "kind"),
            (json!({"text": " "}), "content"),
        ] {
            assert_eq!(verdict(more.clone()), Verdict::Ignore(why), "{more}");
        }
        let changed = json!({"subtype": "message_changed", "message":
            {"user": "U7", "text": "hello", "ts": "1.1", "edited": {"ts": "2.1"}}});
        let edited = taken(changed);
        assert_eq!(
            (edited.text.as_str(), edited.idempotency_key.as_str()),
            ("[edited message] hello", "edit:D1:1.1:2.1")
        );
    }

    #[test]
    fn a_text_is_as_people_see_it() {
        for (text, shown) in [
            ("a &lt;b&gt; &amp;amp;", "a <b> &amp;"),
            (
                "<https://x.test|site> and <https://y.test>",
                "site (https://x.test) and https://y.test",
            ),
            ("<@U1> in <#C1|team> <!here>", "@U1 in team !here"),
            ("a < b", "a < b"),
        ] {
            assert_eq!(plain(text), shown);
        }
    }

    proptest! {
        #[test]
        fn no_event_makes_it_fail(text in mutated_json(&EVENTS), said in "[<>|@#a&;l\\PC]{0,40}") {
            if let Ok(event) = serde_json::from_str(&text) {
                let _ = judge(event, &settings(), &me());
            }
            let _ = plain(&said);
        }
    }
}
