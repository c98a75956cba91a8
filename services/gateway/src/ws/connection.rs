//! One connection after its handshake: its task, which reads, dispatches and writes frames.

use std::{
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicI64, AtomicU32, Ordering},
    },
    time::Duration,
};

use futures::{SinkExt as _, StreamExt as _};
use holdfast_directory::{DeviceProfile, DeviceRequest, Directory};
use holdfast_kit::BudgetShare;
use holdfast_types::TenantId;
use hyper::upgrade::Upgraded;
use hyper_util::rt::TokioIo;
use jiff::Timestamp;
use secrecy::{ExposeSecret as _, SecretString};
use tokio::time::timeout;
use tokio_tungstenite::{
    WebSocketStream,
    tungstenite::{
        Bytes, Error as SocketError, Message,
        protocol::{
            CloseFrame,
            frame::{
                Frame,
                coding::{CloseCode, Data, OpCode},
            },
        },
    },
};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::{
    Service,
    events::{Audience, Event},
    frames::{FrameTracker, NoRoom},
    handshake,
    hub::TenantHub,
    queue::{CloseReason, Outgoing, SendQueue},
    recorder::RecordedSocket,
    request,
};
use crate::{
    auth::CredentialHolder,
    permissions::operator_scopes::{Grants, OperatorScope},
};

pub type Socket = WebSocketStream<RecordedSocket<TokioIo<Upgraded>>>;

/// Time in which a client must take what is written to it.
const WRITE_TIMEOUT: Duration = Duration::from_secs(30);

/// Time for a client to answer the end of its connection.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(2);

/// Largest part of a message that is written as one frame. Larger messages would leave large buffers
/// behind.
const MAX_FRAME_BYTES: usize = 4 * 1024;

/// The same for a message that is not large, such as the first one, after which many connections are
/// idle.
const SMALL_FRAME_BYTES: usize = 1024;

/// Largest message that is written in small frames.
const MAX_SMALL_MESSAGE_BYTES: usize = 16 * 1024;

/// Bytes of frames after which the task of a connection reads again. A client that takes so many in
/// time is no slow reader, however much waits.
const MAX_WRITE_BYTES: usize = 64 * 1024;

/// Requests of a connection that are worked on at once. Further ones are refused.
pub const MAX_REQUESTS: u32 = 64;

/// Intervals of ticks without a frame from the client after which it counts as gone.
const MAX_SILENT_TICKS: i64 = 3;

/// Sessions to which one connection may subscribe.
pub const MAX_SUBSCRIPTIONS: usize = 256;

/// Protocol that the first frame has chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Protocol {
    /// OpenClaw's, in this version.
    OpenClaw(u32),
    LurkBot,
}

/// What a client says about itself, for other clients of its tenant.
#[derive(Debug, Clone, Default)]
pub struct ClientInfo {
    pub id: String,
    pub display_name: Option<String>,
    pub version: String,
    pub platform: String,
    pub mode: String,
    pub instance: Option<String>,
    /// Device that has signed the handshake.
    pub device: Option<Box<DeviceProfile>>,
    /// Whether it shows tool calls.
    pub wants_tools: bool,
    /// Whether it wants the events of sessions only that it has subscribed to.
    pub is_session_scoped: bool,
}

/// Sessions and events that a client wants.
#[derive(Debug, Default)]
pub struct Subscriptions {
    pub sessions: Vec<String>,
    /// Session of which LurkBot's client wants events; `None` is all.
    pub session_filter: Option<String>,
    /// Beginnings of names of events that LurkBot's client wants; empty is all.
    pub prefixes: Vec<String>,
    /// Subscriptions to the durable log of events.
    pub logs: Vec<LogSubscription>,
}

/// Subscription to the tenant's log of events.
#[derive(Debug)]
pub struct LogSubscription {
    /// Name that the client has given it.
    pub name: String,
    /// Cancelled when it ends. Nothing is sent for it afterwards.
    pub ended: CancellationToken,
}

#[derive(Debug)]
pub struct Connection {
    pub id: Uuid,
    pub tenant: TenantId,
    pub protocol: Protocol,
    pub grants: Grants,
    pub client: ClientInfo,
    pub queue: SendQueue,
    pub connected_at: i64,
    credential: SecretString,
    /// When the last frame arrived, in Unix milliseconds.
    heard_at: AtomicI64,
    requests: AtomicU32,
    /// Tokens of [`keep_until`](Self::keep_until).
    kept_until: Mutex<Vec<CancellationToken>>,
    /// Last request of this connection's device for further scopes.
    upgrade: Mutex<Option<Box<DeviceRequest>>>,
    subscriptions: Mutex<Subscriptions>,
    /// Cancelled when the connection ends, and with it requests that wait for something.
    pub ended: CancellationToken,
    _share: BudgetShare<TenantId>,
}

/// Identity of a new connection.
#[derive(Debug)]
pub struct NewConnection {
    pub tenant: TenantId,
    pub protocol: Protocol,
    pub grants: Grants,
    pub client: ClientInfo,
    pub credential: SecretString,
    /// Id of the frame that the handshake answers.
    pub handshake_id: String,
}

impl Connection {
    pub fn new(new: NewConnection, share: BudgetShare<TenantId>, send_buffer: usize) -> Self {
        let NewConnection { tenant, protocol, grants, client, credential, .. } = new;
        let now = now_ms();
        Self {
            id: Uuid::now_v7(),
            tenant,
            protocol,
            grants,
            client,
            queue: SendQueue::new(send_buffer),
            connected_at: now,
            credential,
            heard_at: AtomicI64::new(now),
            requests: AtomicU32::new(0),
            kept_until: Mutex::default(),
            upgrade: Mutex::default(),
            subscriptions: Mutex::default(),
            ended: CancellationToken::new(),
            _share: share,
        }
    }

    /// Whether a credential still has the tenant of the handshake, and at least its rights.
    pub fn is_of(&self, identity: &CredentialHolder) -> bool {
        identity.caller.tenant == self.tenant && self.grants.and(identity.grants) == self.grants
    }

    /// Whether the connection was made with the token of a device, and not with a key or by a person.
    pub fn has_device_token(&self) -> bool {
        Directory::is_device_token(self.credential())
    }

    pub fn credential(&self) -> &str {
        self.credential.expose_secret()
    }

    pub fn subscriptions(&self) -> MutexGuard<'_, Subscriptions> {
        self.subscriptions.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps the connection open until a request is answered that may end its own credential, so
    /// that the client gets the answer.
    pub fn keep_until(&self, answered: CancellationToken) {
        let mut kept = self.kept_until.lock().unwrap_or_else(PoisonError::into_inner);
        kept.retain(|answered| !answered.is_cancelled());
        kept.push(answered);
    }

    /// Ends the connection because its credential is not valid. One that is
    /// [kept](Self::keep_until) ends with its next request or tick after that.
    pub fn refuse_credential(&self) {
        let kept = self.kept_until.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.iter().all(CancellationToken::is_cancelled) {
            self.queue.close(CloseReason::INVALID_CREDENTIAL);
        }
    }

    /// Stores the request of this connection's device for further scopes.
    pub fn set_upgrade(&self, request: DeviceRequest) {
        let mut stored = self.upgrade.lock().unwrap_or_else(PoisonError::into_inner);
        *stored = Some(Box::new(request));
    }

    /// Takes the stored request for further scopes if it has this id.
    pub fn take_upgrade(&self, id: Uuid) -> Option<DeviceRequest> {
        let mut stored = self.upgrade.lock().unwrap_or_else(PoisonError::into_inner);
        stored.take_if(|request| request.id == id).map(|request| *request)
    }

    /// When the last frame arrived, in Unix milliseconds.
    pub fn heard_at(&self) -> i64 {
        self.heard_at.load(Ordering::Relaxed)
    }

    /// Sends an event, if the client wants it.
    pub fn tell(&self, event: &Event) {
        let is_wanted = match self.protocol {
            Protocol::OpenClaw(_) => !event.openclaw.is_empty() && self.wants(event),
            Protocol::LurkBot => !event.lurkbot.is_empty() && self.wants_by_filter(event),
        };
        if is_wanted {
            self.send(event);
        }
    }

    /// Sends an event that the client has asked for.
    fn send(&self, event: &Event) {
        self.queue.push_event(event.is_droppable, |seq| match self.protocol {
            Protocol::OpenClaw(_) => event.openclaw_frame(seq),
            Protocol::LurkBot => event.lurkbot_frame(now_ms()),
        });
    }

    /// Sends an event of a subscription to the log; `false` if the subscription has ended.
    pub fn send_logged(&self, subscription: &CancellationToken, event: &Event) -> bool {
        // Subscriptions end under this lock.
        let _subscriptions = self.subscriptions();
        if subscription.is_cancelled() {
            return false;
        }
        self.send(event);
        true
    }

    fn wants(&self, event: &Event) -> bool {
        let may_read = self.grants.has(OperatorScope::Read);
        match &event.audience {
            // Ticks keep a connection alive that may do nothing but chat.
            Audience::Readers => may_read || matches!(event.openclaw, "tick" | "shutdown"),
            // The hub knows who has subscribed.
            Audience::SessionList => may_read,
            Audience::Approvers => self.grants.has(OperatorScope::Approvals) || may_read,
            Audience::Pairing { device } => self.may_manage_device(device),
            Audience::Session { key, starter, is_tool_stream } => {
                if *is_tool_stream && !self.client.wants_tools {
                    return false;
                }
                let is_own = *starter == Some(self.id);
                let is_subscribed = || {
                    !self.client.is_session_scoped
                        || self.subscriptions().sessions.iter().any(|known| known == key)
                };
                is_own || (may_read && is_subscribed())
            }
        }
    }

    fn wants_by_filter(&self, event: &Event) -> bool {
        let is_own = matches!(&event.audience, Audience::Session { starter, .. }
            if *starter == Some(self.id));
        if !is_own && !self.grants.has(OperatorScope::Read) {
            return false;
        }
        let filters = self.subscriptions();
        let is_of_session = filters
            .session_filter
            .as_deref()
            .is_none_or(|wanted| event.session_key() == Some(wanted));
        let is_named = filters.prefixes.is_empty()
            || filters.prefixes.iter().any(|prefix| event.lurkbot.starts_with(prefix.as_str()));
        is_of_session && is_named
    }

    /// Id of the device that has signed the handshake.
    pub fn device_id(&self) -> Option<&str> {
        self.client.device.as_ref().map(|device| device.id.as_str())
    }

    /// Whether the connection may manage a device: all of them, or with the token of one only that.
    pub fn may_manage_device(&self, device: &str) -> bool {
        let is_limited = self.has_device_token() && !self.grants.has(OperatorScope::Admin);
        self.grants.has(OperatorScope::Pairing) && (!is_limited || self.device_id() == Some(device))
    }

    /// Counts a request that begins; `None` if too many are worked on.
    pub fn begin_request(self: &Arc<Self>) -> Option<RequestInFlight> {
        let before = self.requests.fetch_add(1, Ordering::Relaxed);
        let request = RequestInFlight(Arc::clone(self));
        (before < MAX_REQUESTS).then_some(request)
    }

    /// Ends the connection if the client has been silent for too long.
    pub fn check_silence(&self, now: i64, tick: Duration) {
        let tick = i64::try_from(tick.as_millis()).unwrap_or(i64::MAX);
        if now - self.heard_at() > tick.saturating_mul(MAX_SILENT_TICKS) {
            self.queue.close_now(CloseReason::SILENT);
        }
    }

    fn heard(&self) {
        self.heard_at.store(now_ms(), Ordering::Relaxed);
    }
}

/// A request that is worked on, until it is dropped.
#[derive(Debug)]
pub struct RequestInFlight(Arc<Connection>);

impl Drop for RequestInFlight {
    fn drop(&mut self) {
        self.0.requests.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Serves a connection until either side ends it.
pub async fn serve(
    mut socket: Socket,
    service: Arc<Service>,
    hub: Arc<TenantHub>,
    connection: Arc<Connection>,
) {
    let mut pings = tokio::time::interval(service.settings().tick_interval);
    pings.tick().await;
    let closing = loop {
        tokio::select! {
            incoming = socket.next() => match incoming {
                Some(Ok(Message::Text(text))) => {
                    connection.heard();
                    let charge = socket.get_mut().frames().and_then(FrameTracker::take_charge);
                    request::receive(&service, &hub, &connection, (text.as_str(), charge));
                    drop(text);
                    let Some(next) = renewed(socket, &service).await else {
                        return connection.ended.cancel();
                    };
                    socket = next;
                }
                Some(Ok(Message::Binary(_))) => break Some(CloseReason::BINARY),
                Some(Ok(Message::Ping(_) | Message::Pong(_))) => connection.heard(),
                Some(Ok(Message::Close(_) | Message::Frame(_))) | None => break None,
                Some(Err(SocketError::Capacity(_))) => break Some(CloseReason::TOO_LARGE),
                Some(Err(SocketError::Io(error))) if is_no_room(&error) => {
                    break Some(CloseReason::NO_ROOM);
                }
                Some(Err(_)) => break None,
            },
            outgoing = connection.queue.next() => match outgoing {
                Outgoing::Frame(frame) => {
                    if !write(&mut socket, &connection, frame).await {
                        break connection.queue.closing().or(Some(CloseReason::SLOW_READER));
                    }
                }
                Outgoing::Close(closing) => break Some(closing),
            },
            _ = pings.tick() => {
                if ping(&mut socket, &connection).await.is_none() {
                    break connection.queue.closing();
                }
            }
        }
    };
    connection.ended.cancel();
    if let Some(closing) = closing {
        close(&mut socket, closing).await;
    }
}

/// The socket, with a codec without the buffer of a large frame; `None` if the client is gone.
async fn renewed(mut socket: Socket, service: &Service) -> Option<Socket> {
    if !socket.get_mut().frames().is_some_and(|frames| frames.has_ended_large()) {
        return Some(socket);
    }
    // Answers to pings may wait in the codec.
    timeout(WRITE_TIMEOUT, socket.flush()).await.ok()?.ok()?;
    Some(handshake::renew(service, socket).await)
}

fn is_no_room(error: &std::io::Error) -> bool {
    error.get_ref().is_some_and(|error| error.is::<NoRoom>())
}

/// Ends a connection with a code and a reason.
pub async fn close(socket: &mut Socket, CloseReason { code, reason }: CloseReason) {
    let frame = CloseFrame { code: CloseCode::from(code), reason: reason.into() };
    let said = async {
        socket.close(Some(frame)).await.ok()?;
        while let Some(Ok(_)) = socket.next().await {}
        Some(())
    };
    // A client that does not read is not waited for.
    drop(timeout(CLOSE_TIMEOUT, said).await);
}

/// Writes a frame and some of those that wait behind it; `false` if the client does not take them.
async fn write(socket: &mut Socket, connection: &Connection, first: String) -> bool {
    let written = async {
        let (mut next, mut bytes) = (Some(first), 0);
        while let Some(frame) = next {
            bytes += frame.len();
            feed(socket, frame).await?;
            next = if bytes < MAX_WRITE_BYTES { connection.queue.take_frame() } else { None };
        }
        socket.flush().await
    };
    tokio::select! {
        biased;
        () = connection.queue.aborted() => false,
        written = timeout(WRITE_TIMEOUT, written) => matches!(written, Ok(Ok(()))),
    }
}

async fn ping(socket: &mut Socket, connection: &Connection) -> Option<()> {
    let sent = timeout(WRITE_TIMEOUT, socket.send(Message::Ping(Bytes::new())));
    tokio::select! {
        biased;
        () = connection.queue.aborted() => None,
        sent = sent => sent.ok()?.ok(),
    }
}

async fn feed(socket: &mut Socket, text: String) -> Result<(), SocketError> {
    let size = match text.len() {
        0..=MAX_SMALL_MESSAGE_BYTES => SMALL_FRAME_BYTES,
        _ => MAX_FRAME_BYTES,
    };
    if text.len() <= size {
        return socket.feed(Message::text(text)).await;
    }
    let mut rest = Bytes::from(text);
    let mut opcode = OpCode::Data(Data::Text);
    while !rest.is_empty() {
        let part = rest.split_to(rest.len().min(size));
        let frame = Frame::message(part, opcode, rest.is_empty());
        socket.feed(Message::Frame(frame)).await?;
        opcode = OpCode::Data(Data::Continue);
    }
    Ok(())
}

pub fn now_ms() -> i64 {
    Timestamp::now().as_millisecond()
}

#[cfg(test)]
mod tests {
    use holdfast_kit::Budget;

    use super::*;

    #[test]
    fn a_connection_whose_credential_ends_gets_the_answer_that_ended_it() {
        let tenant = TenantId::generate();
        let new = NewConnection {
            tenant,
            protocol: Protocol::OpenClaw(4),
            grants: Grants::default(),
            client: ClientInfo::default(),
            credential: "old".into(),
            handshake_id: "1".to_owned(),
        };
        let connection = Connection::new(new, Budget::new(1, 1).share(tenant), 1024);
        let answered = CancellationToken::new();
        connection.keep_until(answered.clone());

        connection.refuse_credential();

        assert_eq!(connection.queue.closing(), None);
        answered.cancel();
        connection.refuse_credential();
        assert_eq!(connection.queue.closing(), Some(CloseReason::INVALID_CREDENTIAL));
    }
}
