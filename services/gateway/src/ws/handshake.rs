//! Handshake: the first frame decides the protocol, and its credential the tenant.

use std::{sync::Arc, time::Duration};

use futures::{SinkExt as _, StreamExt as _};
use holdfast_directory::Directory;
use holdfast_kit::{BudgetShare, BudgetSpent};
use holdfast_types::TenantId;
use hyper::upgrade::Upgraded;
use hyper_util::rt::TokioIo;
use secrecy::SecretString;
use serde_json::Value;
use tokio::time::timeout;
use tokio_tungstenite::{
    WebSocketStream,
    tungstenite::{
        Error as SocketError, Message,
        protocol::{Role, WebSocketConfig},
    },
};

use super::{
    Service,
    connection::{self, Connection, NewConnection, Socket},
    error::{ErrorKind, MethodError},
    frames::FrameTracker,
    lurkbot,
    openclaw::{self, Challenge, pairing::Pairing},
    queue::CloseReason,
    recorder::RecordedSocket,
};
use crate::auth::CredentialHolder;

/// Maximum size of a frame before the handshake, in bytes.
const MAX_FIRST_FRAME_BYTES: usize = 64 * 1024;

/// Messages that may come before the one that shakes hands: pings.
const MAX_MESSAGES_BEFORE: usize = 16;

/// Buffers of a connection, in bytes. They are held while it is idle.
const READ_BUFFER_BYTES: usize = 1024;
const WRITE_BUFFER_BYTES: usize = 1024;

/// Time for a client of LurkBot to send the first frame before it is sent a challenge, on the path
/// of that protocol.
const LURKBOT_HEAD_START: Duration = Duration::from_millis(250);

/// Result of a handshake.
pub struct OpenConnection {
    pub socket: Socket,
    pub connection: Arc<Connection>,
    /// First frame that the server sends.
    pub greeting: String,
}

/// Client that has shown a valid credential.
pub struct AcceptedClient {
    pub identity: CredentialHolder,
    pub new: NewConnection,
    /// Set for a device.
    pub pairing: Option<Pairing>,
}

/// Refusal of a handshake: the frame to answer with, if the protocol is known.
pub struct Refusal {
    pub frame: Option<String>,
    pub closing: CloseReason,
}

/// Path on which a client has connected, as far as the handshake depends on it.
#[derive(Debug)]
pub enum ConnectionPath {
    OpenClaw,
    /// LurkBot's clients speak first.
    LurkBot,
    /// The web console, with the token of its session. The client shows no other credential.
    Console(SecretString),
}

impl ConnectionPath {
    /// Time for the client to send the first frame before it is sent a challenge.
    const fn head_start(&self) -> Duration {
        match self {
            Self::LurkBot => LURKBOT_HEAD_START,
            Self::OpenClaw | Self::Console(_) => Duration::ZERO,
        }
    }

    const fn session(&self) -> Option<&SecretString> {
        match self {
            Self::Console(token) => Some(token),
            Self::OpenClaw | Self::LurkBot => None,
        }
    }
}

/// Shakes hands within the time for it. Returns `None` if the client was refused, or is gone.
pub async fn establish(
    service: &Service,
    upgraded: Upgraded,
    path: &ConnectionPath,
) -> Option<OpenConnection> {
    let recorded = RecordedSocket::new(TokioIo::new(upgraded));
    let config = config(MAX_FIRST_FRAME_BYTES);
    let mut socket = WebSocketStream::from_raw_socket(recorded, Role::Server, Some(config)).await;
    let limit = service.settings().handshake_timeout;
    let shaken = timeout(limit, shake_hands(service, &mut socket, path)).await;
    let refusal = match shaken {
        Ok(Ok((client, messages))) => match admit(service, &client) {
            Ok(share) => {
                let (connection, greeting) = greet(service, client, share).await;
                let tenant = connection.tenant;
                let socket = raise_limit(service, socket, (messages, tenant)).await?;
                return Some(OpenConnection { socket, connection, greeting });
            }
            Err(error) => refuse(&client.new, &error),
        },
        Ok(Err(Some(refusal))) => refusal,
        Ok(Err(None)) => return None,
        Err(_) => {
            let closing = CloseReason { code: 1008, reason: "no handshake in time" };
            Refusal { frame: None, closing }
        }
    };
    metrics::counter!(
        "holdfast_gateway_requests_total", "door" => "websocket", "outcome" => "unauthenticated"
    )
    .increment(1);
    if let Some(frame) = refusal.frame {
        drop(timeout(limit, socket.send(Message::text(frame))).await);
    }
    connection::close(&mut socket, refusal.closing).await;
    None
}

/// Reads the first frame, and verifies its credential. Also returns the number of messages read.
async fn shake_hands(
    service: &Service,
    socket: &mut Socket,
    path: &ConnectionPath,
) -> Result<(AcceptedClient, usize), Option<Refusal>> {
    let challenge = Challenge::new();
    let mut first = timeout(path.head_start(), socket.next()).await.ok();
    if first.is_none() {
        socket.send(Message::text(challenge.frame())).await.map_err(|_| None)?;
    }
    for messages in 1..=MAX_MESSAGES_BEFORE {
        let next = match first.take() {
            Some(next) => next,
            None => socket.next().await,
        };
        let text = match next {
            Some(Ok(Message::Text(text))) => text,
            Some(Ok(Message::Ping(_) | Message::Pong(_))) => continue,
            Some(Ok(Message::Binary(_))) => return Err(closed(CloseReason::BINARY)),
            Some(Err(SocketError::Capacity(_))) => {
                let reason = "the first frame has 64 kB at most";
                return Err(closed(CloseReason { code: 1009, reason }));
            }
            Some(Ok(Message::Close(_) | Message::Frame(_)) | Err(_)) | None => return Err(None),
        };
        let accepted = accept_first(service, text.as_str(), &challenge, path).await;
        return accepted.map(|client| (client, messages)).map_err(Some);
    }
    Err(closed(CloseReason { code: 1008, reason: "the first frame is no handshake" }))
}

async fn accept_first(
    service: &Service,
    text: &str,
    challenge: &Challenge,
    path: &ConnectionPath,
) -> Result<AcceptedClient, Refusal> {
    let frame: Value = serde_json::from_str(text).unwrap_or_default();
    match frame.get("type").and_then(Value::as_str) {
        Some("req") => openclaw::connect(service, frame, (challenge, path.session())).await,
        Some("hello") if path.session().is_none() => lurkbot::hello(service, frame).await,
        _ => {
            let reason = "the first frame must be `connect` or `hello`";
            Err(Refusal { frame: None, closing: CloseReason { code: 1008, reason } })
        }
    }
}

const fn closed(closing: CloseReason) -> Option<Refusal> {
    Some(Refusal { frame: None, closing })
}

/// Counts the connection for its tenant.
fn admit(service: &Service, client: &AcceptedClient) -> Result<BudgetShare<TenantId>, MethodError> {
    let config = service.settings();
    let limits = (config.connections.into(), config.connections_per_tenant.into());
    let budget = service.tenant_connections();
    budget.set_limits(limits.0, limits.1);
    let share = budget.share(client.identity.caller.tenant);
    let full = |spent| {
        let message = match spent {
            BudgetSpent::Total => "the gateway has as many connections as it may".to_owned(),
            BudgetSpent::Owner => {
                format!("the tenant has {} connections, which is the most: end one", limits.1)
            }
        };
        let retry_after = Some(Duration::from_secs(5));
        MethodError { retry_after, ..MethodError::new(ErrorKind::Unavailable, message) }
    };
    share.grow(1).map_err(full)?;
    Ok(share)
}

fn refuse(new: &NewConnection, error: &MethodError) -> Refusal {
    let closing = CloseReason { code: 1013, reason: "too many connections: try again later" };
    let frame = match new.protocol {
        connection::Protocol::OpenClaw(_) => openclaw::refusal(&new.handshake_id, error),
        connection::Protocol::LurkBot => lurkbot::refusal(&new.handshake_id, error),
    };
    Refusal { frame: Some(frame), closing }
}

async fn greet(
    service: &Service,
    client: AcceptedClient,
    share: BudgetShare<TenantId>,
) -> (Arc<Connection>, String) {
    let AcceptedClient { identity, new, pairing } = client;
    // Tokens are issued only to clients that are let in.
    let token = match pairing {
        Some(pairing) => pairing.settle(service, &identity).await,
        None => None,
    };
    let id = new.handshake_id.clone();
    let connection = Connection::new(new, share, service.settings().send_buffer);
    let connection = Arc::new(connection);
    let greeting = match connection.protocol {
        connection::Protocol::OpenClaw(_) => {
            let caller = &identity.caller;
            openclaw::hello_ok(service, caller, &connection, (&id, token)).await
        }
        connection::Protocol::LurkBot => {
            lurkbot::hello_ok(service, &identity.caller, &connection).await
        }
    };
    (connection, greeting)
}

/// Replaces the codec by one for frames of the usual size. `None` if what the client has sent already
/// is too large now.
async fn raise_limit(
    service: &Service,
    socket: Socket,
    (messages, tenant): (usize, TenantId),
) -> Option<Socket> {
    let frames = FrameTracker::new(service.doorman.bodies().clone(), tenant);
    let (recorded, rest) = socket.into_inner().finish(messages, frames).ok()?;
    Some(codec(service, recorded, rest).await)
}

/// Replaces the codec after a large frame, whose buffer it keeps. It must hold nothing.
pub async fn renew(service: &Service, socket: Socket) -> Socket {
    let mut recorded = socket.into_inner();
    if let Some(frames) = recorded.frames() {
        frames.reset();
    }
    codec(service, recorded, Vec::new()).await
}

async fn codec(
    service: &Service,
    recorded: RecordedSocket<TokioIo<Upgraded>>,
    rest: Vec<u8>,
) -> Socket {
    let config = config(service.settings().max_payload);
    WebSocketStream::from_partially_read(recorded, rest, Role::Server, Some(config)).await
}

fn config(max_bytes: usize) -> WebSocketConfig {
    WebSocketConfig::default()
        .read_buffer_size(READ_BUFFER_BYTES)
        .write_buffer_size(WRITE_BUFFER_BYTES)
        .max_write_buffer_size(4 * MAX_FIRST_FRAME_BYTES)
        .max_message_size(Some(max_bytes))
        .max_frame_size(Some(max_bytes))
}

/// Credential of a handshake: a token, or the same as a password. The token of a console session is
/// none: it is accepted as a cookie only.
pub fn credential(token: Option<String>, password: Option<String>) -> Option<SecretString> {
    let given = token.filter(|token| !token.is_empty()).or(password);
    let is_usable = |given: &String| !given.is_empty() && !Directory::is_console_token(given);
    given.filter(is_usable).map(SecretString::from)
}
