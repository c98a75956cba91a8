//! Events of a run.
//!
//! | event | when |
//! |---|---|
//! | `RUN_STARTED` | at once |
//! | `TEXT_MESSAGE_START`, `_CONTENT`, `_END` | a text: the answer, or what is said before tools |
//! | `TOOL_CALL_START`, `_ARGS`, `_END`, `_RESULT` | the agent has called a tool of its own |
//! | `TOOL_CALL_START`, `_ARGS`, `_END` | a call of the client's tools, whose result the next run has |
//! | `RUN_FINISHED` or `RUN_ERROR` | the end |

use std::collections::HashMap;

use holdfast_types::MessageId;
use serde_json::{Value, json};

use super::input::Run;
use crate::{
    api_error::ApiError,
    follow::TurnResult,
    openai::{EventBuffer, StreamFormat},
};

pub struct RunEvents {
    run: Run,
    message: MessageId,
    /// Number of texts that were begun.
    texts: usize,
    /// Id of the text that is open.
    open: Option<String>,
    /// Text after which the calls of tools stand; `None` if another call's result came since.
    parent: Option<String>,
    /// Calls of the agent's own tools that were told, and whether their end was.
    calls: HashMap<String, bool>,
}

impl RunEvents {
    pub fn new(run: Run, message: MessageId) -> Self {
        let (open, parent, calls) = (None, None, HashMap::new());
        Self { run, message, texts: 0, open, parent, calls }
    }

    fn begin_text(&mut self, out: &mut EventBuffer) -> String {
        self.texts += 1;
        let id = format!("{}-{}", self.message, self.texts);
        out.data(&json!({ "type": "TEXT_MESSAGE_START", "messageId": id, "role": "assistant" }));
        self.open = Some(id.clone());
        id
    }

    fn end_text(&mut self, out: &mut EventBuffer) {
        if let Some(id) = self.open.take() {
            out.data(&json!({ "type": "TEXT_MESSAGE_END", "messageId": id }));
            self.parent = Some(id);
        }
    }

    fn call(&mut self, call: &str, (tool, arguments): (&str, &str), out: &mut EventBuffer) {
        self.end_text(out);
        let mut start =
            json!({ "type": "TOOL_CALL_START", "toolCallId": call, "toolCallName": tool });
        if let Some(parent) = &self.parent {
            start["parentMessageId"] = parent.as_str().into();
        }
        out.data(&start);
        out.data(&json!({ "type": "TOOL_CALL_ARGS", "toolCallId": call, "delta": arguments }));
        out.data(&json!({ "type": "TOOL_CALL_END", "toolCallId": call }));
    }

    /// Event with the ids of the run.
    fn of_run(&self, kind: &str) -> Value {
        json!({ "type": kind, "threadId": self.run.thread, "runId": self.run.run })
    }
}

impl StreamFormat for RunEvents {
    fn begin(&mut self, out: &mut EventBuffer) {
        let mut event = self.of_run("RUN_STARTED");
        if self.run.is_version_1 {
            event["protocolVersion"] = "1.0".into();
        }
        out.data(&event);
    }

    fn text(&mut self, _: u32, part: bool, text: &str, out: &mut EventBuffer) {
        if part {
            self.end_text(out);
        }
        let id = match &self.open {
            Some(id) => id.clone(),
            None => self.begin_text(out),
        };
        out.data(&json!({ "type": "TEXT_MESSAGE_CONTENT", "messageId": id, "delta": text }));
    }

    // The arguments and the result of an agent's own tool stay in its conversation.
    fn tool_started(&mut self, call: &str, tool: &str, out: &mut EventBuffer) {
        // A step that is done anew tells its calls again.
        if !self.calls.contains_key(call) {
            self.calls.insert(call.to_owned(), false);
            self.call(call, (tool, "{}"), out);
        }
    }

    fn tool_ended(&mut self, call: &str, failed: bool, out: &mut EventBuffer) {
        let Some(is_ended @ false) = self.calls.get_mut(call) else { return };
        *is_ended = true;
        self.parent = None;
        out.data(&json!({
            "type": "TOOL_CALL_RESULT",
            "messageId": format!("{}-{call}", self.message),
            "toolCallId": call,
            "content": if failed { "failed" } else { "done" },
            "role": "tool",
        }));
    }

    fn end(&mut self, finished: &TurnResult, out: &mut EventBuffer) {
        self.end_text(out);
        // A call whose end the stream has missed would wait for the client.
        let calls: Vec<String> = self.calls.keys().cloned().collect();
        for call in calls {
            self.tool_ended(&call, false, out);
        }
        for call in &finished.calls {
            self.call(&call.id, (&call.name, &call.arguments), out);
        }
        let mut event = self.of_run("RUN_FINISHED");
        if self.run.is_version_1 {
            event["outcome"] = json!({ "type": "success" });
            if !finished.calls.is_empty() {
                let waiting: Vec<&str> =
                    finished.calls.iter().map(|call| call.id.as_str()).collect();
                event["outcome"]["pendingToolCallIds"] = waiting.into();
            }
            let usage = finished.usage;
            event["usage"] = json!([{
                "model": finished.model,
                "inputTokens": usage.input,
                "outputTokens": usage.output,
                "cachedInputTokens": usage.cached,
                "totalTokens": usage.input.saturating_add(usage.output),
            }]);
        }
        out.data(&event);
    }

    fn fail(&mut self, refusal: &ApiError, out: &mut EventBuffer) {
        self.end_text(out);
        let (message, code) = (refusal.message(), refusal.code_or_type());
        out.data(&json!({ "type": "RUN_ERROR", "message": message, "code": code }));
    }
}
