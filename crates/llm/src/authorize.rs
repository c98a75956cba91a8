//! Credentials that are made for each request, or renewed from time to time.

use std::{
    fmt,
    future::Future,
    time::{Duration, Instant},
};

use futures::future::BoxFuture;
use percent_encoding::{NON_ALPHANUMERIC, PercentEncode, utf8_percent_encode};
use reqwest::{
    RequestBuilder, Url,
    header::{AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderValue},
};
use secrecy::{ExposeSecret as _, SecretString};
use serde_json::Value;
use tokio::sync::Mutex;

use crate::{Error, http::read};

/// Remaining lifetime at which credentials are renewed.
const RENEW_BEFORE_EXPIRY: Duration = Duration::from_secs(240);

/// Limit on the lifetime that a server may state.
const MAX_LIFETIME: Duration = Duration::from_hours(24);

/// Timeout of a request for credentials.
pub(crate) const FETCH_TIMEOUT: Duration = Duration::from_secs(10);

/// Maximum size of an answer with credentials, in bytes.
const MAX_ANSWER_BYTES: usize = 64 * 1024;

/// Request that needs credentials.
#[derive(Debug, Clone, Copy)]
#[cfg_attr(not(feature = "bedrock"), expect(dead_code, reason = "only AWS signs requests"))]
pub(crate) struct UnsignedRequest<'a> {
    pub(crate) url: &'a Url,
    pub(crate) body: &'a [u8],
}

/// Maker of the headers that authorise a request.
pub(crate) trait Authorize: fmt::Debug + Send + Sync {
    fn headers<'a>(
        &'a self,
        request: UnsignedRequest<'a>,
    ) -> BoxFuture<'a, Result<HeaderMap, Error>>;

    /// Called if the server refused the credentials.
    fn refused(&self) -> BoxFuture<'_, ()>;
}

/// Returns the header of an access token (RFC 6750).
pub(crate) fn bearer(token: &SecretString) -> Result<HeaderMap, Error> {
    let mut value = HeaderValue::try_from(format!("Bearer {}", token.expose_secret()))
        .map_err(|_| Error::Setup("the access token has characters that no token has"))?;
    value.set_sensitive(true);
    Ok([(AUTHORIZATION, value)].into_iter().collect())
}

/// Adds a form as the body of a request.
pub(crate) fn with_form(request: RequestBuilder, fields: &[(&str, &str)]) -> RequestBuilder {
    let encoded = |(name, value): &(&str, &str)| format!("{name}={}", encode(value));
    let form = fields.iter().map(encoded).collect::<Vec<_>>().join("&");
    request.header(CONTENT_TYPE, "application/x-www-form-urlencoded").body(form)
}

fn encode(text: &str) -> PercentEncode<'_> {
    utf8_percent_encode(text, NON_ALPHANUMERIC)
}

/// Sends a request for credentials, and returns the headers and the JSON of the answer.
pub(crate) async fn fetch(request: RequestBuilder) -> Result<(HeaderMap, Value), Error> {
    let answer = request.timeout(FETCH_TIMEOUT).send().await.map_err(|error| {
        // A URL may contain more than a log should.
        Error::Unavailable { status: None, source: Some(error.without_url().into()) }
    })?;
    let (status, headers) = (answer.status(), answer.headers().clone());
    if status.is_server_error() || status.as_u16() == 429 {
        return Err(Error::Unavailable { status: Some(status.as_u16()), source: None });
    }
    if !status.is_success() {
        return Err(Error::Auth);
    }
    let body = read(answer, MAX_ANSWER_BYTES).await?;
    let answer = serde_json::from_slice(&body)
        .map_err(|_| Error::Malformed("the answer has no credentials"))?;
    Ok((headers, answer))
}

/// Credentials with the time at which they are renewed. One request at a time renews them; the
/// others wait for it.
pub(crate) struct CachedCredentials<T> {
    current: Mutex<Option<(Instant, T)>>,
}

impl<T: Clone> CachedCredentials<T> {
    pub(crate) const fn new() -> Self {
        Self { current: Mutex::const_new(None) }
    }

    /// Returns the credentials, which `fetch` returns with their lifetime if they must be renewed.
    pub(crate) async fn get<F>(&self, fetch: impl FnOnce() -> F + Send) -> Result<T, Error>
    where
        F: Future<Output = Result<(T, Duration), Error>> + Send,
    {
        let mut current = self.current.lock().await;
        if let Some((until, credentials)) = &*current
            && Instant::now() < *until
        {
            return Ok(credentials.clone());
        }
        let (credentials, lifetime) = fetch().await?;
        let lifetime = lifetime.min(MAX_LIFETIME).saturating_sub(RENEW_BEFORE_EXPIRY);
        *current = Some((Instant::now() + lifetime, credentials.clone()));
        Ok(credentials)
    }

    pub(crate) async fn forget(&self) {
        *self.current.lock().await = None;
    }
}

impl<T> fmt::Debug for CachedCredentials<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("CachedCredentials(***)")
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    #[tokio::test]
    async fn credentials_are_fetched_again_shortly_before_they_expire_and_after_a_refusal() {
        let (renewed, fetched) = (CachedCredentials::new(), AtomicU32::new(0));
        let get = async |lifetime| {
            let fetch = || async {
                Ok((fetched.fetch_add(1, Ordering::Relaxed), Duration::from_secs(lifetime)))
            };
            renewed.get(fetch).await.unwrap()
        };

        assert_eq!((get(3_600).await, get(3_600).await), (0, 0));
        renewed.forget().await;
        assert_eq!((get(240).await, get(3_600).await), (1, 2));
    }
}
