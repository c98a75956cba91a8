//! Meaning of Google's errors, by status and by the reasons in their details.
//!
//! A conversation that is too long has no code of its own: it is an `INVALID_ARGUMENT` whose
//! message has a known beginning, as short as is unambiguous.

use std::time::Duration;

use holdfast_types::ModelId;
use reqwest::header::HeaderMap;
use serde_json::Value;

use crate::{
    Error,
    refusal::{by_status, retry_after, with_wait, word},
};

/// Beginning of the message for too many tokens.
const OVERFLOW: &str = "The input token count ";

/// Classifies a response with an error status.
pub(super) fn of_answer(status: u16, headers: &HeaderMap, body: &[u8], model: &ModelId) -> Error {
    let body: Value = serde_json::from_slice(body).unwrap_or_default();
    // A server that ignores `alt=sse` sends a list.
    let error = body.pointer("/error").or_else(|| body.pointer("/0/error")).unwrap_or(&Value::Null);
    with_wait(classify(Some(status), error, model), retry_after(headers))
}

/// Classifies an error within a stream.
pub(super) fn mid_stream(error: &Value, model: &ModelId) -> Error {
    let status = error["code"].as_u64().and_then(|code| u16::try_from(code).ok());
    classify(status.filter(|status| *status >= 400), error, model)
}

fn classify(status: Option<u16>, error: &Value, model: &ModelId) -> Error {
    let reasons: Vec<&str> = details(error).filter_map(|detail| word(&detail["reason"])).collect();
    let is = |known: &[&str]| reasons.iter().any(|reason| known.contains(reason));
    let begins = |with: &str| error["message"].as_str().is_some_and(|text| text.starts_with(with));
    if is(&["API_KEY_INVALID", "API_KEY_SERVICE_BLOCKED", "API_KEY_HTTP_REFERRER_BLOCKED"]) {
        return Error::Auth;
    }
    if is(&["BILLING_DISABLED"]) {
        return Error::Quota;
    }
    match word(&error["status"]) {
        Some("INVALID_ARGUMENT") if begins(OVERFLOW) => Error::ContextOverflow,
        Some("UNAUTHENTICATED") => Error::Auth,
        Some("PERMISSION_DENIED") => Error::NotPermitted,
        Some("NOT_FOUND") => Error::NoModel(model.to_string()),
        Some("RESOURCE_EXHAUSTED") => Error::RateLimited { retry_after: wait(error) },
        Some("UNAVAILABLE") => Error::Unavailable { status: status.or(Some(503)), source: None },
        Some("INTERNAL" | "DEADLINE_EXCEEDED" | "ABORTED" | "CANCELLED") => {
            Error::Unavailable { status, source: None }
        }
        code => match status {
            Some(status) => by_status(status, code, model),
            None => Error::Unavailable { status: None, source: None },
        },
    }
}

fn details(error: &Value) -> impl Iterator<Item = &Value> {
    error["details"].as_array().into_iter().flatten()
}

/// Returns the delay of `{"retryDelay": "34.07s"}`.
fn wait(error: &Value) -> Option<Duration> {
    let delay = details(error).find_map(|detail| detail["retryDelay"].as_str())?;
    let seconds = delay.strip_suffix('s')?.parse().ok()?;
    Duration::try_from_secs_f64(seconds).ok()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn refused(status: u16, body: &Value) -> Error {
        let model = "gemini:gemini-2.5-pro".parse().unwrap();
        of_answer(status, &HeaderMap::new(), body.to_string().as_bytes(), &model)
    }

    fn error(status: &str, message: &str, details: Value) -> Value {
        json!({ "error": { "status": status, "message": message, "details": details } })
    }

    #[test]
    fn statuses_and_reasons_say_who_can_do_something() {
        let info = |reason: &str| json!([{ "@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": reason }]);
        let overflow = "The input token count (1200000) exceeds the maximum number of tokens allowed (1048576).";
        let invalid = "INVALID_ARGUMENT";
        for (status, body, class) in [
            (400, error(invalid, "Please use a valid role", json!([])), "bad_request"),
            (400, error(invalid, overflow, json!([])), "context_overflow"),
            (400, error(invalid, "no", info("API_KEY_INVALID")), "auth"),
            (403, error("PERMISSION_DENIED", "no", info("BILLING_DISABLED")), "quota"),
            (403, error("PERMISSION_DENIED", "no", json!([])), "auth"),
            (404, error("NOT_FOUND", "no", json!([])), "no_model"),
            (429, error("RESOURCE_EXHAUSTED", "no", json!([])), "rate_limited"),
            (503, error("UNAVAILABLE", "overloaded", json!([])), "unavailable"),
            (500, json!("text"), "unavailable"),
            (400, json!([error(invalid, overflow, json!([]))]), "context_overflow"),
        ] {
            assert_eq!(refused(status, &body).class(), class, "{status} {body}");
        }
    }

    #[test]
    fn when_to_come_back_is_among_the_details() {
        let delay =
            json!([{ "@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "34.5s" }]);

        match refused(429, &error("RESOURCE_EXHAUSTED", "", delay)) {
            Error::RateLimited { retry_after } => {
                assert_eq!(retry_after, Some(Duration::from_millis(34_500)));
            }
            other => panic!("{other:?}"),
        }
    }
}
