//! Outcome of an HTTP call to a platform.

use std::time::Duration;

use reqwest::{Response, StatusCode, header::RETRY_AFTER};

use crate::{Outcome, connection::Disconnected, guard};

/// Maximum delay that a platform can ask for.
const MAX_RETRY_AFTER: Duration = Duration::from_secs(3600);

/// Maximum length of a platform's own words in an error, in characters.
const MAX_DESCRIPTION_CHARS: usize = 200;

/// Reason why a call failed. No URL, token or text of a person is in it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CallError {
    /// The call certainly did not arrive.
    #[error("the platform was not reached: {0}")]
    NotSent(String),
    /// The call may have been executed or not.
    #[error("the platform's answer was lost: {0}")]
    Unsure(String),
    #[error("the platform asks to wait {after:?}")]
    RateLimited { after: Duration },
    #[error("the platform refused ({status}): {description}")]
    Refused {
        /// HTTP status; 0 if the call was refused on this side.
        status: u16,
        description: String,
    },
}

impl CallError {
    /// A call that was refused on this side.
    pub fn refused(description: impl Into<String>) -> Self {
        Self::Refused { status: 0, description: description.into() }
    }

    /// Error of a call that can be repeated without harm: a lost answer means that it is repeated.
    #[must_use]
    pub fn of_harmless_call(self) -> Self {
        match self {
            Self::Unsure(why) => Self::NotSent(why),
            other => other,
        }
    }

    /// Error of a call with an HTTP status that is no success. `description` is the platform's own.
    #[must_use]
    pub fn of_status(status: StatusCode, after: Option<Duration>, description: &str) -> Self {
        let code = status.as_u16();
        match status {
            StatusCode::TOO_MANY_REQUESTS => {
                let after = after.unwrap_or(Duration::from_secs(1)).min(MAX_RETRY_AFTER);
                Self::RateLimited { after }
            }
            StatusCode::REQUEST_TIMEOUT => Self::NotSent("it timed out (408)".to_owned()),
            status if status.is_server_error() => Self::Unsure(format!("it answered {code}")),
            _ => {
                let shown = description.chars().filter(|letter| !letter.is_control());
                let description = match shown.take(MAX_DESCRIPTION_CHARS).collect::<String>() {
                    empty if empty.is_empty() => "without a reason".to_owned(),
                    shown => shown,
                };
                Self::Refused { status: code, description }
            }
        }
    }

    /// Classifies a transport error.
    #[must_use]
    pub fn of_transport(error: reqwest::Error) -> Self {
        let error = error.without_url();
        if let Some(private) = guard::refusal(&error) {
            return Self::refused(private.to_string());
        }
        if error.is_connect() {
            return Self::NotSent("the connection could not be made".to_owned());
        }
        if error.is_builder() {
            return Self::refused("the address cannot be called");
        }
        let why = if error.is_timeout() { "it took too long" } else { "the connection broke" };
        Self::Unsure(why.to_owned())
    }

    /// Reason why a connection has ended, if this error ended it.
    #[must_use]
    pub fn disconnected(self, rejected: &str) -> Disconnected {
        match self {
            Self::RateLimited { after } => Disconnected::RetryAfter { after },
            Self::Refused { status: 401 | 403, .. } => Disconnected::rejected(rejected),
            Self::Refused { status: 0, description } => Disconnected::rejected(description),
            other => Disconnected::lost(other.to_string()),
        }
    }
}

impl From<Result<String, CallError>> for Outcome {
    fn from(sent: Result<String, CallError>) -> Self {
        match sent {
            Ok(platform_id) => Self::Sent { platform_id },
            Err(CallError::RateLimited { after }) => Self::NotSent {
                reason: "the platform asks to wait (429)".to_owned(),
                after: Some(after),
            },
            Err(error @ CallError::NotSent(_)) => Self::not_sent(error.to_string()),
            Err(error @ CallError::Unsure(_)) => Self::unsure(error.to_string()),
            Err(error @ CallError::Refused { .. }) => Self::refused(error.to_string()),
        }
    }
}

/// Delay of the header `retry-after`, in seconds.
pub fn retry_after(response: &Response) -> Option<Duration> {
    let value = response.headers().get(RETRY_AFTER)?.to_str().ok()?;
    value.trim().parse().ok().map(Duration::from_secs)
}

/// Reads a body of at most `most` bytes.
pub async fn read_up_to(mut response: Response, most: usize) -> Result<Vec<u8>, CallError> {
    let mut body = Vec::new();
    while let Some(chunk) = response.chunk().await.map_err(CallError::of_transport)? {
        if body.len() + chunk.len() > most {
            return Err(CallError::refused(format!("it has more than {most} bytes")));
        }
        body.extend_from_slice(&chunk);
    }
    Ok(body)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_says_whether_it_is_safe_to_try_again() {
        let of =
            |status: u16| CallError::of_status(StatusCode::from_u16(status).unwrap(), None, "");

        assert!(matches!(of(429), CallError::RateLimited { after } if after.as_secs() == 1));
        assert!(matches!(of(408), CallError::NotSent(_)));
        assert!(matches!(of(502), CallError::Unsure(_)));
        assert!(matches!(of(400), CallError::Refused { status: 400, .. }));
        let long = CallError::of_status(StatusCode::BAD_REQUEST, None, &"a\n".repeat(999));
        assert!(long.to_string().len() < 260, "{long}");
    }
}
