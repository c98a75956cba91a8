//! Talking on channels: a program's signed webhook, and Telegram.

use std::sync::atomic::Ordering;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, bail};
use futures::future::join_all;
use hmac::{Hmac, KeyInit as _, Mac as _};
use rand::RngExt as _;
use serde_json::{Value, json};
use sha2::Sha256;
use tokio::time::{sleep, timeout};
use tonic::Status;

use super::{Conversation, SEND_TIMEOUT, Senders, TestChannel};
use crate::dice;
use crate::history::EventKind;

/// How many updates of a bot may wait before its people do.
const PENDING: usize = 6;

impl Senders<'_> {
    pub(super) async fn by_webhook(
        &self,
        conversation: &Conversation,
        id: &str,
        text: &str,
        copies: usize,
    ) -> anyhow::Result<String> {
        let body = json!({"sender": format!("person-{}", conversation.number), "text": text});
        let body = &body.to_string();
        let sent = (0..copies).map(|copy| async move {
            let message = self.post(conversation, (id, body), copy).await?;
            self.record_acknowledgement(conversation, id, Some(&message));
            Ok(message)
        });
        self.one_message(id, timeout(SEND_TIMEOUT, join_all(sent)).await)
    }

    async fn post(
        &self,
        conversation: &Conversation,
        (id, body): (&str, &str),
        first: usize,
    ) -> anyhow::Result<String> {
        let tenant = &self.mesh.tenants[conversation.tenant];
        let mut draws = dice::stream(&format!("{id} {first}"));
        for attempt in 0.. {
            let bridge = &self.mesh.bridges[(first + attempt) % self.mesh.bridges.len()];
            let url = format!("http://{}/webhook/{}", bridge.spec().http, tenant.webhook);
            let now = SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs().to_string();
            let answer = self
                .http
                .post(url)
                .header("x-holdfast-timestamp", &now)
                .header("x-holdfast-signature", sign(&tenant.secret, &now, id, body)?)
                .header("idempotency-key", id)
                .body(body.to_owned())
                .send()
                .await;
            if let Ok(answer) = answer {
                let status = answer.status().as_u16();
                match status {
                    200..=299 => {
                        if let Ok(accepted) = answer.json::<Value>().await {
                            let message = accepted["message_id"].as_str().unwrap_or_default();
                            return Ok(message.to_owned());
                        }
                    }
                    // A bridge that has just begun knows no account for a moment.
                    401 | 408 | 429 | 500..=599 => {}
                    _ => {
                        let refusal = Status::failed_precondition(format!("status {status}"));
                        return Err(anyhow::Error::new(refusal).context(format!("`{id}`")));
                    }
                }
            }
            self.record(conversation, id, |message| EventKind::Unanswered { message });
            self.retries.fetch_add(1, Ordering::Relaxed);
            sleep(Duration::from_millis(draws.random_range(50..250))).await;
        }
        bail!("there is no end of numbers")
    }

    /// Telegram keeps what nobody has taken yet; people wait when there is much of it.
    pub(super) async fn by_telegram(
        &self,
        conversation: &Conversation,
        id: &str,
        text: &str,
        copies: usize,
    ) -> anyhow::Result<()> {
        let tenant = &self.mesh.tenants[conversation.tenant];
        let chat = chat_of(conversation);
        let platform_id = self.next_platform_id.fetch_add(1, Ordering::Relaxed);
        let message = json!({
            "message_id": platform_id, "date": 1_800_000_000, "text": text,
            "chat": {"id": chat, "type": "private", "first_name": "Test"},
            "from": {"id": chat, "is_bot": false, "first_name": "Test"},
        });
        for _ in 0..copies {
            self.mesh.fakes.telegram.push_raw(&tenant.bot, json!({"message": message}));
        }
        self.record_acknowledgement(conversation, id, None);
        let taken = async {
            while self.mesh.fakes.telegram.pending(&tenant.bot) > PENDING {
                sleep(Duration::from_millis(50)).await;
            }
        };
        timeout(SEND_TIMEOUT, taken).await.context("nobody takes the bot's updates")
    }

    /// Matrix, Slack and a mailbox keep what nobody has confirmed, too. On Discord people write while
    /// the bot is connected, and the message may be lost all the same.
    pub(super) async fn by_platform(
        &self,
        conversation: &Conversation,
        id: &str,
        text: &str,
        copies: usize,
    ) -> anyhow::Result<()> {
        let platforms = &self.mesh.fakes.platforms;
        let platforms = platforms.as_ref().context("the mesh has no such platforms")?;
        let platform_id = self.next_platform_id.fetch_add(1, Ordering::Relaxed);
        let is_heard = async {
            while !platforms.is_heard(conversation.door) {
                sleep(Duration::from_millis(50)).await;
            }
        };
        timeout(SEND_TIMEOUT, is_heard).await.context("nobody reads at the platform")?;
        platforms.write(conversation, u64::try_from(platform_id)?, text, copies);
        if conversation.door == TestChannel::Discord {
            self.record(conversation, id, |message| EventKind::Unanswered { message });
        } else {
            self.record_acknowledgement(conversation, id, None);
        }
        let taken = async {
            while platforms.pending() > PENDING {
                sleep(Duration::from_millis(50)).await;
            }
        };
        timeout(SEND_TIMEOUT, taken).await.context("nobody takes the platforms' messages")
    }
}

/// The Telegram chat of a conversation: no two conversations have the same.
fn chat_of(conversation: &Conversation) -> i64 {
    let number = conversation.tenant * 1000 + conversation.number + 1;
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// The tenant and the number of the conversation in a chat.
pub(super) fn conversation_of(chat: i64) -> Option<(u16, u32)> {
    let number = chat.checked_sub(1)?;
    Some((u16::try_from(number / 1000).ok()?, u32::try_from(number % 1000).ok()?))
}

/// Signs a message to the bridge's webhook.
pub fn sign(secret: &str, now: &str, key: &str, body: &str) -> anyhow::Result<String> {
    let mac = Hmac::<Sha256>::new_from_slice(secret.as_bytes())?;
    let mac = mac.chain_update(format!("{now}\n{key}\n{body}")).finalize().into_bytes();
    let hex: String = mac.iter().map(|byte| format!("{byte:02x}")).collect();
    Ok(format!("v2={hex}"))
}
