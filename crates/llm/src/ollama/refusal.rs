//! Meaning of Ollama's errors, by status and by the type of the engine's error, which is JSON
//! within the error's text.

use holdfast_types::ModelId;
use reqwest::header::HeaderMap;
use serde_json::Value;

use crate::{
    Error,
    refusal::{by_status, retry_after, with_wait, word},
};

/// Engine's error type for a conversation that is too long.
const OVERFLOW: &str = "exceed_context_size_error";
/// Beginning of the text where the type is missing.
const OVERFLOW_TEXT: &str = "the prompt is longer than the context length ";

/// Classifies a response with an error status.
pub(super) fn of_answer(status: u16, headers: &HeaderMap, body: &[u8], model: &ModelId) -> Error {
    let body: Value = serde_json::from_slice(body).unwrap_or_default();
    let error = if is_overflow(&body["error"]) {
        Error::ContextOverflow
    } else {
        by_status(status, None, model)
    };
    with_wait(error, retry_after(headers))
}

/// Classifies an error within a stream.
pub(super) fn mid_stream(error: &Value) -> Error {
    if is_overflow(error) {
        Error::ContextOverflow
    } else {
        Error::Unavailable { status: None, source: None }
    }
}

fn is_overflow(error: &Value) -> bool {
    let text = error.as_str().unwrap_or_default();
    let within: Value = serde_json::from_str(text).unwrap_or_default();
    word(&within["error"]["type"]) == Some(OVERFLOW)
        || word(&error["type"]) == Some(OVERFLOW)
        || text.starts_with(OVERFLOW_TEXT)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn status_and_the_engines_type_say_who_can_do_something() {
        let engine = json!({ "error": { "code": 400, "message": "request (8889 tokens) exceeds …", "type": OVERFLOW } });
        for (status, body, class) in [
            (400, json!({ "error": engine.to_string() }), "context_overflow"),
            (
                400,
                json!({ "error": "the prompt is longer than the context length currently available to the model; …" }),
                "context_overflow",
            ),
            (400, json!({ "error": "\"llama2\" does not support tools" }), "bad_request"),
            (400, json!({ "error": "exceed_context_size_error" }), "bad_request"),
            (401, json!({ "error": "unauthorized" }), "auth"),
            (404, json!({ "error": "model 'x' not found" }), "no_model"),
            (429, json!({ "error": "too many" }), "rate_limited"),
            (500, json!({ "error": "out of memory" }), "unavailable"),
            (503, json!(null), "unavailable"),
        ] {
            let model = "ollama:qwen3:4b".parse().unwrap();
            let text = body.to_string();
            let error = of_answer(status, &HeaderMap::new(), text.as_bytes(), &model);
            assert_eq!(error.class(), class, "{status} {body}");
        }
    }
}
