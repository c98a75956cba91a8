//! Classification of a message: one to accept, one to refuse, or nothing to do. Pure.

use holdfast_directory::channel::WhatsappSettings;
use holdfast_proto::gateway::v1::{AcceptRequest, MessageAttachment};

use super::wire::Message;
use crate::{buttons::button_command, channel::Place, inbound::Verdict};

/// Types of messages that are files.
const FILES: [&str; 5] = ["image", "document", "audio", "video", "sticker"];

/// Judges a message of a person, whose profile has this name.
pub fn judge(message: &Message, name: &str, settings: &WhatsappSettings) -> Verdict {
    if message.from.is_empty() || message.id.is_empty() {
        return Verdict::Ignore("author");
    }
    if !settings.allows(&message.from) {
        let place = Place { chat: message.from.clone(), thread: None };
        return Verdict::Refuse { place, sender: message.from.clone() };
    }
    let content = message.content();
    let text_at = |path: &str| content.pointer(path).and_then(|text| text.as_str());
    let mut reply_to_message_id = message.context.id.clone();
    let mut silent = false;
    let text = match message.kind.as_str() {
        "text" => text_at("/body").unwrap_or_default().to_owned(),
        kind if FILES.contains(&kind) => text_at("/caption").unwrap_or_default().to_owned(),
        "button" => pressed(text_at("/payload"), text_at("/text")),
        "interactive" => {
            let id = text_at("/button_reply/id").or_else(|| text_at("/list_reply/id"));
            pressed(id, text_at("/button_reply/title").or_else(|| text_at("/list_reply/title")))
        }
        "reaction" => {
            text_at("/message_id").unwrap_or_default().clone_into(&mut reply_to_message_id);
            silent = true;
            match text_at("/emoji").unwrap_or_default() {
                "" => "[took back a reaction]".to_owned(),
                emoji => format!("[reacted with {emoji}]"),
            }
        }
        "location" => {
            let number = |path: &str| content[path].as_f64().unwrap_or_default();
            let (name, address) =
                (text_at("/name").unwrap_or_default(), text_at("/address").unwrap_or_default());
            format!("[location {}, {}] {name} {address}", number("latitude"), number("longitude"))
        }
        _ => return Verdict::Ignore("kind"),
    };
    let attachments = attachment(message);
    if text.trim().is_empty() && attachments.is_none() {
        return Verdict::Ignore("content");
    }
    let has_text_of_others = message.context.forwarded;
    Verdict::Take(Box::new(AcceptRequest {
        idempotency_key: format!("message:{}", message.id),
        peer_kind: "direct".to_owned(),
        peer_id: message.from.clone(),
        sender_id: message.from.clone(),
        sender_name: name.to_owned(),
        text: text.trim().to_owned(),
        platform_message_id: message.id.clone(),
        reply_to_message_id,
        attachments: attachments.into_iter().collect(),
        reply_chat: message.from.clone(),
        silent,
        sender_listed: settings.names(&message.from),
        has_text_of_others,
        sent_at: message
            .timestamp
            .parse()
            .ok()
            .map(|seconds| prost_types::Timestamp { seconds, nanos: 0 }),
        ..AcceptRequest::default()
    }))
}

/// Text for a pressed button: the command of one of ours, else what is on it.
fn pressed(data: Option<&str>, label: Option<&str>) -> String {
    data.and_then(button_command).unwrap_or_else(|| label.unwrap_or_default().to_owned())
}

fn attachment(message: &Message) -> Option<MessageAttachment> {
    let content = message.content();
    let text = |name: &str| content[name].as_str().unwrap_or_default().to_owned();
    let kind = match message.kind.as_str() {
        "image" => "photo",
        "audio" if content["voice"] == true => "voice",
        kind if FILES.contains(&kind) => kind,
        _ => return None,
    };
    Some(MessageAttachment {
        kind: kind.to_owned(),
        reference: text("id"),
        name: text("filename"),
        media_type: text("mime_type"),
        ..MessageAttachment::default()
    })
}

#[cfg(test)]
mod tests {
    use holdfast_testkit::inputs::mutated_json;
    use holdfast_types::ApprovalId;
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;

    fn settings() -> WhatsappSettings {
        serde_json::from_value(json!({"phone_number_id": "1", "allow": ["+49170"]})).unwrap()
    }

    fn message(more: Value) -> Message {
        let mut message = json!({"from": "49170", "id": "wamid.1", "timestamp": "1000"});
        message.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        serde_json::from_value(message).unwrap()
    }

    fn taken(more: Value) -> AcceptRequest {
        match judge(&message(more), "Anna", &settings()) {
            Verdict::Take(request) => *request,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_text_is_taken_once_by_its_id() {
        assert_eq!(
            taken(json!({"type": "text", "text": {"body": "hi"}})),
            AcceptRequest {
                idempotency_key: "message:wamid.1".into(),
                peer_kind: "direct".into(),
                peer_id: "49170".into(),
                sender_id: "49170".into(),
                sender_name: "Anna".into(),
                text: "hi".into(),
                platform_message_id: "wamid.1".into(),
                reply_chat: "49170".into(),
                sender_listed: true,
                sent_at: Some(prost_types::Timestamp { seconds: 1000, nanos: 0 }),
                ..AcceptRequest::default()
            }
        );
    }

    #[test]
    fn replies_files_and_reactions_are_what_they_are() {
        let reply =
            taken(json!({"type": "text", "text": {"body": "yes"}, "context": {"id": "wamid.0"}}));
        assert_eq!(reply.reply_to_message_id, "wamid.0");

        let file = taken(json!({"type": "document", "document": {
            "id": "77", "filename": "a.csv", "mime_type": "text/csv", "caption": "look"}}));
        let attached = &file.attachments[0];
        assert_eq!((file.text.as_str(), attached.reference.as_str()), ("look", "77"));
        assert_eq!((attached.name.as_str(), attached.media_type.as_str()), ("a.csv", "text/csv"));

        let reaction = taken(
            json!({"type": "reaction", "reaction": {"message_id": "wamid.0", "emoji": "👍"}}),
        );
        assert!(reaction.silent && reaction.text.contains('👍'));
        assert_eq!(reaction.reply_to_message_id, "wamid.0");
    }

    #[test]
    fn a_button_says_what_could_be_written() {
        let id = ApprovalId::generate();
        let press = |data: String| {
            taken(json!({"type": "interactive", "interactive": {"type": "button_reply",
                "button_reply": {"id": data, "title": "Deny"}}}))
        };

        assert_eq!(press(format!("d:{id}")).text, format!("/deny {id}"));
        assert_eq!(press("x".into()).text, "Deny");
    }

    #[test]
    fn a_stranger_is_refused_and_what_is_none_ignored() {
        let stranger = Message { from: "1".into(), ..message(json!({"type": "text"})) };

        assert!(
            matches!(judge(&stranger, "", &settings()), Verdict::Refuse { sender, .. } if sender == "1")
        );
        let unsupported = message(json!({"type": "unsupported"}));
        assert_eq!(judge(&unsupported, "", &settings()), Verdict::Ignore("kind"));
        let empty = message(json!({"type": "text"}));
        assert_eq!(judge(&empty, "", &settings()), Verdict::Ignore("content"));
    }

    const MESSAGES: [&str; 2] = [
        r#"{"from": "49170", "id": "w", "timestamp": "1", "type": "text", "text": {"body": "hi"}, "context": {"id": "x"}}"#,
        r#"{"from": "49170", "id": "w", "type": "image", "image": {"id": "7", "mime_type": "image/png"}}"#,
    ];

    proptest! {
        #[test]
        fn any_message_is_judged(text in mutated_json(&MESSAGES)) {
            if let Ok(message) = serde_json::from_str::<Message>(&text) {
                judge(&message, "", &settings());
            }
        }
    }
}
