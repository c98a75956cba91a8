//! Socket Mode: events over a WebSocket, each confirmed when the gateway has it
//! (<https://docs.slack.dev/apis/events-api/using-socket-mode>).

use std::{sync::Arc, time::Duration};

use futures::{SinkExt as _, StreamExt as _};
use serde_json::{Value, json};
use tokio::{
    sync::mpsc,
    time::{Instant, sleep_until, timeout_at},
};
use tokio_tungstenite::tungstenite::Message;
use tokio_util::sync::CancellationToken;
use tracing::{Instrument as _, info, info_span};

use super::Slack;
use crate::{
    connection::Disconnected,
    inbound::{EventQueue, RetryMode, UpdateResult},
    websocket::{self, WebSocket},
};

/// Number of events that wait for the gateway. Beyond it the connection is closed, and Slack sends
/// what was not confirmed again.
const MAX_WAITING_EVENTS: usize = 1000;

/// Number of confirmations that wait to be sent. While as many wait, no event is handed over, so that more
/// events wait.
const MAX_WAITING_CONFIRMATIONS: usize = 100;

/// Silence after which the connection counts as broken: Slack sends pings.
const LOST_AFTER: Duration = Duration::from_secs(90);

impl Slack {
    /// Opens a connection, and serves until it ends.
    pub(super) async fn hold_connection(self: Arc<Self>, stop: CancellationToken) -> Disconnected {
        let me = match self.me().await {
            Ok(me) => me.clone(),
            Err(error) => return error.into(),
        };
        let Some(token) = &self.secrets.app_token else {
            return Disconnected::rejected("mode `socket` needs `secrets.app_token`");
        };
        let address = match self.api.call_form("apps.connections.open", token, &[]).await {
            Ok(opened) => opened["url"].as_str().unwrap_or_default().to_owned(),
            Err(error) => return error.into(),
        };
        let mut socket = match websocket::connect(&self.clients, &address).await {
            Ok(socket) => socket,
            Err(reason) => return Disconnected::lost(reason),
        };
        info!(account.id = %self.account.id, "signed in");
        self.report_identity(&me);
        let ended = self.serve(&mut socket, &stop).await;
        let _ = socket.close(None).await;
        ended
    }

    async fn serve(
        self: &Arc<Self>,
        socket: &mut WebSocket,
        stop: &CancellationToken,
    ) -> Disconnected {
        let (confirm, mut confirmed) = mpsc::channel(MAX_WAITING_CONFIRMATIONS);
        let queue = self.start_queue(confirm);
        let mut heard_at = Instant::now();
        loop {
            let message = tokio::select! {
                () = stop.cancelled() => return Disconnected::Stopped,
                () = sleep_until(heard_at + LOST_AFTER) => {
                    return Disconnected::lost("slack is silent");
                }
                Some(envelope) = confirmed.recv() => {
                    let text = json!({"envelope_id": envelope}).to_string();
                    let sent = socket.send(Message::text(text));
                    // Slack may stop reading, and pings are not seen meanwhile.
                    match timeout_at(heard_at + LOST_AFTER, sent).await {
                        Ok(Ok(())) => continue,
                        Ok(Err(_)) | Err(_) => return Disconnected::lost("the connection broke"),
                    }
                }
                message = socket.next() => message,
            };
            heard_at = Instant::now();
            let message = match message {
                Some(Ok(Message::Close(_)) | Err(_)) | None => {
                    return Disconnected::lost("the connection ended");
                }
                Some(Ok(message)) => websocket::json(&message),
            };
            let Some(message) = message else { continue };
            let kind = message["type"].as_str().unwrap_or_default();
            // Slack replaces connections now and then.
            if kind == "disconnect" {
                return Disconnected::lost("slack asks to reconnect");
            }
            if matches!(kind, "events_api" | "interactive") && !queue.push(message) {
                return Disconnected::lost("too many messages wait");
            }
        }
    }

    /// Starts the task that hands events over in order, and confirms each.
    fn start_queue(self: &Arc<Self>, confirm: mpsc::Sender<String>) -> EventQueue<Value> {
        let slack = Arc::clone(self);
        EventQueue::start(MAX_WAITING_EVENTS, move |mut message: Value| {
            let (slack, confirm) = (Arc::clone(&slack), confirm.clone());
            let span = info_span!(
                "event",
                channel = "slack",
                tenant.id = %slack.account.tenant,
                account.id = %slack.account.id,
            );
            async move {
                let envelope = message["envelope_id"].as_str().unwrap_or_default().to_owned();
                let payload = message["payload"].take();
                // Slack repeats an event that is not confirmed in three seconds; its key is known then.
                if slack.handle(payload, RetryMode::UntilDecided).await == UpdateResult::Done {
                    // The connection may have ended.
                    let _ = confirm.send(envelope).await;
                }
            }
            .instrument(span)
        })
    }
}
