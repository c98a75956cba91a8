//! REST calls and their rate limits (<https://discord.com/developers/docs/topics/rate-limits>).

use std::{
    collections::HashMap,
    fmt,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use reqwest::{Client, Method, Response, StatusCode, header::AUTHORIZATION, multipart::Form};
use secrecy::{ExposeSecret as _, SecretString};
use serde_json::Value;
use tokio::time::{Instant, sleep};

use crate::Outcome;

/// Timeout of a call.
const CALL_TIMEOUT: Duration = Duration::from_secs(20);

/// Timeout of a call with a file.
const UPLOAD_TIMEOUT: Duration = Duration::from_secs(40);

/// Maximum time that a call waits for its rate limit.
const MAX_LIMIT_WAIT: Duration = Duration::from_secs(3);

/// Maximum size of an answer, in bytes.
const MAX_ANSWER_BYTES: usize = 1024 * 1024;

/// Number of limited routes that are remembered.
const MAX_LIMITED_ROUTES: usize = 10_000;

/// Route of all calls, for the global limit.
const GLOBAL: &str = "*";

/// Reason why a call failed. The texts are for people, without secrets.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum CallError {
    #[error("discord was not reached")]
    NotSent,
    /// The call may have been executed or not.
    #[error("discord's answer was lost: {0}")]
    Unsure(&'static str),
    #[error("discord asks to wait")]
    RateLimited { after: Duration },
    #[error("discord refused ({status}): {message}")]
    Refused { status: u16, message: String },
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

/// Client of the API with a bot's token.
pub(super) struct Rest {
    http: Client,
    base: String,
    token: SecretString,
    /// Routes that must not be called before a time.
    limits: Mutex<HashMap<String, Instant>>,
}

impl fmt::Debug for Rest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Rest").field("base", &self.base).finish_non_exhaustive()
    }
}

/// Body of a call.
pub(super) enum Content {
    None,
    Json(Value),
    Form(Form),
}

impl Rest {
    pub(super) fn new(http: Client, base: &str, token: SecretString) -> Self {
        let base = base.trim_end_matches('/').to_owned();
        Self { http, base, token, limits: Mutex::default() }
    }

    pub(super) const fn token(&self) -> &SecretString {
        &self.token
    }

    pub(super) async fn get(&self, path: &str) -> Result<Value, CallError> {
        self.call(Method::GET, path, Content::None).await
    }

    /// Calls a method of the API. `path` contains ids only that [`is_id`] has checked.
    pub(super) async fn call(
        &self,
        method: Method,
        path: &str,
        content: Content,
    ) -> Result<Value, CallError> {
        let route = route(&method, path);
        self.wait_for_limit(&route).await?;
        let mut request = self
            .http
            .request(method, format!("{}{path}", self.base))
            .header(AUTHORIZATION, format!("Bot {}", self.token.expose_secret()));
        request = match content {
            Content::None => request.timeout(CALL_TIMEOUT),
            Content::Json(body) => request.timeout(CALL_TIMEOUT).json(&body),
            Content::Form(form) => request.timeout(UPLOAD_TIMEOUT).multipart(form),
        };
        let response = request.send().await.map_err(|error| {
            if error.is_connect() {
                CallError::NotSent
            } else if error.is_timeout() {
                CallError::Unsure("it took too long")
            } else {
                CallError::Unsure("the connection broke")
            }
        })?;
        self.note_limit(&route, &response);
        self.read(&route, response).await
    }

    async fn read(&self, route: &str, mut response: Response) -> Result<Value, CallError> {
        let status = response.status();
        let mut body = Vec::new();
        while let Some(chunk) =
            response.chunk().await.map_err(|_| CallError::Unsure("the connection broke"))?
        {
            if body.len() + chunk.len() > MAX_ANSWER_BYTES {
                return Err(CallError::Unsure("it is too large"));
            }
            body.extend_from_slice(&chunk);
        }
        let parsed: Option<Value> = serde_json::from_slice(&body).ok();
        match status {
            StatusCode::NO_CONTENT => Ok(Value::Null),
            status if status.is_success() => parsed.ok_or(CallError::Unsure("it cannot be read")),
            StatusCode::TOO_MANY_REQUESTS => {
                let answer = parsed.unwrap_or_default();
                let seconds = answer["retry_after"].as_f64().unwrap_or(1.0).clamp(0.0, 3600.0);
                let after = Duration::from_secs_f64(seconds);
                let limited = if answer["global"] == true { GLOBAL } else { route };
                self.limit(limited, after);
                Err(CallError::RateLimited { after })
            }
            status if status.is_server_error() => Err(CallError::Unsure("the server failed")),
            status => {
                let answer = parsed.unwrap_or_default();
                let message = answer["message"].as_str().unwrap_or_default();
                let message = message.chars().take(200).collect();
                Err(CallError::Refused { status: status.as_u16(), message })
            }
        }
    }

    async fn wait_for_limit(&self, route: &str) -> Result<(), CallError> {
        let until = {
            let limits = self.limits.lock().unwrap_or_else(PoisonError::into_inner);
            [route, GLOBAL].into_iter().filter_map(|name| limits.get(name).copied()).max()
        };
        let after = until.map_or(Duration::ZERO, |until| until - Instant::now());
        if after > MAX_LIMIT_WAIT {
            return Err(CallError::RateLimited { after });
        }
        sleep(after).await;
        Ok(())
    }

    /// Remembers when the route's bucket is full again, if this call has emptied it.
    fn note_limit(&self, route: &str, response: &Response) {
        let header = |name: &str| response.headers().get(name)?.to_str().ok()?.parse::<f64>().ok();
        if header("x-ratelimit-remaining") == Some(0.0)
            && let Some(after) = header("x-ratelimit-reset-after")
            && response.status() != StatusCode::TOO_MANY_REQUESTS
        {
            self.limit(route, Duration::from_secs_f64(after.clamp(0.0, 3600.0)));
        }
    }

    fn limit(&self, route: &str, after: Duration) {
        let mut limits = self.limits.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        if limits.len() >= MAX_LIMITED_ROUTES {
            limits.retain(|_, until| *until > now);
        }
        limits.insert(route.to_owned(), now + after);
    }
}

/// Limits are per method and per channel: ids behind the first one do not distinguish routes.
fn route(method: &Method, path: &str) -> String {
    let mut is_first = true;
    let parts = path.split('/').map(|part| {
        let shown = if is_id(part) && !is_first { "{id}" } else { part };
        is_first &= !is_id(part);
        shown
    });
    format!("{method} {}", parts.collect::<Vec<_>>().join("/"))
}

/// Whether a text is an id of Discord, which is safe in a path.
pub(super) fn is_id(text: &str) -> bool {
    !text.is_empty() && text.len() <= 20 && text.bytes().all(|byte| byte.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_route_is_its_method_and_its_channel() {
        assert_eq!(route(&Method::POST, "/channels/7/messages"), "POST /channels/7/messages");
        assert_eq!(
            route(&Method::PATCH, "/channels/7/messages/9"),
            "PATCH /channels/7/messages/{id}"
        );
        assert!(is_id("41771983423143937"));
        for text in ["", "a", "1/2", "..", "123456789012345678901"] {
            assert!(!is_id(text), "{text}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_limited_route_waits_and_others_do_not() {
        holdfast_kit::tls::install_crypto();
        let rest = Rest::new(Client::new(), "http://127.0.0.1:1", "x".into());
        rest.limit("GET /a", Duration::from_secs(60));

        let limited = rest.wait_for_limit("GET /a").await;
        assert!(matches!(limited, Err(CallError::RateLimited { .. })), "{limited:?}");
        rest.wait_for_limit("GET /b").await.unwrap();
        rest.limit(GLOBAL, Duration::from_secs(30));
        assert!(rest.wait_for_limit("GET /b").await.is_err());
        tokio::time::advance(Duration::from_secs(61)).await;
        rest.wait_for_limit("GET /a").await.unwrap();
    }
}
