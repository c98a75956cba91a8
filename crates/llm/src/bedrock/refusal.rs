//! Meaning of Bedrock's exceptions.
//!
//! A conversation that is too long has no exception of its own: it is a `ValidationException`, known
//! by words of its message, of which nothing is repeated. Sources:
//! <https://docs.aws.amazon.com/bedrock/latest/APIReference/API_runtime_ConverseStream.html#API_runtime_ConverseStream_Errors>,
//! <https://docs.aws.amazon.com/bedrock/latest/userguide/troubleshooting-api-error-codes.html>.

use holdfast_types::ModelId;
use reqwest::header::HeaderMap;
use serde_json::Value;

use crate::{
    Error,
    refusal::{by_status, retry_after, with_wait},
};

/// Words of the messages for a conversation that is too long.
const OVERFLOW_WORDS: [&str; 6] = [
    "is too long",
    "maximum context length",
    "too many input tokens",
    "exceeds the maximum number of tokens",
    "exceed context limit",
    "input length and `max_tokens` exceed",
];

/// Words of the messages for a model that is not known, or not offered in this way.
const NO_MODEL_WORDS: [&str; 3] =
    ["model identifier is invalid", "on-demand throughput", "model is not supported"];

/// Classifies a response with an error status.
pub(super) fn of_answer(status: u16, headers: &HeaderMap, body: &[u8], model: &ModelId) -> Error {
    let body: Value = serde_json::from_slice(body).unwrap_or_default();
    let named = headers.get("x-amzn-errortype").and_then(|name| name.to_str().ok());
    // Either has more around the name: `ThrottlingException:http://…`, `com.amazon…#Throttling…`.
    let name = named.or_else(|| body["__type"].as_str()).unwrap_or_default();
    let name = name.split(':').next().unwrap_or_default();
    let name = name.rsplit('#').next().unwrap_or_default();
    with_wait(classify(Some(status), name, &body, model), retry_after(headers))
}

/// Classifies an exception within a stream.
pub(super) fn mid_stream(name: &str, exception: &Value, model: &ModelId) -> Error {
    let status = exception["originalStatusCode"].as_u64();
    let status = status.and_then(|status| u16::try_from(status).ok());
    classify(status.filter(|status| *status >= 400), name, exception, model)
}

fn classify(status: Option<u16>, name: &str, body: &Value, model: &ModelId) -> Error {
    let message = body.get("message").or_else(|| body.get("Message")).and_then(Value::as_str);
    let message = message.unwrap_or_default().to_ascii_lowercase();
    let says = |words: &[&str]| words.iter().any(|words| message.contains(words));
    // Events begin with a small letter, headers with a capital one.
    match name.to_ascii_lowercase().as_str() {
        "validationexception" if says(&OVERFLOW_WORDS) => Error::ContextOverflow,
        "validationexception" if says(&NO_MODEL_WORDS) => Error::NoModel(model.to_string()),
        "validationexception" => {
            Error::BadRequest { status: 400, code: "ValidationException".to_owned() }
        }
        "throttlingexception" | "servicequotaexceededexception" => {
            Error::RateLimited { retry_after: None }
        }
        "accessdeniedexception" => Error::NotPermitted,
        "unrecognizedclientexception"
        | "invalidsignatureexception"
        | "incompletesignatureexception"
        | "missingauthenticationtokenexception"
        | "expiredtokenexception" => Error::Auth,
        "resourcenotfoundexception" => Error::NoModel(model.to_string()),
        "modelstreamerrorexception"
        | "modelerrorexception"
        | "modeltimeoutexception"
        | "modelnotreadyexception"
        | "internalserverexception"
        | "serviceunavailableexception" => Error::Unavailable { status, source: None },
        _ => match status {
            Some(status) => by_status(status, None, model),
            None => Error::Unavailable { status: None, source: None },
        },
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn exceptions_say_who_can_do_something() {
        let model = "bedrock:anthropic.claude".parse().unwrap();
        let class = |status, name: &str, message: &str| {
            let mut headers = HeaderMap::new();
            let name = format!("{name}:http://internal.amazon.com/coral/com.amazon.bedrock/");
            headers.insert("x-amzn-errortype", name.parse().unwrap());
            let body = json!({ "message": message }).to_string();
            of_answer(status, &headers, body.as_bytes(), &model).class()
        };
        let invalid = "ValidationException";

        for (status, name, message, expected) in [
            (400, invalid, "Input is too long for requested model.", "context_overflow"),
            (400, invalid, "prompt is too long: 201 tokens > 200 maximum", "context_overflow"),
            (400, invalid, "The provided model identifier is invalid.", "no_model"),
            (400, invalid, "A conversation must start with a user message.", "bad_request"),
            (429, "ThrottlingException", "Too many tokens", "rate_limited"),
            (400, "ServiceQuotaExceededException", "no", "rate_limited"),
            (403, "AccessDeniedException", "no", "auth"),
            (403, "UnrecognizedClientException", "no", "auth"),
            (404, "ResourceNotFoundException", "no", "no_model"),
            (424, "ModelErrorException", "no", "unavailable"),
            (408, "ModelTimeoutException", "no", "unavailable"),
            (503, "ServiceUnavailableException", "no", "unavailable"),
            (500, "Other", "no", "unavailable"),
        ] {
            assert_eq!(class(status, name, message), expected, "{status} {name} {message}");
        }
    }
}
