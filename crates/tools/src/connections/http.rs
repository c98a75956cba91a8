//! HTTP requests that carry a secret, and their results.

use holdfast_egress::{AddressRefusal, Guard, describe_failure, refusal};
use reqwest::{Method, RequestBuilder, StatusCode, Url, header::HeaderMap};

/// Maximum size of a response, in bytes.
const MAX_RESPONSE_BYTES: usize = 4 * 1024 * 1024;

#[derive(Debug)]
pub(super) struct HttpResponse {
    pub(super) status: StatusCode,
    pub(super) headers: HeaderMap,
    pub(super) text: String,
}

/// Failure of a request without a response.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum RequestFailure {
    /// The request was never sent.
    NotSent(String),
    /// The request may have been executed or not.
    UnknownOutcome(String),
}

impl RequestFailure {
    /// Text for the model, for a request that only reads.
    pub(super) fn read_message(self) -> String {
        match self {
            Self::NotSent(why) | Self::UnknownOutcome(why) => why,
        }
    }

    /// Text for the model, for a request that changes something.
    pub(super) fn change_message(self) -> String {
        match self {
            Self::NotSent(why) => format!("{why}; nothing was changed"),
            Self::UnknownOutcome(why) => {
                format!("{why}: whether it was done is not known, so look before you try again")
            }
        }
    }
}

/// Builds a request that carries a secret, if the guard permits its target.
pub(super) fn request(
    guard: &Guard,
    method: Method,
    url: &Url,
) -> Result<RequestBuilder, RequestFailure> {
    let client =
        guard.client_for_secret(url).map_err(|no| RequestFailure::NotSent(no.to_string()))?;
    Ok(client.request(method, url.clone()))
}

/// Sends the request and reads the response. Redirects are not followed: the secret is for one
/// server.
pub(super) async fn send(request: RequestBuilder) -> Result<HttpResponse, RequestFailure> {
    let sent = request.send().await;
    let mut response = sent.map_err(|error| match refusal(&error) {
        Some(refused) => RequestFailure::NotSent(AddressRefusal::to_string(&refused)),
        None if error.is_connect() || error.is_builder() => {
            RequestFailure::NotSent(describe_failure(&error).to_owned())
        }
        None => RequestFailure::UnknownOutcome(describe_failure(&error).to_owned()),
    })?;
    let (status, headers) = (response.status(), response.headers().clone());
    let mut bytes = Vec::new();
    loop {
        let chunk = response.chunk().await;
        let chunk = chunk
            .map_err(|error| RequestFailure::UnknownOutcome(describe_failure(&error).to_owned()))?;
        let Some(chunk) = chunk else { break };
        if bytes.len() + chunk.len() > MAX_RESPONSE_BYTES {
            return Err(RequestFailure::UnknownOutcome(format!(
                "its answer has more than {MAX_RESPONSE_BYTES} bytes"
            )));
        }
        bytes.extend_from_slice(&chunk);
    }
    Ok(HttpResponse { status, headers, text: String::from_utf8_lossy(&bytes).into_owned() })
}

/// Text for the model about an unexpected status.
pub(super) fn status_message(status: StatusCode, headers: &HeaderMap) -> String {
    match status.as_u16() {
        401 | 403 => format!(
            "the server answered {}: the connection's user or secret is not right any more; its \
             owner has to give it again",
            status.as_u16()
        ),
        301 | 302 | 303 | 307 | 308 => format!(
            "the server answered {}: the connection's `url` leads elsewhere, and its owner has to \
             change it",
            status.as_u16()
        ),
        429 => {
            let wait = headers.get("retry-after").and_then(|wait| wait.to_str().ok());
            let wait = wait.and_then(|wait| wait.parse::<u32>().ok()).unwrap_or(60);
            format!("the server answered 429: it may be asked again in {wait} s")
        }
        status => format!("the server answered {status}"),
    }
}
