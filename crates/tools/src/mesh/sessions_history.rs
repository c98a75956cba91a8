//! The `sessions_history` tool: messages of a conversation.

use std::{fmt::Write as _, sync::Arc};

use holdfast_types::Effect;
use schemars::JsonSchema;
use serde::Deserialize;

use super::{HistoryPage, unknown_session};
use crate::{Call, Mesh, SessionRef, Tool, ToolError};

/// Maximum length of each shown text, in characters.
const MAX_TEXT_CHARS: usize = 500;

/// Maximum number of newer messages that a call skips.
const MAX_OFFSET: u32 = 5_000;

/// Read the newest messages of a conversation, oldest first; long ones are shortened.
///
/// `sessions_list` shows which conversations there are.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SessionsHistoryInput {
    /// The conversation's key (`agent:main:main`) or its id (`ses_…`).
    #[serde(alias = "session_key")]
    session: String,
    /// How many messages to read, from 1 to 100.
    #[serde(default = "fifty")]
    #[schemars(range(min = 1, max = 100))]
    limit: u32,
    /// How many of the newest messages to leave out, 5000 at most.
    #[serde(default)]
    #[schemars(range(max = 5_000))]
    offset: u32,
}

const fn fifty() -> u32 {
    50
}

#[derive(Debug)]
pub struct SessionsHistory<M>(pub Arc<M>);

impl<M: Mesh> Tool for SessionsHistory<M> {
    const NAME: &'static str = "sessions_history";
    const EFFECT: Effect = Effect::Reads;
    type Input = SessionsHistoryInput;

    async fn call(&self, call: Call, input: SessionsHistoryInput) -> Result<String, ToolError> {
        if !(1..=100).contains(&input.limit) {
            return Err(ToolError::Tell("`limit` must be from 1 to 100".to_owned()));
        }
        if input.offset > MAX_OFFSET {
            return Err(ToolError::Tell(format!("`offset` must be from 0 to {MAX_OFFSET}")));
        }
        let named = input.session.trim();
        let page = HistoryPage { limit: input.limit, offset: input.offset };
        let Some(found) = self.0.history(&call, SessionRef::parse(named), page).await? else {
            return Err(unknown_session(named));
        };
        if found.lines.is_empty() {
            return Ok(match input.offset {
                0 => "Nothing was said there yet.".to_owned(),
                _ => "There is nothing older.".to_owned(),
            });
        }
        let mut text = String::new();
        if found.has_more {
            let next = input.offset + input.limit;
            // Writing to a `String` cannot fail.
            let _ = writeln!(text, "[has_more: older messages with `\"offset\": {next}`]");
        }
        for line in found.lines {
            // Writing to a `String` cannot fail.
            let _ = writeln!(text, "[{}] {}: {}", line.at, line.who, shortened(&line.text));
        }
        Ok(text)
    }
}

fn shortened(text: &str) -> String {
    match text.char_indices().nth(MAX_TEXT_CHARS) {
        Some((at, _)) => format!("{} …", text[..at].trim_end()),
        None => text.trim_end().to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mesh::tests::{KEY, said, tell, world};

    #[tokio::test]
    async fn a_session_is_read_by_key_and_by_id() {
        let (call, _, tools) = world();
        let by_key = format!(r#"{{"session":"{KEY}"}}"#);
        let by_id = format!(r#"{{"session":"{}"}}"#, call.session);

        let one = said(tools.call(call.clone(), "sessions_history", &by_key).await);
        let other = said(tools.call(call, "sessions_history", &by_id).await);

        assert_eq!(one, other);
        assert!(one.starts_with("[2026-12-01 14:00 UTC] Ann: hi\nthere\n"));
    }

    #[tokio::test]
    async fn long_texts_are_shortened_and_only_the_newest_are_read() {
        let (call, _, tools) = world();
        let input = format!(r#"{{"session":"{KEY}","limit":1}}"#);

        let answer = said(tools.call(call, "sessions_history", &input).await);

        assert_eq!(
            answer,
            format!(
                "[has_more: older messages with `\"offset\": 1`]\n\
                 [2026-12-01 14:00 UTC] agent: {} …\n",
                "x".repeat(MAX_TEXT_CHARS)
            )
        );
    }

    #[tokio::test]
    async fn older_messages_are_read_by_offset_to_the_first() {
        let (call, _, tools) = world();
        let ask = |input: &str| {
            let input = input.replace("KEY", KEY);
            let (tools, call) = (tools.clone(), call.clone());
            async move { tools.call(call, "sessions_history", &input).await }
        };

        let oldest = said(ask(r#"{"session_key":"KEY","limit":1,"offset":1}"#).await);
        let none = said(ask(r#"{"session_key":"KEY","offset":2}"#).await);
        let far = tell(ask(r#"{"session_key":"KEY","offset":5001}"#).await);

        assert_eq!(oldest, "[2026-12-01 14:00 UTC] Ann: hi\nthere\n");
        assert_eq!(none, "There is nothing older.");
        assert_eq!(far, "`offset` must be from 0 to 5000");
    }

    #[tokio::test]
    async fn a_session_that_is_not_there_and_too_much_of_one_are_refused() {
        let (call, _, tools) = world();
        let ask = |input| tools.call(call.clone(), "sessions_history", input);

        assert_eq!(
            tell(ask(r#"{"session":"agent:x:main"}"#).await),
            "there is no session `agent:x:main`; `sessions_list` shows those there are"
        );
        assert_eq!(
            tell(ask(r#"{"session":"agent:x:main","limit":101}"#).await),
            "`limit` must be from 1 to 100"
        );
    }
}
