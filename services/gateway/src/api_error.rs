//! Errors in the format of OpenAI's API.

use std::{borrow::Cow, time::Duration};

use axum::{
    Json,
    response::{IntoResponse, Response},
};
use holdfast_session::TurnOutcome;
use holdfast_types::{FailureClass, Fault, Kind};
use http::{
    HeaderValue, StatusCode,
    header::{RETRY_AFTER, WWW_AUTHENTICATE},
};
use serde::Serialize;

use crate::{Error, follow::TurnResult};

/// Error response: `{"error": …}` and its HTTP status.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ApiError {
    status: StatusCode,
    body: ErrorBody,
    retry_after: Option<Duration>,
    /// Repeating the request is useless: OpenAI's clients do not, if they are told.
    is_final: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
struct ErrorBody {
    message: String,
    #[serde(rename = "type")]
    kind: &'static str,
    param: Option<Cow<'static, str>>,
    code: Option<&'static str>,
}

#[derive(Serialize)]
struct ErrorEnvelope<'a> {
    error: &'a ErrorBody,
}

/// Delay that a client is told after the model's provider refused a turn for its rate: the first
/// cooldown of a provider's key (docs/models.md).
const PROVIDER_COOLDOWN: Duration = Duration::from_secs(60);

const INVALID_REQUEST: &str = "invalid_request_error";
const SERVER_ERROR: &str = "server_error";

/// Header by which OpenAI's servers tell clients whether to repeat a request.
const SHOULD_RETRY: &str = "x-should-retry";

impl ApiError {
    fn new(status: StatusCode, kind: &'static str, message: impl Into<String>) -> Self {
        let what = ErrorBody { message: message.into(), kind, param: None, code: None };
        Self { status, body: what, retry_after: None, is_final: false }
    }

    fn code(self, code: &'static str) -> Self {
        Self { body: ErrorBody { code: Some(code), ..self.body }, ..self }
    }

    /// A field of the request is not valid.
    pub fn invalid_field(param: impl Into<Cow<'static, str>>, message: impl Into<String>) -> Self {
        let refusal = Self::new(StatusCode::BAD_REQUEST, INVALID_REQUEST, message);
        Self { body: ErrorBody { param: Some(param.into()), ..refusal.body }, ..refusal }
    }

    /// A field of the request asks for something that is not supported.
    pub fn unsupported(param: impl Into<Cow<'static, str>>, message: impl Into<String>) -> Self {
        Self::invalid_field(param, message).code("unsupported_parameter")
    }

    pub fn no_model(name: &str) -> Self {
        let name: String = name.chars().take(80).collect();
        let message = format!(
            "there is no model `{name}`: use `holdfast` for the default agent or \
             `holdfast/<agent>` for another; `GET /v1/models` lists them"
        );
        let refusal = Self::invalid_field("model", message).code("model_not_found");
        Self { status: StatusCode::NOT_FOUND, ..refusal }
    }

    pub fn no_embedding_model(name: &str, known: &str) -> Self {
        let name: String = name.chars().take(80).collect();
        let message =
            format!("there is no embedding model `{name}`: write `holdfast`, which is `{known}`");
        let refusal = Self::invalid_field("model", message).code("model_not_found");
        Self { status: StatusCode::NOT_FOUND, ..refusal }
    }

    pub fn no_response(id: &str) -> Self {
        let id: String = id.chars().take(80).collect();
        let message = format!("there is no response `{id}`: it may have been deleted since");
        Self::invalid_field("previous_response_id", message).code("previous_response_not_found")
    }

    /// A response that is read, and not continued from.
    pub fn no_stored_response(id: &str) -> Self {
        Self::not_found("response_id", "response", id)
    }

    pub fn no_conversation(id: &str) -> Self {
        Self::not_found("conversation_id", "conversation", id)
    }

    fn not_found(param: &'static str, what: &str, id: &str) -> Self {
        let id: String = id.chars().take(80).collect();
        let message = format!("there is no {what} `{id}`: it may have been deleted since");
        let refusal = Self::invalid_field(param, message).code("not_found");
        Self { status: StatusCode::NOT_FOUND, ..refusal }
    }

    /// Whether the thing that a request names is not there.
    pub fn is_not_found(&self) -> bool {
        matches!(self.body.code, Some("previous_response_not_found" | "not_found"))
    }

    pub fn bad_body(message: &str) -> Self {
        Self::new(StatusCode::BAD_REQUEST, INVALID_REQUEST, message).code("invalid_body")
    }

    pub fn too_large(limit: usize) -> Self {
        let message =
            format!("the body has more than {limit} bytes, which is the most: shorten it");
        Self::new(StatusCode::PAYLOAD_TOO_LARGE, INVALID_REQUEST, message).code("body_too_large")
    }

    pub fn too_slow(patience: Duration) -> Self {
        let message = format!("the body did not arrive within {patience:?}: send it again");
        Self::new(StatusCode::REQUEST_TIMEOUT, INVALID_REQUEST, message).code("body_timeout")
    }

    pub fn no_route(method: &str, path: &str) -> Self {
        let path: String = path.chars().take(80).collect();
        let message = format!(
            "there is no `{method} {path}`: there are `POST /v1/chat/completions`, \
             `POST /v1/responses`, `POST /v1/messages`, `POST /v1/embeddings`, `GET /v1/models` and \
             `POST /mcp`; \
             `GET /openapi.json` lists all"
        );
        Self::new(StatusCode::NOT_FOUND, INVALID_REQUEST, message).code("unknown_url")
    }

    /// Known path, but another method.
    pub fn no_method(method: &str, path: &str) -> Self {
        let path: String = path.chars().take(80).collect();
        let is_list = path.ends_with("/items") || path.ends_with("/input_items");
        let other = match method {
            _ if path.starts_with("/v1/models") || is_list => "GET",
            _ if path.ends_with("/cancel") => "POST",
            _ if path.starts_with("/v1/responses/") || path.starts_with("/v1/conversations/") => {
                "GET` or `DELETE"
            }
            "GET" | "HEAD" => "POST",
            "POST" => "GET",
            _ if path.starts_with("/v1/") || path == "/mcp" => "POST",
            _ => "GET",
        };
        let message = format!("`{path}` does not take `{method}`: use `{other}`");
        Self::new(StatusCode::METHOD_NOT_ALLOWED, INVALID_REQUEST, message)
            .code("method_not_allowed")
    }

    pub fn defect() -> Self {
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, SERVER_ERROR, "internal error")
    }

    /// The stream cannot continue because text already sent became void.
    pub fn text_revoked() -> Self {
        let message = "another runner took the turn up and answers in other words than were sent: \
                       send the request again, with the same `Idempotency-Key` if it had one, \
                       for the stored answer";
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, SERVER_ERROR, message).code("stream_restarted")
    }

    /// Error for a turn that ended without an answer; `None` if it has one.
    pub fn of_result(finished: &TurnResult) -> Option<Self> {
        // A failed turn has a text for its user; the reason is a word for programs.
        let reason = match finished.text.trim() {
            "" => finished.reason.as_deref().unwrap_or("no reason was given"),
            words => words,
        };
        let (status, code, message) = match finished.outcome {
            TurnOutcome::Completed => return None,
            TurnOutcome::Failed => return Some(Self::of_failure(finished, reason)),
            TurnOutcome::Interrupted => (
                StatusCode::CONFLICT,
                "turn_interrupted",
                "newer input ended the turn: send the message again, under a new key".to_owned(),
            ),
            TurnOutcome::Cancelled => (
                StatusCode::CONFLICT,
                "turn_cancelled",
                "the turn was cancelled: send the message again, under a new key".to_owned(),
            ),
            TurnOutcome::Dead => (
                StatusCode::INTERNAL_SERVER_ERROR,
                "turn_given_up",
                format!("the turn was given up: {reason}"),
            ),
        };
        Some(Self { is_final: true, ..Self::new(status, SERVER_ERROR, message).code(code) })
    }

    /// Error for a failed turn, by the class of its failure (docs/models.md).
    fn of_failure(finished: &TurnResult, told: &str) -> Self {
        let class = finished.reason.as_deref().and_then(|word| word.parse::<FailureClass>().ok());
        Self::of_known_class(class, format!("the turn failed: {told}"))
    }

    /// Error for a request that a provider has not answered, by the class of its failure.
    pub fn of_class(class: FailureClass, message: String) -> Self {
        let refusal = Self::of_known_class(Some(class), message);
        match refusal.status {
            StatusCode::BAD_GATEWAY => refusal.code(class.as_str()),
            _ => refusal,
        }
    }

    /// The same; `None` is a class of a later version.
    fn of_known_class(class: Option<FailureClass>, message: String) -> Self {
        use FailureClass as Class;

        let (status, kind) = match class {
            Some(Class::RateLimited) => {
                let status = StatusCode::TOO_MANY_REQUESTS;
                let limited = Self::new(status, "rate_limit_error", message)
                    .code(Class::RateLimited.as_str());
                return Self { retry_after: Some(PROVIDER_COOLDOWN), ..limited };
            }
            Some(Class::BudgetSpent | Class::Quota) => {
                (StatusCode::TOO_MANY_REQUESTS, "insufficient_quota")
            }
            Some(
                Class::Address
                | Class::AnswerFormat
                | Class::Auth
                | Class::BadRequest
                | Class::ContextOverflow
                | Class::Filtered
                | Class::Halted
                | Class::NoAgent
                | Class::NoModel
                | Class::NoProvider
                | Class::NoTask
                | Class::Setup
                | Class::TaskSteps
                | Class::TaskTime
                | Class::TaskTokens
                | Class::TurnTooLong
                | Class::UnsupportedParameter,
            ) => (StatusCode::UNPROCESSABLE_ENTITY, INVALID_REQUEST),
            Some(Class::ToolNameTaken) => (StatusCode::BAD_REQUEST, INVALID_REQUEST),
            // The same request may succeed; so may one whose class is of a later version.
            Some(
                Class::AllFailed
                | Class::Cancelled
                | Class::Empty
                | Class::Interrupted
                | Class::Malformed
                | Class::Timeout
                | Class::TooLong
                | Class::Unavailable,
            )
            | None => {
                return Self::new(StatusCode::BAD_GATEWAY, SERVER_ERROR, message)
                    .code("turn_failed");
            }
        };
        let refusal = Self { is_final: true, ..Self::new(status, kind, message) };
        match class {
            Some(class) => refusal.code(class.as_str()),
            None => refusal,
        }
    }

    /// Serialized error, for a stream.
    pub fn serializable(&self) -> impl Serialize + '_ {
        ErrorEnvelope { error: &self.body }
    }

    pub fn message(&self) -> &str {
        &self.body.message
    }

    /// Error code, or the error type if there is none.
    pub fn code_or_type(&self) -> &'static str {
        self.body.code.unwrap_or(self.body.kind)
    }

    pub const fn status(&self) -> StatusCode {
        self.status
    }
}

impl From<Error> for ApiError {
    fn from(error: Error) -> Self {
        // Same text and log line as over gRPC.
        let message = holdfast_grpc::status(&error).message().to_owned();
        let (status, kind, code) = match error.kind() {
            Kind::Invalid => (StatusCode::BAD_REQUEST, INVALID_REQUEST, None),
            Kind::Unauthenticated => {
                (StatusCode::UNAUTHORIZED, INVALID_REQUEST, Some("invalid_api_key"))
            }
            Kind::Forbidden => (StatusCode::FORBIDDEN, "permission_error", None),
            Kind::NotFound => (StatusCode::NOT_FOUND, INVALID_REQUEST, Some("not_found")),
            Kind::Conflict => (StatusCode::CONFLICT, INVALID_REQUEST, Some("conflict")),
            Kind::Exhausted => {
                (StatusCode::TOO_MANY_REQUESTS, "rate_limit_error", Some("rate_limit_exceeded"))
            }
            Kind::Unavailable => {
                let status = match error {
                    Error::AnswerTimeout { .. } => StatusCode::GATEWAY_TIMEOUT,
                    _ => StatusCode::SERVICE_UNAVAILABLE,
                };
                (status, SERVER_ERROR, Some("unavailable"))
            }
            Kind::Internal => (StatusCode::INTERNAL_SERVER_ERROR, SERVER_ERROR, None),
        };
        let mut refusal = Self::new(status, kind, message);
        refusal.body.code = code;
        refusal.retry_after = error.retry_after();
        refusal.is_final = error.kind() == Kind::Exhausted && refusal.retry_after.is_none();
        refusal
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let mut response = (self.status, Json(ErrorEnvelope { error: &self.body })).into_response();
        if let Some(after) = self.retry_after {
            // The header has whole seconds; rounded up, so that no client retries too early.
            let seconds = after.as_millis().div_ceil(1000).max(1);
            let seconds = u64::try_from(seconds).unwrap_or(u64::MAX);
            response.headers_mut().insert(RETRY_AFTER, HeaderValue::from(seconds));
        }
        if self.is_final {
            response.headers_mut().insert(SHOULD_RETRY, HeaderValue::from_static("false"));
        }
        if self.status == StatusCode::UNAUTHORIZED {
            let bearer = HeaderValue::from_static("Bearer");
            response.headers_mut().insert(WWW_AUTHENTICATE, bearer);
        }
        // For clients of an API with another form (`anthropic/error.rs`).
        response.extensions_mut().insert(self);
        response
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_calls_too_often_is_told_when_to_come_back() {
        let error = Error::RateLimited { rate: 60, retry_after: Duration::from_millis(1200) };

        let response = ApiError::from(error).into_response();

        assert_eq!(response.status(), StatusCode::TOO_MANY_REQUESTS);
        assert_eq!(response.headers()[RETRY_AFTER], "2");
    }

    #[test]
    fn a_quota_that_is_used_up_is_not_worth_repeating() {
        let error = Error::from(holdfast_session::Error::TooManySessions { limit: 2 });

        let response = ApiError::from(error).into_response();

        assert_eq!(response.status(), StatusCode::TOO_MANY_REQUESTS);
        assert_eq!(response.headers()[SHOULD_RETRY], "false");
        assert!(!response.headers().contains_key(RETRY_AFTER));
    }

    #[test]
    fn an_unknown_model_is_refused_in_the_form_that_clients_know() {
        let refusal = ApiError::no_model("gpt-5");

        let shown = serde_json::to_value(refusal.serializable()).unwrap();

        assert_eq!(refusal.status(), StatusCode::NOT_FOUND);
        assert_eq!(shown["error"]["type"], "invalid_request_error");
        assert_eq!(shown["error"]["param"], "model");
        assert_eq!(shown["error"]["code"], "model_not_found");
        assert!(shown["error"]["message"].as_str().unwrap().contains("`gpt-5`"));
    }

    #[test]
    fn only_what_may_pass_is_told_as_worth_repeating() {
        for (reason, status, is_final) in [
            ("budget_spent", 429, true),
            ("quota", 429, true),
            ("rate_limited", 429, false),
            ("filtered", 422, true),
            ("bad_request", 422, true),
            ("no_model", 422, true),
            ("address", 422, true),
            ("no_task", 422, true),
            ("tool_name_taken", 400, true),
            ("unavailable", 502, false),
            ("timeout", 502, false),
            ("anything else", 502, false),
        ] {
            let (outcome, reason) = (TurnOutcome::Failed, Some(reason.to_owned()));
            let failed = TurnResult { outcome, reason, ..crate::follow::finished("why") };

            let response = ApiError::of_result(&failed).unwrap().into_response();

            assert_eq!(response.status().as_u16(), status, "{failed:?}");
            assert_eq!(response.headers().contains_key(SHOULD_RETRY), is_final, "{failed:?}");
            let says_when = response.headers().contains_key(RETRY_AFTER);
            assert_eq!(says_when, status == 429 && !is_final, "{failed:?}");
        }
    }

    #[test]
    fn only_an_answer_is_no_refusal() {
        let ended = |outcome| TurnResult { outcome, ..crate::follow::finished("x") };

        assert_eq!(ApiError::of_result(&ended(TurnOutcome::Completed)), None);
        for outcome in [
            TurnOutcome::Interrupted,
            TurnOutcome::Cancelled,
            TurnOutcome::Failed,
            TurnOutcome::Dead,
        ] {
            assert!(ApiError::of_result(&ended(outcome)).is_some(), "{outcome:?}");
        }
    }
}
