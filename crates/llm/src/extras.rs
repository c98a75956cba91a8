//! Additions of a provider's settings to its requests: headers, and fields of the body.
//!
//! Fields are added to what the codec writes, never put in its place: a field that a request has
//! already stays as it is. Fields on which the product relies are refused when they are set.

use std::{collections::BTreeMap, fmt};

use reqwest::header::{HeaderMap, HeaderName, HeaderValue};
use secrecy::{ExposeSecret as _, SecretString};
use serde::Deserialize;
use serde_json::{Map, Value};

use crate::Error;

const MAX_HEADERS: usize = 32;
const MAX_HEADER_NAME_BYTES: usize = 100;
const MAX_HEADER_VALUE_BYTES: usize = 8_000;
/// Maximum size of the fields for the body, in bytes of JSON.
const MAX_BODY_BYTES: usize = 16 * 1024;

/// Headers that codecs, credentials, the HTTP client or proxies set.
const RESERVED_HEADERS: [&str; 20] = [
    "accept",
    "accept-encoding",
    "anthropic-version",
    "api-key",
    "authorization",
    "connection",
    "content-encoding",
    "content-length",
    "content-type",
    "cookie",
    "expect",
    "host",
    "keep-alive",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "x-api-key",
    "x-forwarded-for",
    "x-goog-api-key",
];
/// Beginnings of the names of headers that proxies and signatures use.
const RESERVED_HEADER_PREFIXES: [&str; 3] = ["proxy-", "x-amz-", "sec-"];

/// Fields of a body that say what is asked and how it is answered: of all codecs.
const RESERVED_FIELDS: [&str; 32] = [
    "contents",
    "format",
    "functions",
    "function_call",
    "include",
    "input",
    "instructions",
    "max_completion_tokens",
    "max_output_tokens",
    "max_tokens",
    "messages",
    "model",
    "modelId",
    "n",
    "parallel_tool_calls",
    "previous_response_id",
    "prompt",
    "response_format",
    "store",
    "stream",
    "stream_options",
    "system",
    "systemInstruction",
    "system_instruction",
    "background",
    "conversation",
    "toolConfig",
    "tool_choice",
    "tool_config",
    "tools",
    "cachedContent",
    "promptVariables",
];

/// Additions to each request of a provider.
#[derive(Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RequestExtras {
    /// Headers by name. Values are secrets.
    pub headers: BTreeMap<String, SecretString>,
    /// Fields of the body.
    pub body: Map<String, Value>,
}

/// Why additions cannot be sent. The texts contain names, never values.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidExtras {
    #[error("a provider has {MAX_HEADERS} headers at most")]
    TooManyHeaders,
    #[error("`{0}` is not the name of a header: write letters, digits and `-`")]
    HeaderName(String),
    #[error("the header `{0}` is set by Holdfast, and cannot be given: leave it out")]
    ReservedHeader(String),
    #[error(
        "the value of the header `{0}` is too long or has other characters than printable ASCII: \
         {MAX_HEADER_VALUE_BYTES} bytes are the most"
    )]
    HeaderValue(String),
    #[error("the field `{0}` of a body is set by Holdfast, and cannot be given: leave it out")]
    ReservedField(String),
    #[error("the fields for a body have {0} bytes as JSON: {MAX_BODY_BYTES} are the most")]
    BodySize(usize),
}

impl RequestExtras {
    /// Checks names, sizes and characters.
    ///
    /// # Errors
    ///
    /// The first thing that cannot be sent.
    pub fn check(&self) -> Result<(), InvalidExtras> {
        if self.headers.len() > MAX_HEADERS {
            return Err(InvalidExtras::TooManyHeaders);
        }
        for (name, value) in &self.headers {
            check_header(name, value.expose_secret())?;
        }
        check_body(&self.body)
    }

    /// Returns the headers.
    pub(crate) fn header_map(&self) -> Result<HeaderMap, Error> {
        let mut headers = HeaderMap::new();
        for (name, value) in &self.headers {
            check_header(name, value.expose_secret())
                .map_err(|_| Error::Setup("one of its headers cannot be sent"))?;
            let name = HeaderName::try_from(name.as_str());
            let value = HeaderValue::try_from(value.expose_secret());
            let (Ok(name), Ok(mut value)) = (name, value) else {
                return Err(Error::Setup("one of its headers cannot be sent"));
            };
            value.set_sensitive(true);
            headers.insert(name, value);
        }
        Ok(headers)
    }
}

fn check_header(name: &str, value: &str) -> Result<(), InvalidExtras> {
    let is_token = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    if !(1..=MAX_HEADER_NAME_BYTES).contains(&name.len()) || !name.bytes().all(is_token) {
        return Err(InvalidExtras::HeaderName(name.chars().take(80).collect()));
    }
    let lower = name.to_ascii_lowercase();
    let is_reserved = RESERVED_HEADERS.contains(&lower.as_str())
        || RESERVED_HEADER_PREFIXES.iter().any(|prefix| lower.starts_with(prefix));
    if is_reserved {
        return Err(InvalidExtras::ReservedHeader(lower));
    }
    let is_printable = value.bytes().all(|byte| byte == b' ' || byte.is_ascii_graphic());
    if value.len() > MAX_HEADER_VALUE_BYTES || !is_printable {
        return Err(InvalidExtras::HeaderValue(lower));
    }
    Ok(())
}

/// Checks the names and the size of fields for a body.
///
/// # Errors
///
/// If a field is the product's own, or all together are too large.
pub fn check_body(fields: &Map<String, Value>) -> Result<(), InvalidExtras> {
    if let Some(name) = fields.keys().find(|name| RESERVED_FIELDS.contains(&name.as_str())) {
        return Err(InvalidExtras::ReservedField(name.clone()));
    }
    let size = serde_json::to_string(fields).map_or(usize::MAX, |text| text.len());
    if size > MAX_BODY_BYTES {
        return Err(InvalidExtras::BodySize(size));
    }
    Ok(())
}

/// Adds fields to a body. What the body has stays, also within objects.
pub(crate) fn add_fields(body: &mut Value, fields: &Map<String, Value>) {
    let Value::Object(body) = body else { return };
    for (name, value) in fields {
        match (body.get_mut(name), value) {
            (None, value) => {
                body.insert(name.clone(), value.clone());
            }
            (Some(own @ Value::Object(_)), Value::Object(more)) => add_fields(own, more),
            (Some(_), _) => {}
        }
    }
}

impl PartialEq for RequestExtras {
    fn eq(&self, other: &Self) -> bool {
        let pair = |(name, value): (&String, &SecretString)| {
            (name.clone(), value.expose_secret().to_owned())
        };
        self.body == other.body && self.headers.iter().map(pair).eq(other.headers.iter().map(pair))
    }
}

impl Eq for RequestExtras {}

impl fmt::Debug for RequestExtras {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let headers: Vec<&String> = self.headers.keys().collect();
        f.debug_struct("RequestExtras").field("headers", &headers).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn fields(value: Value) -> Map<String, Value> {
        value.as_object().unwrap().clone()
    }

    fn header(name: &str, value: &str) -> Result<(), InvalidExtras> {
        let headers = [(name.to_owned(), value.into())].into();
        RequestExtras { headers, ..RequestExtras::default() }.check()
    }

    #[test]
    fn headers_of_credentials_and_of_the_transport_cannot_be_given() {
        for name in [
            "Authorization",
            "X-Api-Key",
            "api-key",
            "x-goog-api-key",
            "Host",
            "Content-Length",
            "Cookie",
            "Transfer-Encoding",
            "Proxy-Authorization",
            "X-Amz-Security-Token",
        ] {
            assert!(matches!(header(name, "x"), Err(InvalidExtras::ReservedHeader(_))), "{name}");
        }
        for name in ["", "a b", "a:b", "ä", "a\r\nb"] {
            assert!(matches!(header(name, "x"), Err(InvalidExtras::HeaderName(_))), "{name}");
        }
        assert!(header("HTTP-Referer", "https://example.com").is_ok());
        assert!(header("anthropic-beta", "context-1m-2025-08-07").is_ok());
        let refused = header("x-team", "s3cret\r\nHost: x").unwrap_err().to_string();
        assert!(!refused.contains("s3cret"), "{refused}");
    }

    #[test]
    fn values_are_never_shown() {
        let headers = [("x-team".to_owned(), "s3cret".into())].into();
        let extras = RequestExtras { headers, body: fields(json!({ "user": "s3cret" })) };

        assert_eq!(format!("{extras:?}"), r#"RequestExtras { headers: ["x-team"], .. }"#);
    }

    #[test]
    fn fields_of_the_product_cannot_be_given_and_the_size_is_bounded() {
        for name in ["model", "messages", "stream", "tools", "contents", "max_tokens"] {
            let refused = check_body(&fields(json!({ name: 1 }))).unwrap_err();
            assert_eq!(refused, InvalidExtras::ReservedField(name.to_owned()));
        }
        assert!(check_body(&fields(json!({ "top_k": 4, "provider": { "only": ["x"] } }))).is_ok());
        let large = fields(json!({ "x": "y".repeat(MAX_BODY_BYTES) }));
        assert!(matches!(check_body(&large), Err(InvalidExtras::BodySize(_))));
    }

    #[test]
    fn fields_are_added_and_replace_nothing() {
        let mut body = json!({
            "model": "m", "temperature": 0, "generationConfig": { "maxOutputTokens": 9 },
        });

        add_fields(
            &mut body,
            &fields(json!({
                "temperature": 1,
                "top_k": 4,
                "generationConfig": { "maxOutputTokens": 1_000_000, "topK": 3 },
            })),
        );

        assert_eq!(
            body,
            json!({
                "model": "m",
                "temperature": 0,
                "top_k": 4,
                "generationConfig": { "maxOutputTokens": 9, "topK": 3 },
            })
        );
    }
}
