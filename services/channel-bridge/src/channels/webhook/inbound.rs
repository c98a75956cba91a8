//! Messages that a program posts.

use holdfast_proto::gateway::v1::AcceptRequest;
use holdfast_types::Sender;
use jiff::Timestamp;
use serde::Deserialize;

use super::{
    Webhook,
    files::{self, File},
    sign::{self, SignedParts, Version},
};
use crate::channel::ChannelAccount as _;

/// Maximum length of the name of a sender, a conversation or a message, in bytes.
const MAX_NAME_LEN: usize = 200;

/// Maximum length of an idempotency key, in bytes.
const MAX_KEY_LEN: usize = 200;

#[derive(Debug, Clone, Copy)]
pub struct SignedRequest<'a> {
    /// Value of the header [`TIMESTAMP`](sign::TIMESTAMP).
    pub timestamp: &'a str,
    /// Value of the header [`SIGNATURE`](sign::SIGNATURE).
    pub signature: &'a str,
    /// Header `idempotency-key`; empty if it is missing.
    pub key: &'a str,
    pub body: &'a [u8],
}

/// Reason why a request is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RequestError {
    /// The signature is missing or wrong. The caller learns nothing more.
    #[error("not authenticated")]
    Signature,
    /// The key is not signed, so others who saw the request could have changed it.
    #[error(
        "`v1` does not sign `idempotency-key`: sign with `v2`, \
         or leave the header out and give a `message_id`"
    )]
    KeyNotSigned,
    /// The body breaks the documented format.
    #[error("{0}")]
    Malformed(String),
    #[error("sender `{0}` is not in the account's `allow` list")]
    NotAllowed(String),
}

/// Body of a request; docs/channels.md describes it.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Body {
    sender: String,
    #[serde(default)]
    sender_name: String,
    #[serde(default)]
    conversation: String,
    #[serde(default)]
    thread: String,
    #[serde(default)]
    group: bool,
    /// Whether a message in a group is for the agent. One that is not is kept without an answer.
    #[serde(default = "yes")]
    mentioned: bool,
    #[serde(default)]
    text: String,
    #[serde(default)]
    message_id: String,
    /// Somebody other than the sender wrote the text.
    #[serde(default)]
    forwarded: bool,
    #[serde(default)]
    sent_at: Option<Timestamp>,
    #[serde(default)]
    attachments: Vec<File>,
}

const fn yes() -> bool {
    true
}

impl Webhook {
    /// Whether a request may be from the program, by its headers `signature` and `timestamp`. If not,
    /// its body need not be read.
    #[must_use]
    pub fn is_plausible(&self, signature: &str, timestamp: &str, now: u64) -> bool {
        sign::is_plausible(signature, timestamp, (now, self.settings.tolerance()))
    }

    /// Verifies the signature, then parses and checks the message.
    ///
    /// # Errors
    ///
    /// If the message must not be accepted.
    pub fn read(&self, post: SignedRequest<'_>, now: u64) -> Result<AcceptRequest, RequestError> {
        let signed = SignedParts { timestamp: post.timestamp, key: post.key, body: post.body };
        let within = (now, self.settings.tolerance());
        match sign::verify(&self.secrets.secret, post.signature, signed, within) {
            None => return Err(RequestError::Signature),
            Some(Version::V1) if !post.key.is_empty() => return Err(RequestError::KeyNotSigned),
            Some(Version::V1 | Version::V2) => {}
        }
        let body: Body = serde_json::from_slice(post.body).map_err(|error| {
            RequestError::Malformed(format!("the body is not understood: {error}"))
        })?;
        // Without the header, the message's own id is the key: the body is signed, too.
        let key = if post.key.is_empty() { body.message_id.as_str() } else { post.key };
        check("idempotency-key", key, MAX_KEY_LEN)?;
        check("sender", &body.sender, MAX_NAME_LEN)?;
        for (what, text) in [
            ("sender_name", &body.sender_name),
            ("conversation", &body.conversation),
            ("thread", &body.thread),
            ("message_id", &body.message_id),
        ] {
            if !text.is_empty() {
                check(what, text, MAX_NAME_LEN)?;
            }
        }
        let attachments = files::read(body.attachments)?;
        if body.text.trim().is_empty() && attachments.is_empty() {
            return Err(RequestError::Malformed(
                "`text` is empty: there is nothing to answer".to_owned(),
            ));
        }
        if body.group && body.conversation.is_empty() {
            return Err(RequestError::Malformed(
                "a group needs a `conversation`: give its id".to_owned(),
            ));
        }
        let sender = Sender { id: body.sender, name: body.sender_name };
        if !self.is_allowed(&sender) {
            return Err(RequestError::NotAllowed(sender.id));
        }
        let conversation =
            if body.conversation.is_empty() { sender.id.clone() } else { body.conversation };
        Ok(AcceptRequest {
            account_id: self.account.id.to_string(),
            channel: self.account.channel.to_owned(),
            account: self.account.name.clone(),
            idempotency_key: key.to_owned(),
            has_text_of_others: body.forwarded,
            silent: body.group && !body.mentioned,
            peer_kind: if body.group { "group" } else { "direct" }.to_owned(),
            peer_id: conversation.clone(),
            thread: body.thread.clone(),
            sender_id: sender.id,
            sender_name: sender.name,
            text: body.text,
            reply_to: body.message_id.clone(),
            platform_message_id: body.message_id,
            reply_chat: conversation,
            reply_thread: body.thread,
            attachments,
            sent_at: body.sent_at.map(|at| prost_types::Timestamp {
                seconds: at.as_second(),
                nanos: at.subsec_nanosecond(),
            }),
            ..AcceptRequest::default()
        })
    }
}

fn check(what: &str, text: &str, longest: usize) -> Result<(), RequestError> {
    let is_plain = !text.is_empty() && text.len() <= longest && !text.chars().any(char::is_control);
    is_plain.then_some(()).ok_or_else(|| {
        RequestError::Malformed(format!(
            "`{what}` has {} bytes: 1 to {longest} are allowed, without control characters",
            text.len()
        ))
    })
}

#[cfg(test)]
mod tests {
    use holdfast_testkit::inputs::mutated_json;
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;
    use crate::{account::ServedAccount, channel::StoredSettings, guard::Clients};

    const NOW: u64 = 1_800_000_000;
    const SECRET: &str = "0123456789abcdef";

    fn webhook(settings: Value) -> Webhook {
        let clients = Clients::new(&holdfast_egress::Config::default()).unwrap();
        let stored = StoredSettings { settings: &settings, secrets: &json!({"secret": SECRET}) };
        Webhook::new(ServedAccount::for_tests("webhook"), stored, &clients).unwrap()
    }

    #[test]
    fn files_come_along_in_base64_and_what_is_wrong_with_them_is_said() {
        let with = |attachments: Value| {
            read_with("k", json!({"sender": "anna", "attachments": attachments}))
        };

        let taken = with(json!([{"name": "a.csv", "media_type": "text/csv", "content": "MSwy"}]));
        let taken = taken.unwrap();
        assert_eq!(
            (taken.text.as_str(), taken.attachments[0].content.as_slice()),
            ("", &b"1,2"[..])
        );
        assert_eq!(taken.attachments[0].media_type, "text/csv");

        let large = "AAAA".repeat(3 << 20);
        for (attachments, why) in [
            (json!([]), "`text` is empty"),
            (json!([{"content": "####"}]), "`attachments[0].content` is not base64"),
            (json!([{"content": ""}]), "`attachments[0].content` is empty"),
            (json!([{"content": large}]), "8388608 bytes together"),
            (json!(vec![json!({"content": "MSwy"}); 9]), "9 attachments, and 8"),
            (json!([{"content": "MSwy", "name": "a\nb"}]), "`attachments[0].name`"),
            (json!([{"content": "MSwy", "path": "/etc"}]), "not understood"),
        ] {
            let Err(RequestError::Malformed(told)) = with(attachments) else { panic!("{why}") };
            assert!(told.contains(why), "{told}");
        }
    }

    fn read_with(key: &str, body: Value) -> Result<AcceptRequest, RequestError> {
        read_signed(Version::V2, (key, key), body)
    }

    /// Reads a message that was signed with one key and sent with another.
    fn read_signed(
        version: Version,
        (signed, came): (&str, &str),
        body: Value,
    ) -> Result<AcceptRequest, RequestError> {
        let (timestamp, body) = (NOW.to_string(), body.to_string());
        let signed = SignedParts { timestamp: &timestamp, key: signed, body: body.as_bytes() };
        let post = SignedRequest {
            timestamp: &timestamp,
            signature: &sign::sign(&SECRET.into(), version, signed),
            key: came,
            body: body.as_bytes(),
        };
        webhook(json!({"allow": ["anna"]})).read(post, NOW)
    }

    #[test]
    fn a_message_is_read() {
        let request = read_with("k1", json!({"sender": "anna", "text": "hi"})).unwrap();

        assert_eq!(request.idempotency_key, "k1");
        assert_eq!((request.peer_kind.as_str(), request.peer_id.as_str()), ("direct", "anna"));
        assert_eq!((request.reply_chat.as_str(), request.channel.as_str()), ("anna", "webhook"));
    }

    #[test]
    fn a_group_and_its_thread_are_where_the_answer_goes() {
        let request = read_with(
            "k1",
            json!({"sender": "anna", "sender_name": "Anna", "text": "hi",
            "conversation": "room", "thread": "t", "group": true, "message_id": "m1",
            "sent_at": "2026-09-21T14:13:20Z"}),
        )
        .unwrap();

        assert_eq!((request.peer_kind.as_str(), request.peer_id.as_str()), ("group", "room"));
        assert_eq!((request.reply_chat.as_str(), request.reply_thread.as_str()), ("room", "t"));
        assert_eq!((request.reply_to.as_str(), request.sender_name.as_str()), ("m1", "Anna"));
        assert_eq!(request.sent_at.map(|at| at.seconds), Some(1_790_000_000));
    }

    #[test]
    fn without_a_key_the_messages_own_id_is_it() {
        let body = json!({"sender": "anna", "text": "hi", "message_id": "m1"});

        assert_eq!(read_with("", body).unwrap().idempotency_key, "m1");
        assert!(matches!(
            read_with("", json!({"sender": "anna", "text": "hi"})),
            Err(RequestError::Malformed(_))
        ));
    }

    #[test]
    fn a_key_counts_only_if_it_is_signed() {
        let body = || json!({"sender": "anna", "text": "hi", "message_id": "m1"});
        let key = |version, signed, came| {
            read_signed(version, (signed, came), body()).map(|request| request.idempotency_key)
        };

        assert_eq!(key(Version::V2, "k1", "k1"), Ok("k1".to_owned()));
        assert_eq!(key(Version::V2, "", ""), Ok("m1".to_owned()));
        for (signed, came) in [("k1", "k2"), ("k1", ""), ("", "k1")] {
            assert_eq!(
                key(Version::V2, signed, came),
                Err(RequestError::Signature),
                "{signed} {came}"
            );
        }
        assert_eq!(key(Version::V1, "", ""), Ok("m1".to_owned()));
        assert_eq!(key(Version::V1, "k1", "k1"), Err(RequestError::KeyNotSigned));
    }

    #[test]
    fn what_was_not_agreed_is_refused() {
        for body in [
            json!({"sender": "anna", "text": "hi", "tenant": "x"}),
            json!({"sender": "anna"}),
            json!({"sender": "", "text": "hi"}),
            json!({"sender": "anna", "text": " "}),
            json!({"sender": "an\u{0}na", "text": "hi"}),
            json!({"sender": "anna", "text": "hi", "group": true}),
            json!({"sender": "anna", "text": "hi", "conversation": "x".repeat(201)}),
        ] {
            assert!(
                matches!(read_with("k", body.clone()), Err(RequestError::Malformed(_))),
                "{body}"
            );
        }
        let stranger = json!({"sender": "mallory", "text": "hi"});
        assert_eq!(read_with("k", stranger), Err(RequestError::NotAllowed("mallory".into())));
    }

    #[test]
    fn an_unsigned_body_is_not_even_parsed() {
        let post =
            SignedRequest { timestamp: &NOW.to_string(), signature: "v1=00", key: "k", body: b"{" };

        assert_eq!(webhook(json!({})).read(post, NOW), Err(RequestError::Signature));
    }

    const POSTS: [&str; 3] = [
        r#"{"sender": "anna", "sender_name": "Anna", "text": "hello", "message_id": "m1", "sent_at": "2026-01-01T00:00:00Z"}"#,
        r#"{"sender": "bob", "conversation": "c1", "thread": "t", "group": true, "text": "hi"}"#,
        r#"{"sender": "anna", "attachments": [{"name": "a.csv", "media_type": "text/csv", "content": "MSwy"}]}"#,
    ];

    proptest! {
        #[test]
        fn any_signed_body_is_read_or_refused(body in mutated_json(&POSTS)) {
            let webhook = webhook(json!({"allow": ["anna", "bob"]}));
            let timestamp = NOW.to_string();
            let signed = SignedParts { timestamp: &timestamp, key: "k", body: body.as_bytes() };
            let signature = sign::sign(&SECRET.into(), Version::V2, signed);
            let post = SignedRequest {
                timestamp: &timestamp,
                signature: &signature,
                key: "k",
                body: body.as_bytes(),
            };
            if let Ok(request) = webhook.read(post, NOW) {
                prop_assert!(!request.sender_id.is_empty() && request.idempotency_key == "k");
                prop_assert!(!request.text.trim().is_empty() || !request.attachments.is_empty());
            }
        }

        #[test]
        fn a_body_that_was_changed_is_refused(body in mutated_json(&POSTS)) {
            prop_assume!(body != POSTS[0]);
            let webhook = webhook(json!({"allow": ["anna", "bob"]}));
            let timestamp = NOW.to_string();
            let signed = SignedParts { timestamp: &timestamp, key: "k", body: POSTS[0].as_bytes() };
            let signature = sign::sign(&SECRET.into(), Version::V2, signed);
            let post = SignedRequest {
                timestamp: &timestamp,
                signature: &signature,
                key: "k",
                body: body.as_bytes(),
            };
            prop_assert!(matches!(webhook.read(post, NOW), Err(RequestError::Signature)));
        }
    }
}
