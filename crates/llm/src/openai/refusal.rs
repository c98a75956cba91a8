//! Meaning of a provider's errors, by status and code, never by the message.

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
/// Codes for an account that is out of credit.
const QUOTA: [&str; 3] =
    ["insufficient_quota", "billing_hard_limit_reached", "insufficient_balance"];
/// Codes for a key that is wrong.
const AUTH: [&str; 3] = ["invalid_api_key", "authentication_error", "permission_error"];
/// Codes for too many requests.
const RATE: [&str; 3] = ["rate_limit_exceeded", "rate_limit_error", "tokens"];
/// Codes for an unknown model.
const NO_MODEL: [&str; 2] = ["model_not_found", "model_not_found_error"];

/// Classifies a response with an error status.
pub(crate) fn of_answer(status: u16, headers: &HeaderMap, body: &[u8], model: &ModelId) -> Error {
    let body: Value = serde_json::from_slice(body).unwrap_or_default();
    let error = body.get("error").unwrap_or(&body);
    with_wait(classify(Some(status), &codes(error), model), retry_after(headers))
}

/// Classifies an error within a stream.
pub(crate) fn mid_stream(error: &Value, model: &ModelId) -> Error {
    let status = error["code"].as_u64().or_else(|| error["status"].as_u64());
    let status = status.and_then(|code| u16::try_from(code).ok()).filter(|code| *code >= 400);
    classify(status, &codes(error), model)
}

fn classify(status: Option<u16>, codes: &[&str], model: &ModelId) -> Error {
    let is = |known: &[&str]| codes.iter().any(|code| known.contains(code));
    if is(&OVERFLOW) {
        return Error::ContextOverflow;
    }
    if is(&QUOTA) {
        return Error::Quota;
    }
    if is(&NO_MODEL) {
        return Error::NoModel(model.to_string());
    }
    match status {
        Some(status) => by_status(status, codes.first().copied(), model),
        None if is(&AUTH) => Error::Auth,
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
    fn an_overflow_is_known_by_its_code_and_not_by_words() {
        let body = json!({ "error": { "message": "context_length_exceeded", "code": "other" } });

        assert_eq!(class(400, &body), "bad_request");
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
