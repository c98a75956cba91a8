//! Meaning of Anthropic's errors, by status and type.
//!
//! A conversation that is too long and an account without credit have no type of their own: both
//! are an `invalid_request_error` with status 400. They are recognised by the beginning of the
//! message, as short as is unambiguous.

use holdfast_types::ModelId;
use reqwest::header::HeaderMap;
use serde_json::Value;

use crate::{
    Error,
    refusal::{by_status, retry_after, with_wait, word},
};

/// Beginning of the message for a prompt that is too long.
const OVERFLOW: &str = "prompt is too long: ";
/// Beginning of the message for an account without credit.
const NO_CREDIT: &str = "Your credit balance is too low ";

/// Classifies a response with an error status.
pub(super) fn of_answer(status: u16, headers: &HeaderMap, body: &[u8], model: &ModelId) -> Error {
    let body: Value = serde_json::from_slice(body).unwrap_or_default();
    with_wait(classify(Some(status), &body["error"], model), retry_after(headers))
}

/// Classifies an error event within a stream.
pub(super) fn mid_stream(error: &Value, model: &ModelId) -> Error {
    classify(None, error, model)
}

fn classify(status: Option<u16>, error: &Value, model: &ModelId) -> Error {
    let kind = word(&error["type"]);
    let begins = |with: &str| error["message"].as_str().is_some_and(|text| text.starts_with(with));
    match kind {
        Some("invalid_request_error") if begins(OVERFLOW) => Error::ContextOverflow,
        Some("invalid_request_error") if begins(NO_CREDIT) => Error::Quota,
        // The body exceeds the size limit: a shorter history would fit.
        Some("request_too_large") => Error::ContextOverflow,
        Some("billing_error") => Error::Quota,
        Some("authentication_error") => Error::Auth,
        Some("permission_error") => Error::NotPermitted,
        Some("not_found_error") => Error::NoModel(model.to_string()),
        Some("rate_limit_error") => Error::RateLimited { retry_after: None },
        Some("overloaded_error") => {
            Error::Unavailable { status: status.or(Some(529)), source: None }
        }
        Some("api_error" | "timeout_error") => Error::Unavailable { status, source: None },
        Some(kind) => match status {
            Some(status) => by_status(status, Some(kind), model),
            None if kind == "invalid_request_error" => {
                Error::BadRequest { status: 400, code: kind.to_owned() }
            }
            None => Error::Unavailable { status: None, source: None },
        },
        None => match status {
            Some(413) => Error::ContextOverflow,
            Some(status) => by_status(status, None, model),
            None => Error::Unavailable { status: None, source: None },
        },
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn refused(status: u16, body: &Value) -> Error {
        let model = "anthropic:claude-opus-5-5".parse().unwrap();
        of_answer(status, &HeaderMap::new(), body.to_string().as_bytes(), &model)
    }

    #[test]
    fn status_and_type_say_who_can_do_something() {
        let error = |kind: &str, message: &str| json!({ "type": "error", "error": { "type": kind, "message": message } });
        let invalid = "invalid_request_error";
        for (status, body, class) in [
            (400, error(invalid, "messages: field required"), "bad_request"),
            (
                400,
                error(invalid, "prompt is too long: 208310 tokens > 200000 maximum"),
                "context_overflow",
            ),
            (
                400,
                error(invalid, "messages.0: the text `prompt is too long: ` is odd"),
                "bad_request",
            ),
            (400, error(invalid, "Your credit balance is too low to access the API."), "quota"),
            (401, error("authentication_error", "invalid x-api-key"), "auth"),
            (402, error("billing_error", ""), "quota"),
            (403, error("permission_error", ""), "auth"),
            (404, error("not_found_error", "model: claude-9"), "no_model"),
            (413, error("request_too_large", ""), "context_overflow"),
            (413, json!("<html>"), "context_overflow"),
            (429, error("rate_limit_error", ""), "rate_limited"),
            (500, error("api_error", ""), "unavailable"),
            (529, error("overloaded_error", ""), "unavailable"),
            (529, json!(null), "unavailable"),
            (400, error("something_new", ""), "bad_request"),
        ] {
            assert_eq!(refused(status, &body).class(), class, "{status} {body}");
        }
    }

    #[test]
    fn what_was_said_is_not_repeated() {
        let body = json!({ "error": { "type": "a key sk-ant-1", "message": "sk-ant-1" } });

        let error = refused(400, &body);

        assert!(!format!("{error} {error:?}").contains("sk-ant"));
    }

    #[test]
    fn when_to_come_back_is_told() {
        let headers = [(reqwest::header::RETRY_AFTER, "7".parse().unwrap())].into_iter().collect();
        let model = "anthropic:m".parse().unwrap();

        match of_answer(429, &headers, b"{}", &model) {
            Error::RateLimited { retry_after } => assert_eq!(retry_after.unwrap().as_secs(), 7),
            other => panic!("{other:?}"),
        }
    }
}
