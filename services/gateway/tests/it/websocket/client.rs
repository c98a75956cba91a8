//! A client of the WebSocket gateway.

use std::net::SocketAddr;

use anyhow::{Context as _, bail};
use futures::{SinkExt as _, StreamExt as _};
use serde_json::{Value, json};
use tokio::{net::TcpStream, time::timeout};
use tokio_tungstenite::{
    WebSocketStream, client_async,
    tungstenite::{
        self, Message, client::IntoClientRequest as _, http::HeaderValue, protocol::CloseFrame,
    },
};

use crate::world::PATIENCE;

pub struct Client {
    socket: WebSocketStream<TcpStream>,
    next: u64,
    /// Events that arrived while a response was waited for.
    pub events: Vec<Value>,
}

/// Result of a call: the payload, or the error.
pub type Called = Result<Value, Value>;

impl Client {
    pub async fn open(address: SocketAddr, path: &str) -> anyhow::Result<Self> {
        let socket = TcpStream::connect(address).await?;
        let (socket, _) = client_async(format!("ws://{address}{path}"), socket).await?;
        Ok(Self::of(socket))
    }

    /// Client behind a proxy, with this address. Returns the status if it is refused.
    pub async fn open_from(
        address: SocketAddr,
        forwarded: &str,
    ) -> anyhow::Result<Result<Self, u16>> {
        let socket = TcpStream::connect(address).await?;
        let mut request = format!("ws://{address}/").into_client_request()?;
        request.headers_mut().insert("x-forwarded-for", HeaderValue::from_str(forwarded)?);
        match client_async(request, socket).await {
            Ok((socket, _)) => Ok(Ok(Self::of(socket))),
            Err(tungstenite::Error::Http(refused)) => Ok(Err(refused.status().as_u16())),
            Err(error) => Err(error.into()),
        }
    }

    /// Client on an open connection.
    pub fn of(socket: WebSocketStream<TcpStream>) -> Self {
        Self { socket, next: 0, events: Vec::new() }
    }

    /// Connects as an OpenClaw client that wants everything that the key permits.
    pub async fn openclaw(address: SocketAddr, token: &str) -> anyhow::Result<Self> {
        let (client, hello) = Self::connect(address, connect_params(token)).await?;
        let hello = hello.map_err(|error| anyhow::anyhow!("refused: {error}"))?;
        anyhow::ensure!(hello["type"] == "hello-ok", "{hello}");
        Ok(client)
    }

    /// Connects with these parameters, and returns the answer.
    pub async fn connect(address: SocketAddr, params: Value) -> anyhow::Result<(Self, Called)> {
        Self::connect_signed(address, |_| params).await
    }

    /// Connects with parameters that depend on the nonce of the challenge.
    pub async fn connect_signed(
        address: SocketAddr,
        params: impl FnOnce(&str) -> Value,
    ) -> anyhow::Result<(Self, Called)> {
        let mut client = Self::open(address, "/").await?;
        let challenge = client.frame().await?;
        anyhow::ensure!(challenge["event"] == "connect.challenge", "{challenge}");
        let nonce = challenge["payload"]["nonce"].as_str().context("no nonce")?;
        let answer = client.call("connect", params(nonce)).await?;
        Ok((client, answer))
    }

    /// Connects as a client of LurkBot.
    pub async fn lurkbot(address: SocketAddr, hello: Value) -> anyhow::Result<(Self, Value)> {
        let mut client = Self::open(address, "/ws").await?;
        client.send(&hello).await?;
        let mut answer = client.frame().await?;
        // A client that is slow to begin is sent a challenge of the other protocol.
        if answer["event"] == "connect.challenge" {
            answer = client.frame().await?;
        }
        Ok((client, answer))
    }

    pub async fn send(&mut self, frame: &Value) -> anyhow::Result<()> {
        self.send_text(frame.to_string()).await
    }

    pub async fn send_text(&mut self, text: String) -> anyhow::Result<()> {
        Ok(self.socket.send(Message::text(text)).await?)
    }

    /// Next frame; an error if the connection ends.
    pub async fn frame(&mut self) -> anyhow::Result<Value> {
        loop {
            let next = timeout(PATIENCE, self.socket.next()).await.context("nothing came")?;
            match next.context("the connection has ended")?? {
                Message::Text(text) => return Ok(serde_json::from_str(text.as_str())?),
                Message::Ping(_) | Message::Pong(_) => {}
                other => bail!("no frame: {other:?}"),
            }
        }
    }

    /// Waits for the end of the connection, and returns its reason.
    pub async fn closed(&mut self) -> anyhow::Result<Option<CloseFrame>> {
        loop {
            match timeout(PATIENCE, self.socket.next()).await.context("it stays open")? {
                Some(Ok(Message::Close(frame))) => return Ok(frame),
                Some(Ok(_)) => {}
                Some(Err(_)) | None => return Ok(None),
            }
        }
    }

    /// Calls a method of OpenClaw's protocol.
    pub async fn call(&mut self, method: &str, params: Value) -> anyhow::Result<Called> {
        let id = self.begin(method, params).await?;
        self.response(&id).await
    }

    pub async fn begin(&mut self, method: &str, params: Value) -> anyhow::Result<String> {
        self.next += 1;
        let id = format!("r{}", self.next);
        let frame = json!({ "type": "req", "id": id, "method": method, "params": params });
        self.send(&frame).await?;
        Ok(id)
    }

    pub async fn response(&mut self, id: &str) -> anyhow::Result<Called> {
        loop {
            let frame = self.frame().await?;
            if frame["type"] == "event" {
                self.events.push(frame);
            } else if frame["id"] == id {
                return Ok(match frame["ok"] == true {
                    true => Ok(frame["payload"].clone()),
                    false => Err(frame["error"].clone()),
                });
            }
        }
    }

    /// Waits for an event; those before it are dropped.
    pub async fn event(&mut self, is_wanted: impl Fn(&Value) -> bool) -> anyhow::Result<Value> {
        let known = self.events.iter().position(&is_wanted);
        if let Some(at) = known {
            return Ok(self.events.drain(..=at).next_back().unwrap_or_default());
        }
        self.events.clear();
        loop {
            let frame = self.frame().await?;
            if frame["type"] == "event" && is_wanted(&frame) {
                return Ok(frame);
            }
        }
    }

    /// Waits for the end of a turn, and returns its last event `chat`.
    pub async fn chat_end(&mut self, run: &str) -> anyhow::Result<Value> {
        Ok(self.event(|frame| is_end(frame, run)).await?["payload"].clone())
    }
}

/// Whether an event tells the end of a turn.
pub fn is_end(frame: &Value, run: &str) -> bool {
    frame["event"] == "chat"
        && frame["payload"]["runId"] == run
        && !matches!(frame["payload"]["state"].as_str(), Some("delta" | "status"))
}

/// Parameters of a client of OpenClaw that asks for all scopes.
pub fn connect_params(token: &str) -> Value {
    json!({
        "minProtocol": 3,
        "maxProtocol": 4,
        "client": { "id": "test", "version": "1", "platform": "linux", "mode": "test" },
        "caps": ["tool-events"],
        "role": "operator",
        "auth": { "token": token },
    })
}

/// First frame of a client of LurkBot.
pub fn hello(token: &str) -> Value {
    json!({
        "type": "hello",
        "minProtocol": 1,
        "maxProtocol": 1,
        "client": { "id": "test", "version": "1", "platform": "linux", "mode": "cli" },
        "auth": { "token": token },
    })
}

/// Text of a message of a history or an event.
pub fn text_of(message: &Value) -> String {
    let parts = message["content"].as_array().cloned().unwrap_or_default();
    parts.iter().filter_map(|part| part["text"].as_str()).collect()
}
