//! A client of the WebSocket gateway, in version 4 of OpenClaw's protocol.

use std::{
    net::{Ipv4Addr, SocketAddr},
    time::Duration,
};

use anyhow::{Context as _, ensure};
use futures::{SinkExt as _, StreamExt as _};
use secrecy::{ExposeSecret as _, SecretString};
use serde_json::{Value, json};
use tokio::{
    net::{TcpSocket, TcpStream},
    time::{Instant, sleep, timeout},
};
use tokio_tungstenite::{
    WebSocketStream, client_async_with_config,
    tungstenite::{
        Message,
        client::IntoClientRequest as _,
        http::{HeaderName, HeaderValue},
        protocol::WebSocketConfig,
    },
};
use uuid::Uuid;

const ANSWER_TIMEOUT: Duration = Duration::from_secs(60);

/// The gateway limits connections by address, so that clients come from several.
const ADDRESSES: usize = 8;

/// One connection after its handshake.
#[derive(Debug)]
pub struct Socket {
    stream: WebSocketStream<TcpStream>,
}

/// Which events a client wants.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wants {
    /// Those of its own turns and of sessions that it subscribes to.
    Own,
    /// All of the tenant.
    All,
}

impl Socket {
    /// Opens a connection and shakes hands. The address that it comes from depends on `nth`.
    ///
    /// # Errors
    ///
    /// If there is no gateway, or if it refuses the key.
    pub async fn open(
        at: SocketAddr,
        key: &SecretString,
        nth: usize,
        wants: Wants,
    ) -> anyhow::Result<Self> {
        let caps = match wants {
            Wants::Own => json!(["session-scoped-events"]),
            Wants::All => json!([]),
        };
        let params = json!({
            "minProtocol": 4, "maxProtocol": 4, "caps": caps,
            "client": { "id": "gateway-client", "version": "1", "platform": "linux", "mode": "backend" },
            "auth": { "token": key.expose_secret() },
        });
        Self::connect(at, "/ws", [], nth, params).await
    }

    /// Opens a connection at a path and shakes hands with these parameters.
    ///
    /// # Errors
    ///
    /// If there is no gateway, or if it refuses the credential.
    pub async fn connect<const N: usize>(
        at: SocketAddr,
        path: &str,
        headers: [(HeaderName, String); N],
        nth: usize,
        params: Value,
    ) -> anyhow::Result<Self> {
        let mut request = format!("ws://{at}{path}").into_client_request()?;
        for (name, value) in headers {
            request.headers_mut().insert(name, HeaderValue::from_str(&value)?);
        }
        let shaken = async {
            let socket = TcpSocket::new_v4()?;
            let last = u8::try_from(nth % ADDRESSES + 1)?;
            socket.bind((Ipv4Addr::new(127, 0, 0, last), 0).into())?;
            let tcp = socket.connect(at).await?;
            tcp.set_nodelay(true)?;
            let config = WebSocketConfig::default().read_buffer_size(4096).write_buffer_size(0);
            let (stream, _) = client_async_with_config(request, tcp, Some(config)).await?;
            let mut opened = Self { stream };
            let challenge = opened.next().await?;
            ensure!(challenge["event"] == "connect.challenge", "the first frame is {challenge}");
            opened.call("connect", params).await?;
            Ok(opened)
        };
        timeout(ANSWER_TIMEOUT, shaken).await.context("a handshake took longer than a minute")?
    }

    /// Calls a method and returns its answer. Events that come before it are skipped.
    ///
    /// # Errors
    ///
    /// If it is refused, or the connection ends.
    pub async fn call(&mut self, method: &str, params: Value) -> anyhow::Result<Value> {
        let id = self.begin(method, params).await?;
        loop {
            let frame = self.next().await?;
            if frame["id"] == *id {
                ensure!(frame["ok"] == true, "`{method}` was refused: {frame}");
                return Ok(frame["payload"].clone());
            }
        }
    }

    /// Calls a method, and returns the id that its answer will have.
    ///
    /// # Errors
    ///
    /// If the connection has ended.
    pub async fn begin(&mut self, method: &str, params: Value) -> anyhow::Result<String> {
        let id = Uuid::now_v7().to_string();
        let frame = json!({ "type": "req", "id": id, "method": method, "params": params });
        self.stream.send(Message::text(frame.to_string())).await?;
        Ok(id)
    }

    /// Sends a message and waits for the end of its turn. Returns the time that it took, with that of
    /// repetitions that the gateway asked for.
    ///
    /// # Errors
    ///
    /// If the turn fails, the connection ends, or a minute has passed.
    pub async fn turn(&mut self, session: &str, text: &str) -> anyhow::Result<Duration> {
        let begun = Instant::now();
        timeout(ANSWER_TIMEOUT, self.follow(session, text))
            .await
            .context("a turn took longer than a minute")??;
        Ok(begun.elapsed())
    }

    async fn follow(&mut self, session: &str, text: &str) -> anyhow::Result<()> {
        let key = Uuid::now_v7().to_string();
        let params = json!({ "sessionKey": session, "message": text, "idempotencyKey": key });
        let request = json!({ "type": "req", "id": key, "method": "chat.send", "params": params });
        self.stream.send(Message::text(request.to_string())).await?;
        loop {
            let frame = self.next().await?;
            if frame["ok"] == false {
                let error = &frame["error"];
                let delay = error["retryAfterMs"].as_u64().filter(|_| error["retryable"] == true);
                let delay = delay.with_context(|| format!("`chat.send` was refused: {error}"))?;
                sleep(Duration::from_millis(delay)).await;
                self.stream.send(Message::text(request.to_string())).await?;
                continue;
            }
            let payload = &frame["payload"];
            if frame["event"] != "chat" || payload["runId"] != *key {
                continue;
            }
            match payload["state"].as_str() {
                Some("final") => return Ok(()),
                Some("error" | "aborted") => anyhow::bail!("a turn failed: {payload}"),
                _ => {}
            }
        }
    }

    /// Reads frames until the connection ends; answers pings.
    pub async fn idle(&mut self) {
        while let Some(Ok(_)) = self.stream.next().await {}
    }

    /// Next frame.
    ///
    /// # Errors
    ///
    /// If the connection ends.
    pub async fn next(&mut self) -> anyhow::Result<Value> {
        loop {
            match self.stream.next().await.context("the gateway ended the connection")?? {
                Message::Text(text) => return Ok(serde_json::from_str(&text)?),
                Message::Close(frame) => {
                    anyhow::bail!("the gateway ended the connection: {frame:?}")
                }
                Message::Binary(_) | Message::Ping(_) | Message::Pong(_) | Message::Frame(_) => {}
            }
        }
    }
}
