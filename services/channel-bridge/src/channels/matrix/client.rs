//! Client for the parts of Matrix's client-server API that the bridge needs
//! (<https://spec.matrix.org/latest/client-server-api/>).
//!
//! The access token is sent in a header, and is in no error.

use std::{fmt, time::Duration};

use reqwest::{Client, Method, RequestBuilder, Response, Url};
use secrecy::{ExposeSecret as _, SecretString};
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::{Value, json};

use super::wire::{Event, History, Identity, Members, SyncResponse};
use crate::call::{CallError, read_up_to, retry_after};

/// Timeout of a call, in addition to the time that a sync waits.
const CALL_TIMEOUT: Duration = Duration::from_secs(20);

/// Timeout of an upload or a download.
const MEDIA_TIMEOUT: Duration = Duration::from_secs(35);

/// Maximum size of a response, in bytes.
const MAX_RESPONSE_BYTES: usize = 32 * 1024 * 1024;

/// Maximum number of events of a room in one sync; more are fetched from the room's history.
const MAX_TIMELINE_EVENTS: u32 = 100;

/// Versions of the API, as parts of its paths.
const V3: &[&str] = &["_matrix", "client", "v3"];
const V1: &[&str] = &["_matrix", "client", "v1"];
const MEDIA: &[&str] = &["_matrix", "media", "v3"];

#[derive(Clone)]
pub struct Homeserver {
    http: Client,
    base: Url,
    token: SecretString,
    /// User of the application service whose calls these are.
    user: Option<String>,
}

impl fmt::Debug for Homeserver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Homeserver").field("base", &self.base.as_str()).finish_non_exhaustive()
    }
}

#[derive(Deserialize)]
struct SentEvent {
    event_id: String,
}

#[derive(Deserialize)]
struct Uploaded {
    content_uri: String,
}

/// Error of Matrix (<https://spec.matrix.org/latest/client-server-api/#standard-error-response>).
#[derive(Default, Deserialize)]
#[serde(default)]
struct MatrixError {
    errcode: String,
    error: String,
    retry_after_ms: Option<u64>,
}

impl Homeserver {
    pub fn new(http: Client, base: Url, token: SecretString, user: Option<String>) -> Self {
        Self { http, base, token, user }
    }

    /// Returns whose token it is.
    pub async fn whoami(&self) -> Result<Identity, CallError> {
        self.get(V3, &["account", "whoami"], &[]).await
    }

    /// Returns the user's display name; empty if there is none.
    pub async fn display_name(&self, user: &str) -> Result<String, CallError> {
        let found: Value = match self.get(V3, &["profile", user, "displayname"], &[]).await {
            Err(CallError::Refused { status: 404, .. }) => Value::Null,
            found => found?,
        };
        Ok(found["displayname"].as_str().unwrap_or_default().to_owned())
    }

    /// Registers the user of the application service, if it does not exist yet.
    pub async fn register(&self, localpart: &str) -> Result<(), CallError> {
        let body = json!({
            "type": "m.login.application_service", "username": localpart, "inhibit_login": true,
        });
        let request = self.plain_request(Method::POST, V3, &["register"], &[])?.json(&body);
        match self.answer::<Value>(request.timeout(CALL_TIMEOUT)).await {
            Err(CallError::Refused { description, .. })
                if description.starts_with("M_USER_IN_USE") =>
            {
                Ok(())
            }
            done => done.map(drop),
        }
    }

    /// Returns what has happened since a position, after waiting up to `wait` for something.
    pub async fn sync(
        &self,
        since: Option<&str>,
        wait: Duration,
    ) -> Result<SyncResponse, CallError> {
        let none = json!({"types": []});
        let filter = json!({
            "presence": none, "account_data": none,
            "room": {
                "ephemeral": none, "account_data": none,
                "state": {"lazy_load_members": true, "types": ["m.room.member"]},
                "timeline": {"limit": MAX_TIMELINE_EVENTS},
            },
        });
        let (filter, timeout) = (filter.to_string(), wait.as_millis().to_string());
        let mut query =
            vec![("filter", filter.as_str()), ("timeout", &timeout), ("set_presence", "offline")];
        if let Some(since) = since {
            query.push(("since", since));
        }
        let request = self.request(Method::GET, V3, &["sync"], &query)?;
        self.answer(request.timeout(wait + CALL_TIMEOUT)).await
    }

    /// Returns events of a room before `from`, newest first, and not before `to`.
    pub async fn history(&self, room: &str, from: &str, to: &str) -> Result<History, CallError> {
        let query = [("dir", "b"), ("from", from), ("to", to), ("limit", "100")];
        self.get(V3, &["rooms", room, "messages"], &query).await
    }

    /// Returns an event of a room; `None` if it is not visible.
    pub async fn event(&self, room: &str, id: &str) -> Result<Option<Event>, CallError> {
        match self.get(V3, &["rooms", room, "event", id], &[]).await {
            Err(CallError::Refused { status: 403 | 404, .. }) => Ok(None),
            found => found.map(Some),
        }
    }

    pub async fn members(&self, room: &str) -> Result<Members, CallError> {
        self.get(V3, &["rooms", room, "joined_members"], &[]).await
    }

    /// Returns a room's state of a kind without a key; `None` if there is none.
    pub async fn state(&self, room: &str, kind: &str) -> Result<Option<Value>, CallError> {
        match self.get(V3, &["rooms", room, "state", kind], &[]).await {
            Err(CallError::Refused { status: 404, .. }) => Ok(None),
            found => found.map(Some),
        }
    }

    pub async fn set_state(
        &self,
        room: &str,
        kind: &str,
        content: &Value,
    ) -> Result<String, CallError> {
        self.put(&["rooms", room, "state", kind], content).await
    }

    pub async fn join(&self, room: &str) -> Result<(), CallError> {
        self.post(&["rooms", room, "join"]).await
    }

    pub async fn leave(&self, room: &str) -> Result<(), CallError> {
        self.post(&["rooms", room, "leave"]).await
    }

    /// Sends an event. The homeserver sends it once for each `txn`.
    pub async fn send(
        &self,
        room: &str,
        kind: &str,
        txn: &str,
        content: &Value,
    ) -> Result<String, CallError> {
        self.put(&["rooms", room, "send", kind, txn], content).await
    }

    pub async fn redact(&self, room: &str, event: &str, txn: &str) -> Result<String, CallError> {
        self.put(&["rooms", room, "redact", event, txn], &json!({})).await
    }

    /// Returns the reactions to an event.
    pub async fn reactions(&self, room: &str, event: &str) -> Result<History, CallError> {
        let path = ["rooms", room, "relations", event, "m.annotation", "m.reaction"];
        self.get(V1, &path, &[("limit", "100")]).await
    }

    pub async fn set_typing(&self, room: &str, user: &str, ms: u32) -> Result<(), CallError> {
        let body = json!({"typing": true, "timeout": ms});
        let request =
            self.request(Method::PUT, V3, &["rooms", room, "typing", user], &[])?.json(&body);
        self.answer::<Value>(request.timeout(CALL_TIMEOUT)).await.map(drop)
    }

    /// Uploads a file, and returns its `mxc://` address.
    pub async fn upload(
        &self,
        name: &str,
        media_type: &str,
        content: &[u8],
    ) -> Result<String, CallError> {
        let request = self
            .request(Method::POST, MEDIA, &["upload"], &[("filename", name)])?
            .header("content-type", media_type)
            .body(content.to_vec());
        let uploaded: Uploaded = self.answer(request.timeout(MEDIA_TIMEOUT)).await?;
        Ok(uploaded.content_uri)
    }

    /// Downloads a file of at most `most` bytes, by its `mxc://` address.
    pub async fn download(&self, address: &str, most: usize) -> Result<Vec<u8>, CallError> {
        let parts = address.strip_prefix("mxc://").and_then(|rest| rest.split_once('/'));
        let Some((server, id)) = parts else {
            return Err(CallError::refused("the file has no `mxc://` address"));
        };
        let request = self.request(Method::GET, V1, &["media", "download", server, id], &[])?;
        let sent = request.timeout(MEDIA_TIMEOUT).send().await;
        let response = sent.map_err(CallError::of_transport)?;
        match response.status() {
            status if status.is_success() => read_up_to(response, most).await,
            status => Err(CallError::of_status(status, None, "the file is not there")),
        }
    }

    async fn get<T: DeserializeOwned>(
        &self,
        version: &[&str],
        path: &[&str],
        query: &[(&str, &str)],
    ) -> Result<T, CallError> {
        let request = self.request(Method::GET, version, path, query)?;
        self.answer(request.timeout(CALL_TIMEOUT)).await
    }

    async fn put(&self, path: &[&str], body: &Value) -> Result<String, CallError> {
        let request = self.request(Method::PUT, V3, path, &[])?.json(body);
        let sent: SentEvent = self.answer(request.timeout(CALL_TIMEOUT)).await?;
        Ok(sent.event_id)
    }

    async fn post(&self, path: &[&str]) -> Result<(), CallError> {
        let request = self.request(Method::POST, V3, path, &[])?.json(&json!({}));
        self.answer::<Value>(request.timeout(CALL_TIMEOUT)).await.map(drop)
    }

    /// Begins a request as the account's user.
    fn request(
        &self,
        method: Method,
        version: &[&str],
        path: &[&str],
        query: &[(&str, &str)],
    ) -> Result<RequestBuilder, CallError> {
        let mut query = query.to_vec();
        query.extend(self.user.as_deref().map(|user| ("user_id", user)));
        self.plain_request(method, version, path, &query)
    }

    fn plain_request(
        &self,
        method: Method,
        version: &[&str],
        path: &[&str],
        query: &[(&str, &str)],
    ) -> Result<RequestBuilder, CallError> {
        // `Url` would drop such a part, or leave the folder: ids come from strangers.
        if path.iter().any(|part| matches!(*part, "" | "." | "..")) {
            return Err(CallError::refused("an id is empty or no id"));
        }
        let mut url = self.base.clone();
        match url.path_segments_mut() {
            Ok(mut segments) => segments.pop_if_empty().extend(version).extend(path),
            Err(()) => return Err(CallError::refused("`homeserver` is no address")),
        };
        if !query.is_empty() {
            url.query_pairs_mut().extend_pairs(query);
        }
        Ok(self.http.request(method, url).bearer_auth(self.token.expose_secret()))
    }

    async fn answer<T: DeserializeOwned>(&self, request: RequestBuilder) -> Result<T, CallError> {
        let response = request.send().await.map_err(CallError::of_transport)?;
        let (status, after) = (response.status(), retry_after(&response));
        let body = read_body(response).await?;
        if status.is_success() {
            let unreadable = |_| CallError::Unsure("it cannot be read".to_owned());
            return serde_json::from_slice(&body).map_err(unreadable);
        }
        let said: MatrixError = serde_json::from_slice(&body).unwrap_or_default();
        let after = said.retry_after_ms.map(Duration::from_millis).or(after);
        let told = format!("{} {}", said.errcode, said.error);
        Err(CallError::of_status(status, after, told.trim()))
    }
}

async fn read_body(response: Response) -> Result<Vec<u8>, CallError> {
    read_up_to(response, MAX_RESPONSE_BYTES).await
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::guard::Clients;

    #[test]
    fn an_id_stays_one_part_of_the_path() {
        let http = Clients::new(&holdfast_egress::Config::default()).unwrap().platform;
        let base = Url::parse("https://m.example/base/").unwrap();
        let server = Homeserver::new(http, base, "t".into(), Some("@bot:x".into()));

        let request = server.request(Method::GET, V3, &["rooms", "!a/../b?c#d:x", "state"], &[]);
        let url = request.unwrap().build().unwrap().url().to_string();

        assert_eq!(
            url,
            "https://m.example/base/_matrix/client/v3/rooms/!a%2F..%2Fb%3Fc%23d:x/state?user_id=%40bot%3Ax"
        );
        for id in ["", ".", ".."] {
            assert!(server.request(Method::GET, V3, &["rooms", id], &[]).is_err());
        }
    }
}
