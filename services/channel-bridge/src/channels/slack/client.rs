//! Calls of the Web API (<https://docs.slack.dev/apis/web-api>).

use std::time::Duration;

use reqwest::{
    Client, RequestBuilder, StatusCode,
    header::{AUTHORIZATION, RETRY_AFTER},
};
use secrecy::{ExposeSecret as _, SecretString};
use serde_json::Value;

use crate::{Outcome, connection::Disconnected};

/// Timeout of a call.
const CALL_TIMEOUT: Duration = Duration::from_secs(20);

/// Timeout of an upload.
const UPLOAD_TIMEOUT: Duration = Duration::from_secs(40);

/// Maximum size of an answer, in bytes.
const MAX_ANSWER_BYTES: usize = 8 * 1024 * 1024;

/// Errors of Slack after which nothing was done, and that pass.
const PASSING_ERRORS: [&str; 4] =
    ["ratelimited", "service_unavailable", "team_added_to_org", "request_timeout"];

/// Errors of Slack after which something may have been done.
const UNSURE_ERRORS: [&str; 2] = ["fatal_error", "internal_error"];

/// Errors that say that a token is not accepted.
const TOKEN_ERRORS: [&str; 8] = [
    "invalid_auth",
    "account_inactive",
    "token_revoked",
    "token_expired",
    "not_authed",
    "not_allowed_token_type",
    "missing_scope",
    "no_permission",
];

/// Reason why a call failed. The texts are for people, without secrets.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum CallError {
    #[error("slack was not reached, or asks to try again")]
    NotSent,
    /// The call may have been executed or not.
    #[error("slack's answer was lost: {0}")]
    Unsure(&'static str),
    #[error("slack asks to wait")]
    RateLimited { after: Duration },
    #[error("slack refused: {error}")]
    Refused { error: String },
}

impl CallError {
    /// Whether Slack refused with this error.
    pub(super) fn is(&self, name: &str) -> bool {
        matches!(self, Self::Refused { error } if error == name)
    }
}

impl From<CallError> for Outcome {
    fn from(error: CallError) -> Self {
        let reason = error.to_string();
        match error {
            CallError::NotSent => Self::not_sent(reason),
            CallError::Unsure(_) => Self::unsure(reason),
            CallError::RateLimited { after } => Self::NotSent { reason, after: Some(after) },
            CallError::Refused { .. } => Self::refused(reason),
        }
    }
}

impl From<CallError> for Disconnected {
    fn from(error: CallError) -> Self {
        match &error {
            CallError::RateLimited { after } => Self::RetryAfter { after: *after },
            CallError::Refused { error } if TOKEN_ERRORS.contains(&error.as_str()) => {
                Self::rejected(format!(
                    "slack does not accept a token of the account (`{error}`): it was revoked, is \
                     wrong, or has not the scopes that docs/channels/slack.md lists"
                ))
            }
            CallError::NotSent | CallError::Unsure(_) | CallError::Refused { .. } => {
                Self::lost(error.to_string())
            }
        }
    }
}

/// Who the app is in its workspace.
#[derive(Debug, Clone)]
pub(super) struct Identity {
    pub(super) user: String,
    pub(super) name: String,
    pub(super) team: String,
}

#[derive(Debug)]
pub(super) struct WebApi {
    http: Client,
    base: String,
}

impl WebApi {
    pub(super) fn new(http: Client, base: &str) -> Self {
        Self { http, base: base.trim_end_matches('/').to_owned() }
    }

    /// Calls a method with JSON.
    pub(super) async fn call(
        &self,
        method: &str,
        token: &SecretString,
        body: &Value,
    ) -> Result<Value, CallError> {
        self.send(self.request(method, token).json(body).timeout(CALL_TIMEOUT)).await
    }

    /// Calls a method that takes a form only.
    pub(super) async fn call_form(
        &self,
        method: &str,
        token: &SecretString,
        fields: &[(&str, String)],
    ) -> Result<Value, CallError> {
        let body = fields.iter().map(|(name, value)| {
            let value =
                percent_encoding::utf8_percent_encode(value, percent_encoding::NON_ALPHANUMERIC);
            format!("{name}={value}")
        });
        let body = body.collect::<Vec<_>>().join("&");
        let request = self
            .request(method, token)
            .header("content-type", "application/x-www-form-urlencoded")
            .body(body);
        self.send(request.timeout(CALL_TIMEOUT)).await
    }

    pub(super) async fn identity(&self, token: &SecretString) -> Result<Identity, CallError> {
        let found = self.call_form("auth.test", token, &[]).await?;
        let text = |name: &str| found[name].as_str().unwrap_or_default().to_owned();
        Ok(Identity { user: text("user_id"), name: text("user"), team: text("team") })
    }

    /// Sends a file to the address that Slack gave for it. It is not shown until it is completed.
    pub(super) async fn upload(
        http: &Client,
        url: reqwest::Url,
        content: &[u8],
    ) -> Result<(), CallError> {
        let sent = http.post(url).timeout(UPLOAD_TIMEOUT).body(content.to_vec()).send().await;
        match sent {
            Ok(response) if response.status().is_success() => Ok(()),
            // Nobody sees what was not completed, so it may be uploaded again.
            Ok(_) | Err(_) => Err(CallError::NotSent),
        }
    }

    fn request(&self, method: &str, token: &SecretString) -> RequestBuilder {
        self.http
            .post(format!("{}/{method}", self.base))
            .header(AUTHORIZATION, format!("Bearer {}", token.expose_secret()))
    }

    async fn send(&self, request: RequestBuilder) -> Result<Value, CallError> {
        let mut response = request.send().await.map_err(|error| {
            if error.is_connect() {
                CallError::NotSent
            } else if error.is_timeout() {
                CallError::Unsure("it took too long")
            } else {
                CallError::Unsure("the connection broke")
            }
        })?;
        let status = response.status();
        if status == StatusCode::TOO_MANY_REQUESTS {
            let after = response.headers().get(RETRY_AFTER).and_then(|value| value.to_str().ok());
            let after = after.and_then(|seconds| seconds.trim().parse().ok()).unwrap_or(1_u64);
            return Err(CallError::RateLimited { after: Duration::from_secs(after.min(3600)) });
        }
        let mut body = Vec::new();
        while let Some(chunk) =
            response.chunk().await.map_err(|_| CallError::Unsure("the connection broke"))?
        {
            if body.len() + chunk.len() > MAX_ANSWER_BYTES {
                return Err(CallError::Unsure("it is too large"));
            }
            body.extend_from_slice(&chunk);
        }
        let answer: Option<Value> = serde_json::from_slice(&body).ok();
        judge_answer(status, answer)
    }
}

fn judge_answer(status: StatusCode, answer: Option<Value>) -> Result<Value, CallError> {
    let Some(answer) = answer.filter(|answer| answer["ok"].is_boolean()) else {
        return Err(match status.is_client_error() {
            true => CallError::Refused { error: format!("status {}", status.as_u16()) },
            false => CallError::Unsure("it cannot be read"),
        });
    };
    if answer["ok"] == true {
        return Ok(answer);
    }
    let error = answer["error"].as_str().unwrap_or("unknown_error");
    let error: String = error.chars().take(100).collect();
    Err(if PASSING_ERRORS.contains(&error.as_str()) {
        CallError::NotSent
    } else if UNSURE_ERRORS.contains(&error.as_str()) {
        CallError::Unsure("slack failed")
    } else {
        CallError::Refused { error }
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_answer_says_what_was_done() {
        let judged = |status: u16, body| judge_answer(StatusCode::from_u16(status).unwrap(), body);
        let refused = |error: &str| Err(CallError::Refused { error: error.to_owned() });

        assert!(judged(200, Some(json!({"ok": true, "ts": "1"}))).is_ok());
        assert_eq!(
            judged(200, Some(json!({"ok": false, "error": "channel_not_found"}))),
            refused("channel_not_found")
        );
        assert_eq!(
            judged(200, Some(json!({"ok": false, "error": "ratelimited"}))),
            Err(CallError::NotSent)
        );
        for (status, body) in
            [(502, None), (200, None), (200, Some(json!({"ok": false, "error": "fatal_error"})))]
        {
            assert!(matches!(judged(status, body), Err(CallError::Unsure(_))), "{status}");
        }
        assert_eq!(judged(404, None), refused("status 404"));
        let revoked: Disconnected = CallError::Refused { error: "token_revoked".into() }.into();
        assert!(matches!(revoked, Disconnected::Rejected { .. }));
    }
}
