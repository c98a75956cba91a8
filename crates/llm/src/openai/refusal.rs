//! Meaning of a provider's errors, by status and code. Servers that have no code for a conversation that
//! is too long are understood by words in their messages, of which nothing is repeated.

use holdfast_types::ModelId;
use reqwest::header::HeaderMap;
use serde_json::Value;

use crate::{
    Error,
    refusal::{by_status, retry_after, with_wait, word},
};

/// Codes for a conversation that is too long.
const OVERFLOW: [&str; 3] =
    ["context_length_exceeded", "exceed_context_size_error", "context_window_exceeded"];
/// Words in the messages of servers that have no code for it: vLLM and DeepSeek, OpenRouter and Anthropic
/// behind it, TGI, xAI, Moonshot, Qwen, GLM, LM Studio (three of them:
/// <https://github.com/lmstudio-ai/lmstudio-bug-tracker/issues/546>,
/// <https://github.com/Gitlawb/openclaude/issues/353>), Mistral.
const OVERFLOW_WORDS: [&str; 12] = [
    "maximum context length is",
    "prompt is too long",
    "`inputs` tokens + `max_new_tokens` must be",
    "maximum prompt length is",
    "exceeded model token limit",
    "range of input length should be",
    "prompt exceeds max length",
    "when context overflows",
    "when context the overflows",
    "is greater than the context length",
    "too large for model with",
    "exceeds the available context size",
];
/// Codes for an account that is out of credit.
const QUOTA: [&str; 3] =
    ["insufficient_quota", "billing_hard_limit_reached", "insufficient_balance"];
/// Codes for a key that is wrong.
const AUTH: [&str; 2] = ["invalid_api_key", "authentication_error"];
/// Codes for too many requests.
const RATE: [&str; 3] = ["rate_limit_exceeded", "rate_limit_error", "tokens"];
/// Codes of Groq for a call or an object that the model wrote wrongly: another attempt may be right
/// (<https://github.com/huggingface/smolagents/issues/1119>,
/// <https://github.com/JusticeRage/Gepetto/issues/37>).
const GARBLED_CALL_CODES: [&str; 2] = ["tool_use_failed", "json_validate_failed"];
/// Codes for an unknown model.
const NO_MODEL: [&str; 2] = ["model_not_found", "model_not_found_error"];

/// Classifies a response with an error status.
pub(crate) fn of_answer(status: u16, headers: &HeaderMap, body: &[u8], model: &ModelId) -> Error {
    let body: Value = serde_json::from_slice(body).unwrap_or_default();
    let error = body.get("error").unwrap_or(&body);
    let is_refused = matches!(status, 400 | 413 | 422 | 500);
    if is_refused && names_overflow(error) {
        return Error::ContextOverflow;
    }
    with_wait(classify(Some(status), &codes(error), model), retry_after(headers))
}

/// Classifies an error within a stream.
pub(crate) fn mid_stream(error: &Value, model: &ModelId) -> Error {
    // Local servers find out only when the model reads the prompt.
    if names_overflow(error) {
        return Error::ContextOverflow;
    }
    let status = error["code"].as_u64().or_else(|| error["status"].as_u64());
    let status = status.and_then(|code| u16::try_from(code).ok()).filter(|code| *code >= 400);
    classify(status, &codes(error), model)
}

/// Whether the message of an error, or one that a router repeats, is about the length.
fn names_overflow(error: &Value) -> bool {
    let texts = [error, &error["message"], &error["metadata"]["raw"]];
    texts.into_iter().filter_map(Value::as_str).any(|text| {
        let text = text.to_ascii_lowercase();
        OVERFLOW_WORDS.iter().any(|words| text.contains(words))
    })
}

fn classify(status: Option<u16>, codes: &[&str], model: &ModelId) -> Error {
    let is = |known: &[&str]| codes.iter().any(|code| known.contains(code));
    if is(&OVERFLOW) {
        return Error::ContextOverflow;
    }
    if is(&QUOTA) {
        return Error::Quota;
    }
    if is(&GARBLED_CALL_CODES) {
        return Error::Malformed("its call of a tool, or its JSON");
    }
    if is(&["content_filter"]) {
        return Error::Filtered;
    }
    if is(&NO_MODEL) {
        return Error::NoModel(model.to_string());
    }
    match status {
        Some(status) => by_status(status, codes.first().copied(), model),
        None if is(&AUTH) => Error::Auth,
        None if is(&["permission_error"]) => Error::NotPermitted,
        None if is(&RATE) => Error::RateLimited { retry_after: None },
        None if is(&["invalid_request_error", "invalid_prompt"]) => {
            Error::BadRequest { status: 400, code: "invalid_request_error".to_owned() }
        }
        None => Error::Unavailable { status: None, source: None },
    }
}

/// Returns the code and the type of an error, if they are single words.
fn codes(error: &Value) -> Vec<&str> {
    ["code", "type"].iter().filter_map(|key| word(&error[*key])).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn refused(status: u16, body: &Value) -> Error {
        let model = "openai:gpt-5".parse().unwrap();
        of_answer(status, &HeaderMap::new(), body.to_string().as_bytes(), &model)
    }

    fn class(status: u16, body: &Value) -> &'static str {
        refused(status, body).class()
    }

    #[test]
    fn status_and_code_say_who_can_do_something() {
        let code = |code: &str| json!({ "error": { "message": "long story", "code": code } });
        let kind = |kind: &str| json!({ "error": { "code": null, "type": kind } });
        for (status, body, expected) in [
            (401, json!({}), "auth"),
            (403, json!(null), "auth"),
            (402, json!({}), "quota"),
            (429, code("insufficient_quota"), "quota"),
            (429, kind("insufficient_quota"), "quota"),
            (429, code("rate_limit_exceeded"), "rate_limited"),
            (400, code("context_length_exceeded"), "context_overflow"),
            (400, kind("exceed_context_size_error"), "context_overflow"),
            (400, code("something_else"), "bad_request"),
            (400, code("tool_use_failed"), "malformed"),
            (400, code("content_filter"), "filtered"),
            (413, json!("too large"), "bad_request"),
            (404, code("model_not_found"), "no_model"),
            (404, json!({ "detail": "Not Found" }), "no_model"),
            (302, json!({}), "setup"),
            (408, json!({}), "unavailable"),
            (500, json!({ "error": "a text" }), "unavailable"),
            (529, json!({}), "unavailable"),
        ] {
            assert_eq!(class(status, &body), expected, "{status} {body}");
        }
    }

    #[test]
    fn a_key_that_is_wrong_is_not_one_that_may_not_be_used_for_the_request() {
        assert!(matches!(refused(401, &json!({})), Error::Auth));
        assert!(matches!(refused(403, &json!({})), Error::NotPermitted));
        let model = "openai:gpt-5".parse().unwrap();
        let mid_stream = |code: &str| super::mid_stream(&json!({ "code": code }), &model);
        assert!(matches!(mid_stream("invalid_api_key"), Error::Auth));
        assert!(matches!(mid_stream("permission_error"), Error::NotPermitted));
    }

    #[test]
    fn an_overflow_is_known_by_its_code_and_not_by_words() {
        let body = json!({ "error": { "message": "context_length_exceeded", "code": "other" } });

        assert_eq!(class(400, &body), "bad_request");
    }

    #[test]
    fn an_overflow_without_a_code_is_known_by_the_words_of_its_server() {
        let long = "This model's maximum context length is 8192 tokens. However, you requested";
        let raw = json!({ "raw": "{\"type\":\"error\",\"message\":\"prompt is too long: 9\"}" });
        for (status, body) in [
            (
                400,
                json!({ "object": "error", "message": long, "type": "BadRequestError", "code": 400 }),
            ),
            (
                400,
                json!({ "error": { "message": "Provider returned error", "code": 400, "metadata": raw } }),
            ),
            (
                422,
                json!({ "error": "Input validation error: `inputs` tokens + `max_new_tokens` must be <= 4096" }),
            ),
            (400, json!({ "error": { "message": "Range of input length should be [1, 98304]" } })),
        ] {
            assert_eq!(class(status, &body), "context_overflow", "{body}");
        }
        assert_eq!(class(401, &json!({ "message": long })), "auth");
    }

    #[test]
    fn a_code_that_is_a_text_is_not_repeated() {
        let body = json!({ "error": { "code": "your key sk-123 is wrong" } });

        assert_eq!(
            refused(400, &body).to_string(),
            "the model's provider refused the request with status 400 and code `none`"
        );
    }
}
