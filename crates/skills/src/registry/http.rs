//! HTTP requests to registries, with limits on time and size.

use std::time::Duration;

use reqwest::{
    RequestBuilder, Response, Url,
    header::{HeaderMap, LOCATION},
};

use crate::Error;

/// Maximum size of a JSON response, in bytes (spec SKL-009).
pub(super) const MAX_JSON_BYTES: usize = 2 << 20;
/// Maximum size of an archive, in bytes.
pub(super) const MAX_ARCHIVE_BYTES: usize = 50 << 20;
pub(super) const RESPONSE_TIMEOUT: Duration = Duration::from_secs(30);

/// Sends a request and reads at most `most` bytes of the response, within [`PATIENCE`].
pub(super) async fn fetch_bytes(
    registry: &str,
    request: RequestBuilder,
    what: &str,
    most: usize,
) -> Result<Vec<u8>, Error> {
    let read = async {
        let response = send(registry, request).await?;
        let response = check_status(registry, response, what)?;
        read_body(registry, response, most).await
    };
    with_timeout(registry, read).await
}

/// Fails with [`Error::Unavailable`] after [`PATIENCE`].
pub(super) async fn with_timeout<T>(
    registry: &str,
    work: impl Future<Output = Result<T, Error>>,
) -> Result<T, Error> {
    let done = tokio::time::timeout(RESPONSE_TIMEOUT, work).await;
    done.unwrap_or_else(|_| {
        Err(unavailable(registry, format!("it took longer than {} s", RESPONSE_TIMEOUT.as_secs())))
    })
}

pub(super) async fn send(registry: &str, request: RequestBuilder) -> Result<Response, Error> {
    let sent = request.send().await;
    sent.map_err(|error| unavailable(registry, holdfast_egress::Guard::told(&error)))
}

/// Converts an error status into an error.
pub(super) fn check_status(
    registry: &str,
    response: Response,
    what: &str,
) -> Result<Response, Error> {
    let status = response.status();
    if status.is_success() {
        return Ok(response);
    }
    Err(match status.as_u16() {
        404 | 410 => Error::NotFound { registry: registry.to_owned(), what: what.to_owned() },
        401 => unavailable(registry, "it does not take the token that is set for it".to_owned()),
        // ClawHub's status for a download that moderation blocks.
        403 | 423 | 451 => Error::Forbidden(format!(
            "the registry `{registry}` does not give out {what}: it is blocked or not judged yet"
        )),
        429 => Error::TooOften {
            registry: registry.to_owned(),
            seconds: retry_after_seconds(response.headers()),
        },
        300..=399 => unavailable(
            registry,
            "it leads elsewhere: set its own address in the settings".to_owned(),
        ),
        status => unavailable(registry, format!("it answered {status}")),
    })
}

/// Seconds until the next request is allowed, 1 to 3,600; 60 if the response does not say.
fn retry_after_seconds(headers: &HeaderMap) -> u64 {
    let said = ["retry-after", "ratelimit-reset"]
        .iter()
        .find_map(|name| headers.get(*name)?.to_str().ok()?.trim().parse::<u64>().ok());
    said.unwrap_or(60).clamp(1, 3_600)
}

/// Reads a body of at most `most` bytes.
pub(super) async fn read_body(
    registry: &str,
    mut response: Response,
    most: usize,
) -> Result<Vec<u8>, Error> {
    let mut bytes = Vec::new();
    loop {
        let chunk = response.chunk().await;
        let chunk =
            chunk.map_err(|error| unavailable(registry, holdfast_egress::Guard::told(&error)))?;
        let Some(chunk) = chunk else { return Ok(bytes) };
        if bytes.len() + chunk.len() > most {
            return Err(Error::Archive(format!(
                "what the registry `{registry}` answers has more than {most} bytes"
            )));
        }
        bytes.extend_from_slice(&chunk);
    }
}

/// Target of a redirect; `None` for other responses.
pub(super) fn redirect_target(response: &Response, from: &Url) -> Option<Url> {
    if !matches!(response.status().as_u16(), 301 | 302 | 303 | 307 | 308) {
        return None;
    }
    let to = response.headers().get(LOCATION)?.to_str().ok()?;
    from.join(to).ok()
}

pub(super) fn unavailable(registry: &str, why: String) -> Error {
    Error::Unavailable { registry: registry.to_owned(), why }
}

#[cfg(test)]
mod tests {
    use tokio::time::Instant;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_registry_that_says_nothing_is_given_up_after_half_a_minute() {
        let started = Instant::now();

        let error =
            with_timeout("hub", std::future::pending::<Result<(), Error>>()).await.unwrap_err();

        assert_eq!(started.elapsed(), RESPONSE_TIMEOUT);
        let told = "the registry `hub` does not answer: it took longer than 30 s";
        assert_eq!(error.to_string(), told);
    }

    #[test]
    fn when_to_ask_again_is_taken_from_either_header_within_reason() {
        let of = |name: &'static str, value: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(name, value.parse().unwrap());
            retry_after_seconds(&headers)
        };

        assert_eq!(of("retry-after", "34"), 34);
        assert_eq!(of("ratelimit-reset", "0"), 1);
        assert_eq!(of("retry-after", "999999999"), 3_600);
        assert_eq!(of("retry-after", "Wed, 21 Oct 2026 07:28:00 GMT"), 60);
        assert_eq!(of("x", "1"), 60);
    }
}
