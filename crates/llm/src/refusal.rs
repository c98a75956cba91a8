//! Meaning of HTTP statuses, and parsing that all providers' errors share.

use std::time::{Duration, SystemTime};

use holdfast_types::ModelId;
use reqwest::header::{HeaderMap, RETRY_AFTER};
use serde_json::Value;

use crate::{Error, http::date};

/// Converts a status; `code` is the provider's error code.
pub(crate) fn by_status(status: u16, code: Option<&str>, model: &ModelId) -> Error {
    match status {
        401 => Error::Auth,
        403 => Error::NotPermitted,
        402 => Error::Quota,
        404 => Error::NoModel(model.to_string()),
        429 => Error::RateLimited { retry_after: None },
        408 | 409 | 425 | 500.. => Error::Unavailable { status: Some(status), source: None },
        300..=399 => Error::Setup("the base url leads elsewhere: give the address it leads to"),
        status => Error::BadRequest { status, code: code.unwrap_or("none").to_owned() },
    }
}

/// Sets the delay of a rate-limit error.
pub(crate) fn with_wait(error: Error, wait: Option<Duration>) -> Error {
    match error {
        Error::RateLimited { retry_after } => {
            Error::RateLimited { retry_after: wait.or(retry_after) }
        }
        other => other,
    }
}

/// Returns a text of an error if it is a single word: longer texts must not be repeated.
pub(crate) fn word(value: &Value) -> Option<&str> {
    let is_fit = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.');
    value.as_str().filter(|text| (1..=64).contains(&text.len()) && text.bytes().all(is_fit))
}

/// Returns the delay to wait. OpenAI's header in milliseconds is preferred, as it is exact.
pub(crate) fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    if let Some(millis) = text("retry-after-ms").and_then(|value| value.trim().parse().ok()) {
        return Some(Duration::from_millis(millis));
    }
    text(RETRY_AFTER.as_str()).and_then(|value| date::retry_after(value, SystemTime::now()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_exact_wait_is_preferred() {
        let mut headers = HeaderMap::new();
        headers.insert("retry-after", "3".parse().unwrap());
        assert_eq!(retry_after(&headers), Some(Duration::from_secs(3)));

        headers.insert("retry-after-ms", "1500".parse().unwrap());
        assert_eq!(retry_after(&headers), Some(Duration::from_millis(1_500)));
        assert_eq!(retry_after(&HeaderMap::new()), None);
    }

    #[test]
    fn only_a_word_is_repeated() {
        assert_eq!(word(&Value::from("rate_limit.error-1")), Some("rate_limit.error-1"));
        assert_eq!(word(&Value::from("your key sk-1 is wrong")), None);
        assert_eq!(word(&Value::from("")), None);
    }
}
