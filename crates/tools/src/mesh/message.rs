//! The `message` tool: sends a message or acts on a channel at once.
//!
//! The tool only enqueues deliveries under the call's key, so a repeated call after a crash sends
//! nothing twice: it writes, and does not act.

use std::sync::Arc;

use holdfast_types::{ChannelAction, Effect};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;

use crate::{Call, Mesh, MessageTarget, Outgoing, SendOutcome, Tool, ToolError};

/// Maximum length of a text, in bytes.
const MAX_TEXT_LEN: usize = 32 * 1024;

/// Maximum number of files per message.
const MAX_FILES_PER_MESSAGE: usize = 10;

/// Number of a poll's options, and maximum lengths of an option and of the question, in characters:
/// the limits of Telegram, which others permit too (<https://core.telegram.org/bots/api#sendpoll>).
const POLL_OPTION_COUNT: std::ops::RangeInclusive<usize> = 2..=10;
const MAX_POLL_OPTION_CHARS: usize = 100;
const MAX_POLL_QUESTION_CHARS: usize = 300;

/// Maximum length of a topic's name, in characters.
const MAX_TOPIC_NAME_CHARS: usize = 128;

/// Maximum size of an embed, in bytes of JSON.
const MAX_EMBED_BYTES: usize = 16 * 1024;

/// Send a message on a channel, besides your answer: to someone else, or before you are done; or
/// react, poll, pin and so on.
///
/// Your answer itself is sent by itself; do not send it with this. Without a target it goes to the
/// conversation that you are in.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct MessageInput {
    /// What to do; not every channel can all.
    #[serde(default)]
    action: Action,
    /// What to say; a poll's question; a file's caption.
    #[serde(default, alias = "content")]
    text: String,
    /// Where, if not here.
    #[serde(default)]
    target: Option<TargetInput>,
    /// The message to react to, pin, unpin (else the one you answer) or delete (else your last).
    #[serde(default)]
    message_id: Option<String>,
    /// What to react with; empty takes it back.
    #[serde(default)]
    emoji: Option<String>,
    /// Paths of your files to send.
    #[serde(default)]
    attachments: Vec<String>,
    /// The message that it answers.
    #[serde(default)]
    reply_to: Option<String>,
    /// The new topic's name.
    #[serde(default)]
    thread_name: Option<String>,
    /// 2 to 10 answers to a poll.
    #[serde(default)]
    poll_options: Vec<String>,
    /// What else the channel shows, in its own words.
    #[serde(default)]
    #[schemars(skip)]
    embed: Option<Value>,
    /// The target's kind of channel, as other assistants name it.
    #[serde(default)]
    #[schemars(skip)]
    channel_type: Option<String>,
    /// The target's conversation, as other assistants name it.
    #[serde(default)]
    #[schemars(skip)]
    channel: Option<String>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
enum Action {
    #[default]
    Send,
    Media,
    React,
    Delete,
    Pin,
    Unpin,
    Poll,
    Thread,
    Event,
}

/// A conversation on a channel.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(inline)]
pub struct TargetInput {
    /// The kind of channel, as in `telegram`.
    channel: String,
    /// The conversation's id on that channel.
    chat: String,
    /// The topic or thread in it.
    #[serde(default)]
    thread: Option<String>,
}

#[derive(Debug)]
pub struct Message<M>(pub Arc<M>);

impl<M: Mesh> Tool for Message<M> {
    const NAME: &'static str = "message";
    const EFFECT: Effect = Effect::Writes;
    type Input = MessageInput;

    async fn call(&self, call: Call, input: MessageInput) -> Result<String, ToolError> {
        let action = input.action;
        let outgoing = parse_message(input).map_err(ToolError::Tell)?;
        let tell = |text: &str| Err(ToolError::Tell(text.to_owned()));
        match self.0.send(&call, outgoing).await? {
            SendOutcome::Queued => Ok(match action {
                Action::Send | Action::Media => "The message is on its way.".to_owned(),
                _ => "It is on its way.".to_owned(),
            }),
            SendOutcome::NoChannel => tell(
                "this conversation is held on no channel: give a `target`, or say it in your answer",
            ),
            SendOutcome::Refused(reason) => tell(&format!("it may not be sent: {reason}")),
        }
    }
}

/// Returns the target of a text that this call sends: `Some(None)` for the conversation of the
/// call, `None` if the call sends no text (a reaction, a pin) or its input is invalid.
///
/// The end of a turn uses this, so that a text is not sent twice (spec C-34).
#[must_use]
pub fn sent_text_target(input: &str) -> Option<Option<MessageTarget>> {
    let input: MessageInput = serde_json::from_str(input).ok()?;
    let says = match input.action {
        Action::Send | Action::Media | Action::Poll | Action::Event => true,
        Action::React | Action::Delete | Action::Pin | Action::Unpin | Action::Thread => false,
    };
    says.then(|| parse_target(&input).ok()).flatten()
}

/// Converts the input to a message, or explains why it is invalid.
fn parse_message(input: MessageInput) -> Result<Outgoing, String> {
    check(&input)?;
    let to = parse_target(&input)?;
    let MessageInput { action, text, message_id, emoji, attachments, .. } = input;
    let named = || message_id.clone().unwrap_or_default();
    let act = match action {
        Action::Send | Action::Media => input.embed.map(|embed| ChannelAction::Embed { embed }),
        Action::React => {
            Some(ChannelAction::React { message: named(), emoji: emoji.unwrap_or_default() })
        }
        Action::Delete => Some(ChannelAction::Delete { message: message_id.clone() }),
        Action::Pin => Some(ChannelAction::Pin { message: named() }),
        Action::Unpin => Some(ChannelAction::Unpin { message: named() }),
        Action::Poll => Some(ChannelAction::Poll { options: input.poll_options }),
        Action::Thread => {
            Some(ChannelAction::Thread { name: input.thread_name.unwrap_or_default() })
        }
        Action::Event => Some(ChannelAction::Event),
    };
    Ok(Outgoing { text, act, attachments, reply_to: input.reply_to, to })
}

fn parse_target(input: &MessageInput) -> Result<Option<MessageTarget>, String> {
    match (&input.target, &input.channel_type, &input.channel) {
        (Some(target), _, _) => Ok(Some(MessageTarget {
            channel: target.channel.clone(),
            chat: target.chat.clone(),
            thread: target.thread.clone(),
        })),
        (None, Some(channel), Some(chat)) => {
            Ok(Some(MessageTarget { channel: channel.clone(), chat: chat.clone(), thread: None }))
        }
        (None, None, None) => Ok(None),
        (None, _, _) => Err("say where with `target`: its `channel` and `chat`".to_owned()),
    }
}

/// Checks that an action has the arguments that it needs, and no others.
fn check(input: &MessageInput) -> Result<(), String> {
    let told = |text: &str| Err(text.to_owned());
    let length = |text: &str| text.chars().count();
    if input.text.len() > MAX_TEXT_LEN {
        let got = input.text.len();
        return Err(format!("`text` is {got} bytes, and {MAX_TEXT_LEN} are the most"));
    }
    if input.attachments.len() > MAX_FILES_PER_MESSAGE {
        let got = input.attachments.len();
        return Err(format!(
            "`attachments` names {got} files, and {MAX_FILES_PER_MESSAGE} are the most"
        ));
    }
    let silent = input.text.trim().is_empty();
    match input.action {
        Action::Send if silent && input.attachments.is_empty() && input.embed.is_none() => {
            return told("`text` is empty: there is nothing to send");
        }
        Action::Media if input.attachments.is_empty() => {
            return told("`media` sends files: name them in `attachments`");
        }
        Action::Event if silent => return told("`event` needs a `text` that says what happens"),
        Action::React if input.emoji.is_none() => {
            return told("`react` needs an `emoji`; an empty one takes the reaction back");
        }
        Action::React if input.emoji.as_deref().is_some_and(|emoji| emoji.len() > 64) => {
            return told("`emoji` is one emoji, as in 👍");
        }
        Action::Poll if silent || length(&input.text) > MAX_POLL_QUESTION_CHARS => {
            return Err(format!(
                "a poll's question is its `text`: 1 to {MAX_POLL_QUESTION_CHARS} characters"
            ));
        }
        Action::Poll if !POLL_OPTION_COUNT.contains(&input.poll_options.len()) => {
            let got = input.poll_options.len();
            return Err(format!("`poll_options` are 2 to 10, and these are {got}"));
        }
        Action::Poll => {
            let wrong =
                |option: &&String| !(1..=MAX_POLL_OPTION_CHARS).contains(&length(option.trim()));
            if input.poll_options.iter().any(|option| wrong(&option)) {
                return Err(format!(
                    "each of `poll_options` has 1 to {MAX_POLL_OPTION_CHARS} characters"
                ));
            }
        }
        Action::Thread => {
            let name = input.thread_name.as_deref().unwrap_or_default();
            if name.trim().is_empty() || length(name) > MAX_TOPIC_NAME_CHARS {
                return Err(format!("`thread_name` has 1 to {MAX_TOPIC_NAME_CHARS} characters"));
            }
        }
        Action::Send | Action::Media | Action::Event | Action::React => {}
        Action::Delete | Action::Pin | Action::Unpin => {}
    }
    let says = matches!(input.action, Action::Send | Action::Media | Action::Poll | Action::Event);
    if !says && (!silent || !input.attachments.is_empty()) {
        return told("this action says nothing: send `text` and `attachments` with `send`");
    }
    if matches!(input.action, Action::Poll | Action::Event) && !input.attachments.is_empty() {
        return told("send `attachments` with `send` or `media`");
    }
    match &input.embed {
        Some(embed) if embed.to_string().len() > MAX_EMBED_BYTES => {
            Err(format!("`embed` has more than {MAX_EMBED_BYTES} bytes"))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        Registry,
        mesh::tests::{Fake, said, tell, world},
    };

    fn text(text: &str) -> Outgoing {
        Outgoing { text: text.into(), act: None, attachments: Vec::new(), reply_to: None, to: None }
    }

    fn sent(mesh: &Fake) -> Vec<Outgoing> {
        mesh.sent.lock().unwrap().values().cloned().collect()
    }

    #[tokio::test]
    async fn a_call_made_again_sends_nothing_twice() {
        let (call, mesh, tools) = world();

        for _ in 0..2 {
            let answer = tools.call(call.clone(), "message", r#"{"text":"soon"}"#).await;
            assert_eq!(said(answer), "The message is on its way.");
        }

        assert_eq!(sent(&mesh), [text("soon")]);
    }

    #[tokio::test]
    async fn a_target_is_passed_on() {
        let to = MessageTarget { channel: "telegram".into(), chat: "7".into(), thread: None };
        for input in [
            r#"{"text":"hi","target":{"channel":"telegram","chat":"7"}}"#,
            r#"{"content":"hi","channel_type":"telegram","channel":"7"}"#,
        ] {
            let (call, mesh, tools) = world();

            tools.call(call, "message", input).await.unwrap();

            assert_eq!(sent(&mesh), [Outgoing { to: Some(to.clone()), ..text("hi") }], "{input}");
        }
    }

    #[tokio::test]
    async fn each_action_is_what_it_says() {
        let act = |act| Outgoing { act: Some(act), ..text("") };
        for (input, meant) in [
            (
                r#"{"action":"react","emoji":"👍","message_id":"3"}"#,
                act(ChannelAction::React { message: "3".into(), emoji: "👍".into() }),
            ),
            (
                r#"{"action":"react","emoji":""}"#,
                act(ChannelAction::React { message: String::new(), emoji: String::new() }),
            ),
            (r#"{"action":"delete"}"#, act(ChannelAction::Delete { message: None })),
            (
                r#"{"action":"pin","message_id":"3"}"#,
                act(ChannelAction::Pin { message: "3".into() }),
            ),
            (r#"{"action":"unpin"}"#, act(ChannelAction::Unpin { message: String::new() })),
            (
                r#"{"action":"poll","text":"tea?","poll_options":["yes","no"]}"#,
                Outgoing {
                    act: Some(ChannelAction::Poll { options: vec!["yes".into(), "no".into()] }),
                    ..text("tea?")
                },
            ),
            (
                r#"{"action":"thread","thread_name":"tea"}"#,
                act(ChannelAction::Thread { name: "tea".into() }),
            ),
            (
                r#"{"action":"event","text":"tea at 4"}"#,
                Outgoing { act: Some(ChannelAction::Event), ..text("tea at 4") },
            ),
            (
                r#"{"action":"media","attachments":["a.png"],"text":"tea","reply_to":"3"}"#,
                Outgoing {
                    attachments: vec!["a.png".into()],
                    reply_to: Some("3".into()),
                    ..text("tea")
                },
            ),
            (
                r#"{"embed":{"title":"tea"}}"#,
                act(ChannelAction::Embed { embed: serde_json::json!({"title": "tea"}) }),
            ),
        ] {
            let (call, mesh, tools) = world();

            tools.call(call, "message", input).await.unwrap();

            assert_eq!(sent(&mesh), [meant], "{input}");
        }
    }

    #[tokio::test]
    async fn a_session_on_no_channel_cannot_send_without_a_target() {
        let (call, _, _) = world();
        let mesh = Fake { channel: None, ..Fake::new(call.tenant) };
        let tools = Registry::of_mesh(Arc::new(mesh));

        let answer = tools.call(call, "message", r#"{"text":"soon"}"#).await;

        assert!(tell(answer).starts_with("this conversation is held on no channel"));
    }

    #[tokio::test]
    async fn what_may_not_be_sent_is_refused_with_the_reason() {
        let (call, mesh, tools) = world();
        let many = format!(r#"{{"attachments":[{}"a"]}}"#, r#""a","#.repeat(10));
        let long = format!(r#"{{"text":"{}"}}"#, "x".repeat(40_000));
        for (input, told) in [
            (
                r#"{"text":"x","target":{"channel":"irc","chat":"7"}}"#,
                "it may not be sent: there is no such channel here",
            ),
            (r#"{"text":" "}"#, "`text` is empty: there is nothing to send"),
            (long.as_str(), "`text` is 40000 bytes, and 32768 are the most"),
            (many.as_str(), "`attachments` names 11 files, and 10 are the most"),
            (r#"{"action":"media"}"#, "`media` sends files: name them in `attachments`"),
            (r#"{"action":"event"}"#, "`event` needs a `text` that says what happens"),
            (
                r#"{"action":"react"}"#,
                "`react` needs an `emoji`; an empty one takes the reaction back",
            ),
            (
                r#"{"action":"poll","poll_options":["a","b"]}"#,
                "a poll's question is its `text`: 1 to 300 characters",
            ),
            (
                r#"{"action":"poll","text":"?","poll_options":["a"]}"#,
                "`poll_options` are 2 to 10, and these are 1",
            ),
            (
                r#"{"action":"poll","text":"?","poll_options":["a"," "]}"#,
                "each of `poll_options` has 1 to 100 characters",
            ),
            (r#"{"action":"thread"}"#, "`thread_name` has 1 to 128 characters"),
            (
                r#"{"action":"pin","text":"x"}"#,
                "this action says nothing: send `text` and `attachments` with `send`",
            ),
            (r#"{"text":"x","channel":"7"}"#, "say where with `target`: its `channel` and `chat`"),
        ] {
            assert_eq!(tell(tools.call(call.clone(), "message", input).await), told, "{input}");
        }
        assert!(sent(&mesh).is_empty());
    }

    #[test]
    fn what_says_something_is_told_from_what_does_not() {
        let there = MessageTarget { channel: "telegram".into(), chat: "7".into(), thread: None };
        for (input, said) in [
            (r#"{"text":"soon"}"#, Some(None)),
            (r#"{"action":"poll","text":"?","poll_options":["a","b"]}"#, Some(None)),
            (r#"{"text":"x","target":{"channel":"telegram","chat":"7"}}"#, Some(Some(there))),
            (r#"{"action":"react","emoji":"👍"}"#, None),
            (r#"{"action":"delete"}"#, None),
            ("nonsense", None),
        ] {
            assert_eq!(sent_text_target(input), said, "{input}");
        }
    }
}
