//! Client for the calls of the Graph API that the bridge needs. The token is sent in a header.

use std::{fmt, time::Duration};

use reqwest::{
    Client, Method, RequestBuilder, Url,
    multipart::{Form, Part},
};
use secrecy::{ExposeSecret as _, SecretString};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::{
    call::{CallError, read_up_to, retry_after},
    guard::{Clients, PlatformHosts},
};

const CALL_TIMEOUT: Duration = Duration::from_secs(20);

/// Timeout of an upload or a download.
const MEDIA_TIMEOUT: Duration = Duration::from_secs(35);

const MAX_RESPONSE_BYTES: usize = 1024 * 1024;

/// Errors of Meta that ask to send less
/// (<https://developers.facebook.com/docs/whatsapp/cloud-api/support/error-codes>).
const RATE_LIMITS: [i64; 5] = [4, 80007, 130_429, 131_048, 131_056];

/// Delay after one of these; Meta says none.
const RATE_LIMIT_DELAY: Duration = Duration::from_secs(10);

/// Error of Meta: more than 24 hours have passed since the person's last message.
pub const WINDOW_CLOSED: i64 = 131_047;

#[derive(Clone)]
pub struct Graph {
    http: Client,
    base: Url,
    token: SecretString,
}

impl fmt::Debug for Graph {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Graph").field("base", &self.base.as_str()).finish_non_exhaustive()
    }
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct ErrorBody {
    error: GraphError,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct GraphError {
    code: i64,
    message: String,
}

/// Reason why a message was not accepted.
#[derive(Debug, thiserror::Error)]
pub enum SendError {
    #[error(transparent)]
    Call(#[from] CallError),
    /// More than 24 hours have passed since the person's last message.
    #[error("the window is closed")]
    WindowClosed,
}

impl Graph {
    pub fn new(http: Client, base: Url, token: SecretString) -> Self {
        Self { http, base, token }
    }

    /// Returns the phone number with this id.
    pub async fn number(&self, id: &str) -> Result<String, CallError> {
        let request = self.request(Method::GET, &[id])?;
        let found = self.answer(request.timeout(CALL_TIMEOUT)).await?;
        Ok(found["display_phone_number"].as_str().unwrap_or("an unnamed number").to_owned())
    }

    /// Sends a message, and returns its id.
    pub async fn send(&self, number: &str, message: &Value) -> Result<String, SendError> {
        let request = self.request(Method::POST, &[number, "messages"])?.json(message);
        let sent = match self.answer(request.timeout(CALL_TIMEOUT)).await {
            Err(CallError::Refused { description, .. })
                if description.starts_with(&format!("{WINDOW_CLOSED} ")) =>
            {
                return Err(SendError::WindowClosed);
            }
            sent => sent?,
        };
        let id = sent["messages"][0]["id"].as_str();
        id.map(str::to_owned).ok_or_else(|| CallError::Unsure("it has no id".to_owned()).into())
    }

    /// Marks a message as read, and shows that an answer is written.
    pub async fn mark_read(&self, number: &str, message: &str) -> Result<(), CallError> {
        let body = json!({
            "messaging_product": "whatsapp", "status": "read", "message_id": message,
            "typing_indicator": {"type": "text"},
        });
        let request = self.request(Method::POST, &[number, "messages"])?.json(&body);
        self.answer(request.timeout(CALL_TIMEOUT)).await.map(drop)
    }

    /// Uploads a file, and returns its id.
    pub async fn upload(
        &self,
        number: &str,
        (name, media_type): (&str, &str),
        content: &[u8],
    ) -> Result<String, CallError> {
        let part = Part::bytes(content.to_vec()).file_name(name.to_owned()).mime_str(media_type);
        let part = part.map_err(|_| CallError::refused("the file's type is none"))?;
        let form = Form::new().text("messaging_product", "whatsapp").part("file", part);
        let request = self.request(Method::POST, &[number, "media"])?.multipart(form);
        let uploaded = self.answer(request.timeout(MEDIA_TIMEOUT)).await?;
        let id = uploaded["id"].as_str().map(str::to_owned);
        id.ok_or_else(|| CallError::Unsure("it has no id".to_owned()))
    }

    /// Downloads a file of at most `most` bytes, by its id.
    pub async fn download(
        &self,
        (clients, hosts): (&Clients, &PlatformHosts),
        id: &str,
        most: usize,
    ) -> Result<Vec<u8>, CallError> {
        let found = self.answer(self.request(Method::GET, &[id])?.timeout(CALL_TIMEOUT)).await?;
        let size = found["file_size"].as_u64().and_then(|size| usize::try_from(size).ok());
        if size.is_some_and(|size| size > most) {
            return Err(CallError::refused("it is too large"));
        }
        // The file is on another host, which Meta names, and takes the same token.
        let url = found["url"].as_str().unwrap_or_default();
        let called = clients.for_platform(hosts, url);
        let (http, url) = called.map_err(|error| CallError::refused(error.to_string()))?;
        let request = http.get(url).bearer_auth(self.token.expose_secret());
        let response = request.timeout(MEDIA_TIMEOUT).send().await;
        let response = response.map_err(CallError::of_transport)?;
        match response.status() {
            status if status.is_success() => read_up_to(response, most).await,
            status => Err(CallError::of_status(status, None, "the file is not there")),
        }
    }

    fn request(&self, method: Method, path: &[&str]) -> Result<RequestBuilder, CallError> {
        // Ids come from webhooks: they must stay one part of the path.
        let plain = |part: &&str| {
            !part.is_empty() && part.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
        };
        let mut url = self.base.clone();
        match url.path_segments_mut() {
            Ok(mut segments) if path.iter().all(plain) => segments.pop_if_empty().extend(path),
            Ok(_) | Err(()) => return Err(CallError::refused("an id is no id")),
        };
        Ok(self.http.request(method, url).bearer_auth(self.token.expose_secret()))
    }

    async fn answer(&self, request: RequestBuilder) -> Result<Value, CallError> {
        let response = request.send().await.map_err(CallError::of_transport)?;
        let (status, after) = (response.status(), retry_after(&response));
        let body = read_up_to(response, MAX_RESPONSE_BYTES).await?;
        if status.is_success() {
            let unreadable = |_| CallError::Unsure("it cannot be read".to_owned());
            return serde_json::from_slice(&body).map_err(unreadable);
        }
        let GraphError { code, message } =
            serde_json::from_slice::<ErrorBody>(&body).unwrap_or_default().error;
        if RATE_LIMITS.contains(&code) {
            return Err(CallError::RateLimited { after: after.unwrap_or(RATE_LIMIT_DELAY) });
        }
        Err(CallError::of_status(status, after, &format!("{code} {message}")))
    }
}
