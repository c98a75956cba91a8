//! Calls of Meta: verification of the address, and signed webhooks.
//!
//! Meta repeats a webhook that got no success, for up to seven days. So the success is sent after
//! the gateway has all messages in it.

use std::sync::Arc;

use axum::{
    http::{Method, StatusCode},
    response::{IntoResponse as _, Response},
};
use hmac::{Hmac, KeyInit as _, Mac as _};
use holdfast_directory::Directory;
use holdfast_proto::gateway::v1::AcceptRequest;
use reqwest::Url;
use secrecy::ExposeSecret as _;
use serde::{Deserialize, Serialize};
use sha2::Sha256;
use subtle::ConstantTimeEq as _;
use tokio::sync::Mutex;
use tracing::{debug, warn};

use super::{
    Whatsapp,
    judge::judge,
    wire::{Changed, Status, Webhook},
};
use crate::{
    account::ServedAccount,
    channel::ChannelAccount,
    http::{InboundRequest, error_response, unauthorized},
    inbound::{self, RetryMode, UpdateResult, Verdict},
};

/// Maximum size of a webhook, in bytes; Meta sends up to 3 MB.
const MAX_BODY_BYTES: usize = 4 * 1024 * 1024;

/// Maximum size of a file, in bytes.
const MAX_FILE_BYTES: usize = 10 * 1024 * 1024;

const SIGNATURE_HEADER: &str = "x-hub-signature-256";

/// Name under which the statuses are stored.
const STATUSES: &str = "statuses";

/// Number of statuses that are remembered: those of the last minutes matter, of sends whose answer
/// was lost.
const MAX_STATUSES: usize = 20;

/// Messages of which a status has arrived: delivery and message id. They are stored, since the
/// status may arrive at another bridge than the one that sent.
#[derive(Debug)]
pub(super) struct SeenStatuses {
    directory: Directory,
    /// Serializes changes of this process.
    writing: Mutex<()>,
}

#[derive(Debug, Default, Serialize, Deserialize)]
struct StoredStatuses(Vec<(String, String)>);

impl SeenStatuses {
    pub(super) fn new(directory: Directory) -> Self {
        Self { directory, writing: Mutex::default() }
    }

    async fn read(&self, account: &ServedAccount) -> Result<StoredStatuses, String> {
        let accounts = self.directory.accounts();
        let stored = accounts.position(account.tenant, account.id, STATUSES).await;
        let stored = stored.map_err(|error| format!("the statuses cannot be read: {error}"))?;
        Ok(stored.and_then(|text| serde_json::from_str(&text).ok()).unwrap_or_default())
    }

    /// Returns the message that a delivery became, if a status of it has arrived.
    pub(super) async fn message_of(
        &self,
        account: &ServedAccount,
        delivery: &str,
    ) -> Result<Option<String>, String> {
        let stored = self.read(account).await?;
        let mut found = stored.0.into_iter().filter(|(known, _)| known == delivery);
        Ok(found.next().map(|(_, message)| message))
    }

    async fn add(&self, account: &ServedAccount, status: &Status) -> Result<(), String> {
        let _writing = self.writing.lock().await;
        let mut stored = self.read(account).await?;
        if stored.0.iter().any(|(known, _)| *known == status.biz_opaque_callback_data) {
            return Ok(());
        }
        let surplus = (stored.0.len() + 1).saturating_sub(MAX_STATUSES);
        stored.0.drain(..surplus);
        stored.0.push((status.biz_opaque_callback_data.clone(), status.id.clone()));
        let text = serde_json::to_string(&stored).map_err(|error| error.to_string())?;
        let accounts = self.directory.accounts();
        let written = accounts.set_position(account.tenant, account.id, STATUSES, &text).await;
        written.map_err(|error| format!("the statuses cannot be stored: {error}"))
    }
}

impl Whatsapp {
    pub(super) async fn receive_call(self: Arc<Self>, request: InboundRequest) -> Response {
        match (&request.method, request.path.as_str()) {
            (&Method::GET, "") => self.verify(&request),
            (&Method::POST, "") => self.receive_webhook(request).await,
            _ => error_response(StatusCode::METHOD_NOT_ALLOWED, "meta calls with GET and POST"),
        }
    }

    /// Answers the verification of the address, if Meta repeats our word.
    fn verify(&self, request: &InboundRequest) -> Response {
        let Ok(url) = Url::parse(&format!("http://x/?{}", request.query)) else {
            return unauthorized(self.account.channel);
        };
        let value = |name: &str| {
            let found = url.query_pairs().find(|(key, _)| key == name);
            found.map(|(_, value)| value.into_owned()).unwrap_or_default()
        };
        let ours = self.verify_token.expose_secret().as_bytes();
        let is_meta = bool::from(ours.ct_eq(value("hub.verify_token").as_bytes()));
        if !is_meta || value("hub.mode") != "subscribe" {
            return unauthorized(self.account.channel);
        }
        let challenge: String = value("hub.challenge").chars().take(200).collect();
        // Only digits come back, so that nobody makes this host show a page.
        match challenge.chars().all(|c| c.is_ascii_alphanumeric()) {
            true => challenge.into_response(),
            false => error_response(StatusCode::BAD_REQUEST, "the challenge is none"),
        }
    }

    async fn receive_webhook(self: Arc<Self>, mut request: InboundRequest) -> Response {
        let signature = request.header(SIGNATURE_HEADER).to_owned();
        let Some(signature) = signature.strip_prefix("sha256=").and_then(from_hex) else {
            return unauthorized(self.account.channel);
        };
        let body = match request.read_body(MAX_BODY_BYTES).await {
            Ok(body) => body,
            Err(refused) => return refused,
        };
        let secret = self.app_secret.expose_secret().as_bytes();
        let is_signed = Hmac::<Sha256>::new_from_slice(secret)
            .is_ok_and(|mac| mac.chain_update(&body).verify_slice(&signature).is_ok());
        if !is_signed {
            return unauthorized(self.account.channel);
        }
        // A refusal would make Meta send it again, and in the end switch the webhook off.
        let Ok(webhook) = serde_json::from_slice::<Webhook>(&body) else {
            warn!(account.id = %self.account.id, "a webhook is not understood and is passed over");
            return StatusCode::OK.into_response();
        };
        let changes = webhook.entry.into_iter().flat_map(|entry| entry.changes);
        for change in changes {
            // One app may have several numbers, and sends for all of them.
            let is_ours = change.value.metadata.phone_number_id == self.settings.phone_number_id;
            if is_ours && self.take(change.value).await == UpdateResult::SendAgain {
                return error_response(StatusCode::SERVICE_UNAVAILABLE, "not now");
            }
        }
        StatusCode::OK.into_response()
    }

    async fn take(self: &Arc<Self>, changed: Changed) -> UpdateResult {
        for status in changed.statuses {
            // A message that failed did not arrive.
            if status.biz_opaque_callback_data.is_empty() || status.status == "failed" {
                continue;
            }
            if let Err(why) = self.statuses.add(&self.account, &status).await {
                debug!(why, "a status waits at meta");
                return UpdateResult::SendAgain;
            }
        }
        for message in changed.messages {
            let contact = changed.contacts.iter().find(|contact| contact.wa_id == message.from);
            let name = contact.map(|contact| contact.profile.name.as_str()).unwrap_or_default();
            let mut verdict = judge(&message, name, &self.settings);
            if let Verdict::Take(request) = &mut verdict {
                self.fetch_files(request).await;
                self.remember_message(&message.from, &message.id);
            }
            let account: Arc<dyn ChannelAccount> = Arc::<Self>::clone(self);
            if inbound::handle(&account, verdict, RetryMode::Once).await == UpdateResult::SendAgain
            {
                return UpdateResult::SendAgain;
            }
        }
        UpdateResult::Done
    }

    /// Fetches the file of a message, except videos.
    async fn fetch_files(&self, request: &mut AcceptRequest) {
        for attachment in &mut request.attachments {
            if attachment.kind == "video" {
                continue;
            }
            let called = (&self.clients, &self.hosts);
            match self.graph.download(called, &attachment.reference, MAX_FILE_BYTES).await {
                Ok(content) => attachment.content = content,
                Err(error) => debug!(%error, "a file was not fetched"),
            }
        }
    }
}

fn from_hex(text: &str) -> Option<Vec<u8>> {
    let is_hex = text.len() == 64 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    let digits = |at: usize| u8::from_str_radix(&text[at..at + 2], 16).ok();
    if is_hex { (0..64).step_by(2).map(digits).collect() } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signature_has_64_digits() {
        assert_eq!(from_hex(&"0f".repeat(32)), Some(vec![15; 32]));
        for text in ["", "0f", &"0g".repeat(32), &"é".repeat(32)] {
            assert_eq!(from_hex(text), None);
        }
    }
}
