//! Rules of the fake model that other processes set over HTTP.
//!
//! `POST /script` adds a rule, `DELETE /script` forgets all. A rule applies to requests whose last
//! user text contains its `when`; the newest one counts. Its first reply answers the user, the next
//! one the results of the first one's calls, and so on; the last one is repeated. So a request that
//! is made again, since a runner was killed, has the same answer.
//!
//! ```json
//! {"when": "weather", "replies": [
//!     {"text": "Let me look.", "calls": [{"tool": "fetch", "input": {"url": "http://127.0.0.1/"}}]},
//!     {"text": "It rains.", "pieces": 100, "pace_ms": 50}]}
//! ```

use std::time::Duration;

use serde::Deserialize;
use serde_json::Value;

use super::Reply;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Rule {
    /// Empty applies to every request.
    when: String,
    replies: Vec<ScriptedReply>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct ScriptedReply {
    text: String,
    calls: Vec<ScriptedCall>,
    /// Answers with this HTTP status instead.
    status: Option<u16>,
    /// Answers nothing for so long instead, then 504.
    hang_ms: Option<u64>,
    /// The connection is cut after the text.
    cut: bool,
    /// Time before the answer begins.
    latency_ms: u64,
    /// Time before each further piece of the text; absent is the model's.
    pace_ms: Option<u64>,
    /// Greatest number of pieces that the text is streamed in.
    pieces: usize,
}

impl Default for ScriptedReply {
    fn default() -> Self {
        Self {
            text: String::new(),
            calls: Vec::new(),
            status: None,
            hang_ms: None,
            cut: false,
            latency_ms: 0,
            pace_ms: None,
            pieces: super::wire::MAX_TEXT_CHUNKS,
        }
    }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ScriptedCall {
    tool: String,
    input: Value,
}

impl Rule {
    /// Returns the reply to a request with this last user text, after so many replies since then.
    pub(super) fn reply(&self, user_text: &str, replies: usize) -> Option<Reply> {
        if !user_text.contains(&self.when) {
            return None;
        }
        let scripted = self.replies.get(replies).or_else(|| self.replies.last())?;
        Some(scripted.reply(replies))
    }
}

impl ScriptedReply {
    fn reply(&self, round: usize) -> Reply {
        let calls = self.calls.iter().zip(0..).map(|(call, number): (_, usize)| {
            (format!("call_{round}_{number}"), call.tool.clone(), call.input.to_string())
        });
        let reply = match (self.status, self.hang_ms) {
            (Some(status), _) => Reply::status(status),
            (None, Some(time)) => Reply::hang(Duration::from_millis(time)),
            (None, None) if self.cut => Reply::cut_mid_stream(&self.text),
            (None, None) => Reply::calls(calls).saying(&self.text),
        };
        let reply = reply.pieces(self.pieces).latency(Duration::from_millis(self.latency_ms));
        match self.pace_ms {
            Some(pace) => reply.pace(Duration::from_millis(pace)),
            None => reply,
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_rule_answers_its_messages_and_the_results_of_its_calls() {
        let rule: Rule = serde_json::from_value(json!({"when": "rain", "replies": [
            {"text": "Let me look.", "calls": [{"tool": "fetch", "input": {"url": "u"}}]},
            {"text": "It rains."}]}))
        .unwrap();

        let first = Reply::call("call_0_0", "fetch", r#"{"url":"u"}"#).saying("Let me look.");
        assert_eq!(rule.reply("will it rain?", 0), Some(first));
        assert_eq!(rule.reply("will it rain?", 1), Some(Reply::text("It rains.")));
        assert_eq!(rule.reply("will it rain?", 2), Some(Reply::text("It rains.")));
        assert_eq!(rule.reply("hello", 0), None);
    }
}
