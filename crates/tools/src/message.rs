//! The `message` tool: say something on a channel, now.
//!
//! It only enqueues a delivery under the call's key, so a call that is made
//! again after a crash sends nothing twice: it writes, and does not act.

use std::sync::Arc;

use holdfast_types::Effect;
use schemars::JsonSchema;
use serde::Deserialize;

use crate::{Call, Mesh, Outgoing, SendOutcome, To, Tool, ToolError};

/// The longest text that is sent at once, in bytes.
const MOST_TEXT: usize = 32 * 1024;

/// Send a message on a channel, besides your answer: to someone else, or before you are done.
///
/// Your answer itself is sent by itself; do not send it with this. Without a target the message
/// goes to the conversation that you are in.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct MessageInput {
    /// What to say.
    text: String,
    /// Where to say it, if not here.
    #[serde(default)]
    target: Option<TargetInput>,
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

/// Sends a message on a channel.
#[derive(Debug)]
pub struct Message<M>(pub Arc<M>);

impl<M: Mesh> Tool for Message<M> {
    const NAME: &'static str = "message";
    const EFFECT: Effect = Effect::Writes;
    type Input = MessageInput;

    async fn call(&self, call: Call, input: MessageInput) -> Result<String, ToolError> {
        let tell = |text: &str| Err(ToolError::Tell(text.to_owned()));
        if input.text.trim().is_empty() {
            return tell("`text` is empty: there is nothing to send");
        }
        if input.text.len() > MOST_TEXT {
            let got = input.text.len();
            return tell(&format!("`text` is {got} bytes, and {MOST_TEXT} are the most"));
        }
        let to = input.target.map(|target| To {
            channel: target.channel,
            chat: target.chat,
            thread: target.thread,
        });
        match self.0.send(&call, Outgoing { text: input.text, to }).await? {
            SendOutcome::Queued => Ok("The message is on its way.".to_owned()),
            SendOutcome::NoChannel => tell(
                "this conversation is held on no channel: give a `target`, or say it in your answer",
            ),
            SendOutcome::Refused(reason) => tell(&format!("it may not be sent: {reason}")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        Registry,
        mesh::tests::{Fake, said, tell, world},
    };

    #[tokio::test]
    async fn a_call_made_again_sends_nothing_twice() {
        let (call, mesh, tools) = world();

        for _ in 0..2 {
            let answer = tools.call(call.clone(), "message", r#"{"text":"soon"}"#).await;
            assert_eq!(said(answer), "The message is on its way.");
        }

        let sent: Vec<Outgoing> = mesh.sent.lock().unwrap().values().cloned().collect();
        assert_eq!(sent, [Outgoing { text: "soon".into(), to: None }]);
    }

    #[tokio::test]
    async fn a_target_is_passed_on() {
        let (call, mesh, tools) = world();
        let input = r#"{"text":"hi","target":{"channel":"telegram","chat":"7"}}"#;

        tools.call(call, "message", input).await.unwrap();

        let to = To { channel: "telegram".into(), chat: "7".into(), thread: None };
        let sent: Vec<Outgoing> = mesh.sent.lock().unwrap().values().cloned().collect();
        assert_eq!(sent, [Outgoing { text: "hi".into(), to: Some(to) }]);
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
        let ask = |input: String| {
            let (tools, call) = (&tools, call.clone());
            async move { tell(tools.call(call, "message", &input).await) }
        };

        let elsewhere = r#"{"text":"x","target":{"channel":"irc","chat":"7"}}"#;
        assert_eq!(
            ask(elsewhere.into()).await,
            "it may not be sent: there is no such channel here"
        );
        assert_eq!(
            ask(r#"{"text":" "}"#.into()).await,
            "`text` is empty: there is nothing to send"
        );
        let long = format!(r#"{{"text":"{}"}}"#, "x".repeat(40_000));
        assert_eq!(ask(long).await, "`text` is 40000 bytes, and 32768 are the most");
        assert!(mesh.sent.lock().unwrap().is_empty());
    }
}
