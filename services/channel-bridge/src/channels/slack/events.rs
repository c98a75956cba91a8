//! Events, however they came: over a connection, or by a call with a signature.

use std::{
    sync::Arc,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use axum::{
    http::{Method, StatusCode},
    response::{IntoResponse as _, Response},
};
use hmac::{Hmac, KeyInit as _, Mac as _};
use percent_encoding::percent_decode_str;
use secrecy::ExposeSecret as _;
use serde_json::Value;
use sha2::Sha256;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;
use tracing::warn;

use super::{
    Slack,
    client::{CallError, Identity},
    judge,
};
use crate::{
    channel::ChannelAccount,
    connection::Disconnected,
    http::{InboundRequest, error_response, unauthorized},
    inbound::{self, RetryMode, UpdateResult, Verdict},
    media::{self, FileServer},
};

/// Maximum size of a call's body, in bytes.
const MAX_EVENT_BYTES: usize = 1024 * 1024;

/// Maximum age of a signature.
const SIGNATURE_TOLERANCE: Duration = Duration::from_secs(300);

/// Interval at which the token is checked in mode `events`.
const CHECK_INTERVAL: Duration = Duration::from_secs(300);

impl Slack {
    pub(super) async fn me(&self) -> Result<&Identity, CallError> {
        self.me.get_or_try_init(|| self.api.identity(&self.secrets.bot_token)).await
    }

    /// Asks now and then whether the token is still accepted: no connection would tell.
    pub(super) async fn watch_credentials(
        self: Arc<Self>,
        stop: CancellationToken,
    ) -> Disconnected {
        loop {
            match self.api.identity(&self.secrets.bot_token).await {
                Ok(me) => self.report_identity(&me),
                Err(error) => return error.into(),
            }
            tokio::select! {
                () = stop.cancelled() => return Disconnected::Stopped,
                () = sleep(CHECK_INTERVAL) => {}
            }
        }
    }

    pub(super) fn report_identity(&self, me: &Identity) {
        self.account.report_working(format!("signed in to {} as {}", me.team, me.name));
    }

    /// Handles a call of the Events API, or of interactivity.
    pub(super) async fn receive_event(self: Arc<Self>, mut request: InboundRequest) -> Response {
        let channel = self.account.channel;
        let signature = request.header("x-slack-signature").to_owned();
        let timestamp = request.header("x-slack-request-timestamp").to_owned();
        if request.method != Method::POST
            || !is_recent(&timestamp)
            || self.secrets.signing_secret.is_none()
        {
            return unauthorized(channel);
        }
        let body = match request.read_body(MAX_EVENT_BYTES).await {
            Ok(body) => body,
            Err(refused) => return refused,
        };
        if !self.is_signed(&signature, &timestamp, &body) {
            return unauthorized(channel);
        }
        let payload: Value = match body.strip_prefix(b"payload=") {
            Some(form) => {
                let form = String::from_utf8_lossy(form).replace('+', " ");
                let text = percent_decode_str(&form).decode_utf8_lossy().into_owned();
                serde_json::from_str(&text).unwrap_or_default()
            }
            None => serde_json::from_slice(&body).unwrap_or_default(),
        };
        if payload["type"] == "url_verification" {
            return payload["challenge"].as_str().unwrap_or_default().to_owned().into_response();
        }
        match self.handle(payload, RetryMode::Once).await {
            UpdateResult::Done => StatusCode::OK.into_response(),
            UpdateResult::SendAgain => error_response(StatusCode::SERVICE_UNAVAILABLE, "not now"),
        }
    }

    fn is_signed(&self, signature: &str, timestamp: &str, body: &[u8]) -> bool {
        let Some(secret) = &self.secrets.signing_secret else { return false };
        let Some(given) = signature.strip_prefix("v0=").and_then(from_hex) else { return false };
        let Ok(mut mac) = Hmac::<Sha256>::new_from_slice(secret.expose_secret().as_bytes()) else {
            return false;
        };
        mac.update(format!("v0:{timestamp}:").as_bytes());
        mac.update(body);
        mac.verify_slice(&given).is_ok()
    }

    /// Handles an event, or a press of a button.
    pub(super) async fn handle(self: &Arc<Self>, payload: Value, mode: RetryMode) -> UpdateResult {
        let account: Arc<dyn ChannelAccount> = Arc::<Self>::clone(self);
        let me = match self.me().await {
            Ok(me) => me,
            Err(_) => return UpdateResult::SendAgain,
        };
        let mut verdict = match payload["type"].as_str() {
            Some("event_callback") if payload["event"]["type"] == "message" => {
                match serde_json::from_value(payload["event"].clone()) {
                    Ok(event) => judge::judge(event, &self.settings, me),
                    Err(_) => {
                        warn!(account.id = %self.account.id, "an event is not understood and is passed over");
                        return inbound::finish(&account, "malformed");
                    }
                }
            }
            Some("block_actions") => match serde_json::from_value(payload) {
                Ok(press) => judge::judge_press(press, &self.settings),
                Err(_) => return inbound::finish(&account, "malformed"),
            },
            _ => Verdict::Ignore("kind"),
        };
        if let Verdict::Take(request) = &mut verdict {
            let (clients, hosts) = (&self.clients, &self.hosts);
            let token = Some(&self.secrets.bot_token);
            media::fetch_files(FileServer { clients, hosts, token }, request).await;
        }
        inbound::handle(&account, verdict, mode).await
    }
}

fn is_recent(timestamp: &str) -> bool {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    let given = timestamp.parse::<u64>().ok();
    given.is_some_and(|given| given.abs_diff(now) <= SIGNATURE_TOLERANCE.as_secs())
}

fn from_hex(text: &str) -> Option<Vec<u8>> {
    if text.len() != 64 || !text.is_ascii() {
        return None;
    }
    (0..text.len())
        .step_by(2)
        .map(|at| u8::from_str_radix(text.get(at..at + 2)?, 16).ok())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signature_is_hexadecimal_and_recent() {
        assert_eq!(from_hex(&"0a".repeat(32)), Some(vec![10; 32]));
        for text in ["", "0a", &"zz".repeat(32), &"é".repeat(32)] {
            assert_eq!(from_hex(text), None, "{text}");
        }
        assert!(!is_recent("") && !is_recent("1"));
    }
}
