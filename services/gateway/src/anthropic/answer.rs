//! The message of an answer.

use holdfast_types::{ClientCall, MessageId, Usage};
use serde_json::{Value, json};

use crate::follow::{EarlyEnd, TurnResult};

/// Fields that an answer and all its events share.
#[derive(Debug, Clone)]
pub struct MessageHead {
    pub message: MessageId,
    /// Model's name as the client wrote it.
    pub model: String,
}

impl MessageHead {
    /// The message without its content and its end.
    pub fn object(&self, content: Vec<Value>) -> Value {
        json!({
            "id": format!("msg_{}", self.message.as_uuid().simple()),
            "type": "message",
            "role": "assistant",
            "model": self.model,
            "content": content,
            "stop_reason": null,
            "stop_sequence": null,
            "usage": usage(Usage::default()),
        })
    }
}

/// The whole message of a turn that has ended with an answer.
pub fn message_of(head: &MessageHead, finished: &TurnResult) -> Value {
    let text = (!finished.text.is_empty()).then(|| text_block(&finished.text));
    let calls = finished.calls.iter().map(|call| call_block(call, arguments(call)));
    let mut message = head.object(text.into_iter().chain(calls).collect());
    message["stop_reason"] = stop_reason(finished).into();
    message["usage"] = usage(finished.usage);
    message
}

pub fn text_block(text: &str) -> Value {
    json!({ "type": "text", "text": text })
}

pub fn call_block(call: &ClientCall, input: Value) -> Value {
    json!({ "type": "tool_use", "id": call.id, "name": call.name, "input": input })
}

/// Arguments of a call. Those that the model wrote as no object are passed on in one.
pub fn arguments(call: &ClientCall) -> Value {
    match serde_json::from_str(&call.arguments) {
        Ok(arguments @ Value::Object(_)) => arguments,
        _ if call.arguments.trim().is_empty() => json!({}),
        _ => json!({ "arguments": call.arguments }),
    }
}

pub fn stop_reason(finished: &TurnResult) -> &'static str {
    match finished.early_end() {
        Some(EarlyEnd::Length) => "max_tokens",
        Some(EarlyEnd::ContentFilter) => "refusal",
        None if finished.calls.is_empty() => "end_turn",
        None => "tool_use",
    }
}

/// Tokens as Anthropic counts them: those read from the cache or written to it are not in `input_tokens`.
pub fn usage(usage: Usage) -> Value {
    let written = usage.written.saturating_add(usage.written_long);
    json!({
        "input_tokens": usage.input.saturating_sub(usage.cached).saturating_sub(written),
        "cache_creation_input_tokens": written,
        "cache_read_input_tokens": usage.cached,
        "output_tokens": usage.output,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_always_an_object() {
        for (given, arguments_shown) in [
            (r#"{"n":1}"#, json!({"n": 1})),
            ("", json!({})),
            ("[1]", json!({"arguments": "[1]"})),
            ("{", json!({"arguments": "{"})),
        ] {
            let call = ClientCall {
                id: "a".into(),
                call: "c".into(),
                name: "look".into(),
                arguments: given.into(),
            };
            assert_eq!(arguments(&call), arguments_shown);
        }
    }
}
