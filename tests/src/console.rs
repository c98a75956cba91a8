//! An open console: a sign-in, the calls of a page that is loaded, and its WebSocket.

use std::net::{Ipv4Addr, SocketAddr};

use anyhow::{Context as _, ensure};
use reqwest::{Client, header};
use secrecy::{ExposeSecret as _, SecretString};
use serde_json::{Value, json};

use crate::websocket::Socket;

/// A message without fields, as the body of a gRPC-web call.
const EMPTY_MESSAGE: &[u8] = &[0; 5];

/// What a page calls when it is loaded; none needs a field.
const FIRST_CALLS: [&str; 4] =
    ["People/GetCaller", "Operations/GetInboxCounts", "Agents/ListAgents", "Sessions/ListSessions"];

/// A browser's sign-in.
#[derive(Debug)]
pub struct ConsoleSession {
    at: SocketAddr,
    /// Public id.
    id: String,
    /// Name and secret, as the browser sends them.
    cookie: String,
}

impl ConsoleSession {
    /// Signs in with a key. The address that it seems to come from depends on `nth`, since sign-ins are
    /// limited by address.
    ///
    /// # Errors
    ///
    /// If the gateway cannot be reached or refuses the key.
    pub async fn begin(
        http: &Client,
        at: SocketAddr,
        key: &SecretString,
        nth: usize,
    ) -> anyhow::Result<Self> {
        let [_, _, high, low] = u32::try_from(nth)?.to_be_bytes();
        let address = Ipv4Addr::new(10, 0, high, low);
        let body = json!({"key": key.expose_secret()});
        let answer = http
            .post(format!("http://{at}/console/sign-in"))
            .header(header::ORIGIN, format!("http://{at}"))
            .header("x-forwarded-for", address.to_string())
            .json(&body)
            .send()
            .await?
            .error_for_status()?;
        let cookie = answer.headers().get(header::SET_COOKIE).context("no cookie was set")?;
        let cookie = cookie.to_str()?.split(';').next().unwrap_or_default().to_owned();
        let answer: Value = answer.json().await?;
        let id = answer["session"].as_str().context("the sign-in has no id")?.to_owned();
        Ok(Self { at, id, cookie })
    }

    /// Makes the calls of a page that is loaded, one after the other.
    ///
    /// # Errors
    ///
    /// If a call fails.
    pub async fn load_page(&self, http: &Client) -> anyhow::Result<()> {
        for method in FIRST_CALLS {
            let answer = http
                .post(format!("http://{}/console/api/holdfast.gateway.v1.{method}", self.at))
                .header(header::ORIGIN, self.origin())
                .header(header::COOKIE, &self.cookie)
                .header(header::CONTENT_TYPE, "application/grpc-web+proto")
                .header("x-holdfast-session", &self.id)
                .body(EMPTY_MESSAGE)
                .send()
                .await?
                .error_for_status()?;
            let body = answer.bytes().await?;
            let is_ok = String::from_utf8_lossy(&body).contains("grpc-status:0");
            ensure!(is_ok, "`{method}` failed: {}", String::from_utf8_lossy(&body));
        }
        Ok(())
    }

    /// Opens the WebSocket and subscribes to everything that a page follows.
    ///
    /// # Errors
    ///
    /// If the gateway refuses it.
    pub async fn open_socket(&self, nth: usize) -> anyhow::Result<Socket> {
        let path = format!("/console/ws?session={}", self.id);
        let headers = [(header::COOKIE, self.cookie.clone()), (header::ORIGIN, self.origin())];
        let params = json!({
            "minProtocol": 4, "maxProtocol": 4, "caps": ["tool-events"],
            "client": { "id": "holdfast-console", "version": "1", "platform": "web", "mode": "webchat" },
            "role": "operator",
            "scopes": ["operator.read", "operator.write", "operator.approvals"],
        });
        let mut socket = Socket::connect(self.at, &path, headers, nth, params).await?;
        socket.call("sessions.subscribe", json!({})).await?;
        let log = json!({"subscription": "console", "start": "now"});
        socket.call("events.log.subscribe", log).await?;
        Ok(socket)
    }

    fn origin(&self) -> String {
        format!("http://{}", self.at)
    }
}
