//! The gateway: a WebSocket with heartbeat, identify and resume
//! (<https://discord.com/developers/docs/events/gateway>).
//!
//! Events are handled in order on a task of their own. The sequence number that a resumed connection
//! names is that of the last event which was handled, so what was not handled comes again.

use std::{
    sync::{Arc, PoisonError},
    time::Duration,
};

use futures::{SinkExt as _, StreamExt as _};
use reqwest::Method;
use secrecy::ExposeSecret as _;
use serde_json::{Value, json};
use tokio::time::{Instant, MissedTickBehavior, interval_at, timeout};
use tokio_tungstenite::tungstenite::{Message, protocol::CloseFrame};
use tokio_util::sync::CancellationToken;
use tracing::{Instrument as _, debug, info, info_span, warn};

use super::{
    Discord,
    client::{CallError, Content},
    judge::{self, Interaction},
};
use crate::{
    channel::ChannelAccount,
    connection::Disconnected,
    inbound::{self, EventQueue, RetryMode, Verdict},
    media::{self, FileServer},
    websocket::{self, WebSocket},
};

/// Events that are sent: servers, messages in them, direct messages, and their content
/// (<https://discord.com/developers/docs/events/gateway#gateway-intents>).
const INTENTS: u64 = 1 | 1 << 9 | 1 << 12 | 1 << 15;

/// Time in which the server must greet.
const HELLO_TIMEOUT: Duration = Duration::from_secs(20);

/// Number of events that wait for the gateway of the mesh. Beyond it the connection is closed, and
/// resumed later.
const MAX_WAITING_EVENTS: usize = 1000;

/// Close code of a client that will resume.
const RESUMABLE: u16 = 4900;

/// Session of the gateway, which can be resumed.
#[derive(Debug, Clone)]
pub(super) struct GatewaySession {
    id: String,
    resume_url: String,
    /// Id of the bot.
    me: String,
    name: String,
    /// Number of the last handled event.
    handled: Option<u64>,
}

/// An event that waits to be handled.
struct Event {
    number: Option<u64>,
    name: String,
    data: Value,
    me: String,
}

impl Discord {
    /// Connects, signs in or resumes, and serves until the connection ends.
    pub(super) async fn hold_connection(self: Arc<Self>, stop: CancellationToken) -> Disconnected {
        let resumed = self.session.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let url = match &resumed {
            Some(session) => session.resume_url.clone(),
            None => match self.rest.get("/gateway/bot").await {
                Ok(found) => found["url"].as_str().unwrap_or_default().to_owned(),
                Err(error) => return disconnected(&error),
            },
        };
        let address = format!("{}/?v=10&encoding=json", url.trim_end_matches('/'));
        let mut socket = match websocket::connect(&self.clients, &address).await {
            Ok(socket) => socket,
            Err(reason) => {
                // The address of a resumed session may be gone: begin anew next time.
                self.set_session(None);
                return Disconnected::lost(reason);
            }
        };
        let ended = match self.serve(&mut socket, resumed, &stop).await {
            Ok(never) => never,
            Err(ended) => ended,
        };
        let close = CloseFrame { code: RESUMABLE.into(), reason: "".into() };
        let _ = socket.close(Some(close)).await;
        ended
    }

    async fn serve(
        self: &Arc<Self>,
        socket: &mut WebSocket,
        resumed: Option<GatewaySession>,
        stop: &CancellationToken,
    ) -> Result<Disconnected, Disconnected> {
        let hello = match timeout(HELLO_TIMEOUT, self.read(socket)).await {
            Ok(hello) => hello?,
            Err(_) => return Err(Disconnected::lost("discord did not greet in time")),
        };
        let period = hello["d"]["heartbeat_interval"].as_u64().unwrap_or(41_250).max(100);
        let period = Duration::from_millis(period);
        let token = self.rest.token().expose_secret();
        let opening = match &resumed {
            Some(session) => json!({"op": 6, "d": {
                "token": token, "session_id": session.id, "seq": session.handled}}),
            None => json!({"op": 2, "d": {"token": token, "intents": INTENTS, "properties":
                {"os": "linux", "browser": "holdfast", "device": "holdfast"}}}),
        };
        send(socket, opening).await?;
        let mut me = resumed.map(|session| session.me).unwrap_or_default();
        let queue = self.start_queue();
        // The first heartbeat comes after a random part of the period.
        let first = Instant::now() + period.mul_f64(rand::random());
        let mut beat = interval_at(first, period);
        // After a pause of this process discord still has a whole period to answer.
        beat.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let (mut last_number, mut is_confirmed) = (None, true);
        loop {
            tokio::select! {
                () = stop.cancelled() => return Ok(Disconnected::Stopped),
                _ = beat.tick() => {
                    if !is_confirmed {
                        return Err(Disconnected::lost("discord does not answer heartbeats"));
                    }
                    is_confirmed = false;
                    send(socket, json!({"op": 1, "d": last_number})).await?;
                }
                message = self.read(socket) => {
                    let message = message?;
                    match message["op"].as_u64() {
                        Some(0) => {
                            last_number = message["s"].as_u64().or(last_number);
                            let name = message["t"].as_str().unwrap_or_default().to_owned();
                            if name == "READY" {
                                me = self.note_ready(&message["d"]);
                            } else if name == "RESUMED" {
                                self.report_identity();
                            }
                            let event = Event {
                                number: message["s"].as_u64(),
                                name,
                                data: message["d"].clone(),
                                me: me.clone(),
                            };
                            if !queue.push(event) {
                                return Err(Disconnected::lost("too many messages wait"));
                            }
                        }
                        Some(1) => send(socket, json!({"op": 1, "d": last_number})).await?,
                        Some(7) => return Err(Disconnected::lost("discord asks to reconnect")),
                        Some(9) => {
                            if message["d"] != true {
                                self.set_session(None);
                            }
                            return Err(Disconnected::lost("discord has ended the session"));
                        }
                        Some(11) => is_confirmed = true,
                        _ => {}
                    }
                }
            }
        }
    }

    /// Reads a message. May be cancelled: nothing is lost.
    async fn read(&self, socket: &mut WebSocket) -> Result<Value, Disconnected> {
        loop {
            match socket.next().await {
                Some(Ok(Message::Close(frame))) => {
                    let code = frame.map_or(0, |frame| u16::from(frame.code));
                    return Err(self.closed(code));
                }
                Some(Ok(message)) => {
                    if let Some(message) = websocket::json(&message) {
                        return Ok(message);
                    }
                }
                Some(Err(_)) | None => return Err(Disconnected::lost("the connection broke")),
            }
        }
    }

    /// Judges a close code (<https://discord.com/developers/docs/topics/opcodes-and-status-codes>).
    fn closed(&self, code: u16) -> Disconnected {
        match code {
            4004 => {
                self.set_session(None);
                Disconnected::rejected(
                    "discord does not accept the bot's token: it was reset, or is wrong",
                )
            }
            4013 | 4014 => Disconnected::rejected(
                "the bot may not read messages: switch on the Message Content Intent for it at \
                 discord.com/developers",
            ),
            4010..=4012 => {
                Disconnected::rejected(format!("discord refuses the connection (code {code})"))
            }
            4007 | 4009 => {
                self.set_session(None);
                Disconnected::lost("discord has ended the session")
            }
            _ => Disconnected::lost(format!("discord closed the connection (code {code})")),
        }
    }

    fn set_session(&self, session: Option<GatewaySession>) {
        *self.session.lock().unwrap_or_else(PoisonError::into_inner) = session;
    }

    /// Remembers the session, and returns the bot's id.
    fn note_ready(&self, ready: &Value) -> String {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let me = text(&ready["user"]["id"]);
        let session = GatewaySession {
            id: text(&ready["session_id"]),
            resume_url: text(&ready["resume_gateway_url"]),
            me: me.clone(),
            name: text(&ready["user"]["username"]),
            handled: None,
        };
        self.set_session(Some(session));
        info!(account.id = %self.account.id, "signed in");
        self.report_identity();
        me
    }

    fn report_identity(&self) {
        let session = self.session.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let name = session.map(|session| session.name).unwrap_or_default();
        self.account.report_working(format!("signed in as {name}"));
    }

    fn start_queue(self: &Arc<Self>) -> EventQueue<Event> {
        let discord = Arc::clone(self);
        EventQueue::start(MAX_WAITING_EVENTS, move |event: Event| {
            let discord = Arc::clone(&discord);
            let span = info_span!(
                "event",
                channel = "discord",
                tenant.id = %discord.account.tenant,
                account.id = %discord.account.id,
            );
            async move {
                let number = event.number;
                discord.handle_event(event).await;
                let mut session = discord.session.lock().unwrap_or_else(PoisonError::into_inner);
                if let (Some(session), Some(number)) = (session.as_mut(), number) {
                    session.handled = Some(number);
                }
            }
            .instrument(span)
        })
    }

    async fn handle_event(self: &Arc<Self>, event: Event) {
        let account: Arc<dyn ChannelAccount> = Arc::<Self>::clone(self);
        let Event { name, data, me, .. } = event;
        let verdict = match name.as_str() {
            "MESSAGE_CREATE" | "MESSAGE_UPDATE" => {
                // An update without an edit shows a link's preview.
                if name == "MESSAGE_UPDATE" && data["edited_timestamp"].is_null() {
                    return;
                }
                let Ok(message) = serde_json::from_value::<judge::Message>(data) else {
                    warn!("an event is not understood and is passed over");
                    inbound::finish(&account, "malformed");
                    return;
                };
                let is_group = message.guild_id.is_some();
                let parent = self.parent(&message.channel_id, is_group).await;
                judge::judge(message, parent, &self.settings, &me)
            }
            "INTERACTION_CREATE" => {
                let Ok(press) = serde_json::from_value::<Interaction>(data) else { return };
                let channel = press.channel_id.clone().unwrap_or_default();
                let parent = self.parent(&channel, press.guild_id.is_some()).await;
                let verdict = judge::judge_press(&press, parent, &self.settings);
                self.acknowledge(&press);
                verdict
            }
            "CHANNEL_CREATE" | "CHANNEL_UPDATE" | "THREAD_CREATE" | "THREAD_UPDATE" => {
                return self.threads.learn(&data);
            }
            "GUILD_CREATE" => {
                for list in ["channels", "threads"] {
                    for channel in data[list].as_array().into_iter().flatten() {
                        self.threads.learn(channel);
                    }
                }
                return;
            }
            _ => return,
        };
        let mut verdict = verdict;
        if let Verdict::Take(request) = &mut verdict {
            let (clients, hosts) = (&self.clients, &self.hosts);
            media::fetch_files(FileServer { clients, hosts, token: None }, request).await;
        }
        inbound::handle(&account, verdict, RetryMode::UntilDecided).await;
    }

    /// Returns the parent if a channel is a thread. If Discord cannot be asked, it counts as none.
    async fn parent(&self, channel: &str, is_group: bool) -> Option<String> {
        if !is_group {
            return None;
        }
        match self.threads.parent(&self.rest, channel).await {
            Ok(parent) => parent,
            Err(error) => {
                debug!(%error, "it is not known whether a channel is a thread");
                None
            }
        }
    }

    /// Confirms a press, in the background: Discord shows it as failed after three seconds.
    fn acknowledge(self: &Arc<Self>, press: &Interaction) {
        let (discord, path) =
            (Arc::clone(self), format!("/interactions/{}/{}/callback", press.id, press.token));
        tokio::spawn(async move {
            // Type 6 changes nothing about the message.
            let content = Content::Json(json!({"type": 6}));
            if let Err(error) = discord.rest.call(Method::POST, &path, content).await {
                debug!(%error, "a button was not answered");
            }
        });
    }
}

async fn send(socket: &mut WebSocket, message: Value) -> Result<(), Disconnected> {
    let sent = socket.send(Message::text(message.to_string())).await;
    sent.map_err(|_| Disconnected::lost("the connection broke"))
}

fn disconnected(error: &CallError) -> Disconnected {
    match error {
        CallError::RateLimited { after } => Disconnected::RetryAfter { after: *after },
        CallError::Refused { status: 401 | 403, .. } => Disconnected::rejected(
            "discord does not accept the bot's token: it was reset, or is wrong",
        ),
        CallError::NotSent | CallError::Unsure(_) | CallError::Refused { .. } => {
            Disconnected::lost(error.to_string())
        }
    }
}
