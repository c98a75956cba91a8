//! WebSocket connections to platforms.

use std::time::Duration;

use reqwest::Url;
use tokio::time::timeout;
use tokio_tungstenite::{
    WebSocketStream, client_async_with_config,
    tungstenite::{Message, client::IntoClientRequest as _, protocol::WebSocketConfig},
};

use crate::guard::{Clients, Encryption, Stream};

/// Maximum size of a message, in bytes. A server's list of channels is the largest.
const MAX_MESSAGE_BYTES: usize = 16 * 1024 * 1024;

/// Time in which a server must have accepted the connection.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(15);

pub type WebSocket = WebSocketStream<Box<dyn Stream>>;

/// Connects to a `ws` or `wss` address.
///
/// # Errors
///
/// Why not, for people; never the address, which may contain a secret.
pub async fn connect(clients: &Clients, address: &str) -> Result<WebSocket, String> {
    let not_one = || "the platform gave an address that is none".to_owned();
    let url = Url::parse(address).map_err(|_| not_one())?;
    let (encryption, default_port) = match url.scheme() {
        "wss" => (Encryption::Tls("http/1.1"), 443),
        "ws" => (Encryption::None, 80),
        _ => return Err(not_one()),
    };
    let host = url.host_str().ok_or_else(not_one)?.trim_start_matches('[').trim_end_matches(']');
    let stream = clients.connect(host, url.port().unwrap_or(default_port), encryption).await?;
    let request = address.into_client_request().map_err(|_| not_one())?;
    let config = WebSocketConfig::default()
        .max_message_size(Some(MAX_MESSAGE_BYTES))
        .max_frame_size(Some(MAX_MESSAGE_BYTES));
    let opened =
        timeout(HANDSHAKE_TIMEOUT, client_async_with_config(request, stream, Some(config)));
    match opened.await {
        Ok(Ok((socket, _))) => Ok(socket),
        Ok(Err(_)) => Err("the platform did not accept the connection".to_owned()),
        Err(_) => Err("the platform did not answer in time".to_owned()),
    }
}

/// Returns a message as JSON; `None` if it is another kind of message.
pub fn json(message: &Message) -> Option<serde_json::Value> {
    match message {
        Message::Text(text) => serde_json::from_str(text).ok(),
        Message::Binary(bytes) => serde_json::from_slice(bytes).ok(),
        Message::Ping(_) | Message::Pong(_) | Message::Close(_) | Message::Frame(_) => None,
    }
}
