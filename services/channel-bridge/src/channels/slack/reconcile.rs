//! Search for a message of ours in the history, by the delivery's id in its metadata
//! (<https://docs.slack.dev/reference/methods/conversations.history>).

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use holdfast_session::Delivery;
use serde_json::Value;

use super::{Slack, actions::METADATA_TYPE, client::CallError};
use crate::outcome::Reconciliation;

/// Messages in an answer, and answers that are read: a chat with more messages since the attempt
/// cannot be searched.
const PAGE_SIZE: usize = 200;
const MAX_PAGES: usize = 10;

/// Allowance for the clocks of both sides.
const CLOCK_TOLERANCE: Duration = Duration::from_secs(120);

impl Slack {
    pub(super) async fn find_message(&self, part: &Delivery) -> Reconciliation {
        if part.act.is_some() {
            // A file carries no metadata.
            return Reconciliation::CannotTell {
                reason: "slack cannot be asked whether it has the file".to_owned(),
            };
        }
        let id = part.id.to_string();
        let since = part.unsure_for.unwrap_or_default() + CLOCK_TOLERANCE;
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let oldest = now.saturating_sub(since).as_secs();
        let mut cursor = String::new();
        for _ in 0..MAX_PAGES {
            let page = match self.history(part, oldest, &cursor).await {
                Ok(page) => page,
                Err(CallError::Refused { error }) => {
                    let reason = format!("slack does not show the chat's history: {error}");
                    return Reconciliation::CannotTell { reason };
                }
                Err(error) => return Reconciliation::NotYet { reason: error.to_string() },
            };
            if let Some(ts) = find(&page, &id) {
                return Reconciliation::Sent { platform_id: ts };
            }
            let next = page["response_metadata"]["next_cursor"].as_str().unwrap_or_default();
            if next.is_empty() {
                return Reconciliation::NotSent;
            }
            next.clone_into(&mut cursor);
        }
        Reconciliation::CannotTell {
            reason: "too many messages were written since in the chat to search it".to_owned(),
        }
    }

    async fn history(
        &self,
        part: &Delivery,
        oldest: u64,
        cursor: &str,
    ) -> Result<Value, CallError> {
        let mut fields = vec![
            ("channel", part.target.chat.clone()),
            ("oldest", oldest.to_string()),
            ("limit", PAGE_SIZE.to_string()),
            ("include_all_metadata", "true".to_owned()),
        ];
        if !cursor.is_empty() {
            fields.push(("cursor", cursor.to_owned()));
        }
        let thread = part.target.thread.as_ref().or(part.target.reply_to.as_ref());
        let method = match thread {
            Some(thread) => {
                fields.push(("ts", thread.clone()));
                "conversations.replies"
            }
            None => "conversations.history",
        };
        self.api.call_form(method, &self.secrets.bot_token, &fields).await
    }
}

/// Returns the `ts` of the message with this delivery's id.
fn find(page: &Value, id: &str) -> Option<String> {
    let is_it = |message: &&Value| {
        let metadata = &message["metadata"];
        metadata["event_type"] == METADATA_TYPE && metadata["event_payload"]["delivery_id"] == id
    };
    let found = page["messages"].as_array()?.iter().find(is_it)?;
    found["ts"].as_str().map(str::to_owned)
}
