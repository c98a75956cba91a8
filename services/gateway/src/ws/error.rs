//! Errors of methods, and their codes in each protocol.

use std::time::Duration;

use holdfast_types::{Fault as _, Kind};
use serde_json::{Value, json};
use tonic::{Code, Status};

use crate::Error;

/// What a client can do about an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ErrorKind {
    /// Change the request.
    Invalid,
    UnknownMethod,
    /// Ask for more rights.
    Forbidden,
    /// Pair the device, or send another credential.
    NotPaired,
    ApprovalNotFound,
    /// The agent has not answered in time; its turn goes on.
    AgentTimeout,
    /// Try again.
    Unavailable,
    /// A defect of the gateway.
    Internal,
}

impl ErrorKind {
    /// Code of OpenClaw's protocol.
    pub const fn openclaw_code(self) -> &'static str {
        match self {
            Self::Invalid | Self::UnknownMethod => "INVALID_REQUEST",
            Self::Forbidden => "FORBIDDEN",
            Self::NotPaired => "NOT_PAIRED",
            Self::ApprovalNotFound => "APPROVAL_NOT_FOUND",
            Self::AgentTimeout | Self::Unavailable | Self::Internal => "UNAVAILABLE",
        }
    }

    /// Code of LurkBot's protocol, which has none for a missing right.
    pub const fn lurkbot_code(self) -> &'static str {
        match self {
            Self::Invalid | Self::Forbidden | Self::ApprovalNotFound => "INVALID_REQUEST",
            Self::UnknownMethod => "METHOD_NOT_FOUND",
            Self::NotPaired => "NOT_PAIRED",
            Self::AgentTimeout => "AGENT_TIMEOUT",
            Self::Unavailable => "UNAVAILABLE",
            Self::Internal => "INTERNAL_ERROR",
        }
    }
}

/// Failure of a method. The message is shown to the caller.
#[derive(Debug, Clone, PartialEq)]
pub struct MethodError {
    pub kind: ErrorKind,
    pub message: String,
    pub details: Option<Value>,
    /// Delay before a retry, if the same request may succeed later.
    pub retry_after: Option<Duration>,
}

impl MethodError {
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into(), details: None, retry_after: None }
    }

    pub fn invalid(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Invalid, message)
    }

    pub fn unknown_method(method: &str) -> Self {
        let method: String = method.chars().take(80).collect();
        Self::new(ErrorKind::UnknownMethod, format!("unknown method: {method}"))
    }

    /// The connection lacks a scope of the protocol.
    pub fn missing_scope(method: &str, scope: &'static str) -> Self {
        let message = format!("missing scope: {scope}");
        let details = json!({
            "code": "MISSING_SCOPE",
            "missingScope": scope,
            "requiredScopes": [scope],
            "method": method,
        });
        Self { details: Some(details), ..Self::new(ErrorKind::Forbidden, message) }
    }

    #[must_use]
    pub fn with_details(self, details: Value) -> Self {
        Self { details: Some(details), ..self }
    }

    pub fn openclaw(&self) -> Value {
        let mut error =
            json!({ "code": self.kind.openclaw_code(), "message": self.message.as_str() });
        if let Some(details) = &self.details {
            error["details"] = details.clone();
        }
        let is_retryable = self.kind == ErrorKind::Unavailable && self.retry_after.is_some();
        if is_retryable {
            error["retryable"] = true.into();
        }
        if let Some(after) = self.retry_after {
            error["retryAfterMs"] = u64::try_from(after.as_millis()).unwrap_or(u64::MAX).into();
        }
        error
    }

    pub fn lurkbot(&self) -> Value {
        let mut error =
            json!({ "code": self.kind.lurkbot_code(), "message": self.message.as_str() });
        if let Some(details) = &self.details {
            error["details"] = details.clone();
        }
        error
    }
}

impl From<Error> for MethodError {
    fn from(error: Error) -> Self {
        let retry_after = error.retry_after();
        if let Error::AnswerTimeout { .. } = error {
            return Self::new(ErrorKind::AgentTimeout, error.to_string());
        }
        // Logs an internal defect, and hides its text.
        let is_internal = error.kind() == Kind::Internal;
        let error = Self::from(Status::from(error));
        let kind = if is_internal { ErrorKind::Internal } else { error.kind };
        Self { kind, retry_after, ..error }
    }
}

impl From<Status> for MethodError {
    fn from(status: Status) -> Self {
        let retry_after = holdfast_grpc::retry_after(&status);
        // Only a cursor that the log of events does not reach is out of range.
        let details =
            (status.code() == Code::OutOfRange).then(|| json!({ "code": "CURSOR_OUT_OF_RANGE" }));
        Self { retry_after, details, ..Self::new(kind_of(status.code()), status.message()) }
    }
}

impl From<holdfast_session::Error> for MethodError {
    fn from(error: holdfast_session::Error) -> Self {
        Error::from(error).into()
    }
}

impl From<holdfast_directory::Error> for MethodError {
    fn from(error: holdfast_directory::Error) -> Self {
        Error::from(error).into()
    }
}

const fn kind_of(code: Code) -> ErrorKind {
    match code {
        Code::Ok | Code::Internal | Code::Unknown | Code::DataLoss => ErrorKind::Internal,
        Code::PermissionDenied => ErrorKind::Forbidden,
        Code::Unauthenticated => ErrorKind::NotPaired,
        Code::Unavailable | Code::DeadlineExceeded | Code::Cancelled | Code::ResourceExhausted => {
            ErrorKind::Unavailable
        }
        Code::InvalidArgument
        | Code::NotFound
        | Code::AlreadyExists
        | Code::FailedPrecondition
        | Code::Aborted
        | Code::OutOfRange
        | Code::Unimplemented => ErrorKind::Invalid,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_protocol_has_its_own_codes() {
        let codes = |error: &MethodError| (error.kind.openclaw_code(), error.kind.lurkbot_code());

        let unknown = MethodError::unknown_method("nothing");
        assert_eq!(codes(&unknown), ("INVALID_REQUEST", "METHOD_NOT_FOUND"));
        let late = MethodError::from(Error::AnswerTimeout { waited: Duration::from_secs(1) });
        assert_eq!(codes(&late), ("UNAVAILABLE", "AGENT_TIMEOUT"));
        let full = MethodError::from(Error::Full);
        assert_eq!(full.openclaw()["retryable"], true);
        assert_eq!(full.openclaw()["retryAfterMs"], 1000);
        let missing = MethodError::missing_scope("cron.add", "operator.admin");
        assert_eq!(missing.openclaw()["details"]["missingScope"], "operator.admin");
        assert_eq!(MethodError::from(Error::Empty).kind, ErrorKind::Invalid);
    }
}
