//! Long polling of `/sync`, for an ordinary user.
//!
//! The position moves on only after all events before it were taken, and is stored, so that the next
//! bridge goes on from there. Events that come twice are recognized by their ids.
//!
//! **What can go wrong.** So much happened that the homeserver leaves out events: they are fetched
//! from the room's history. The stored position is another user's, or the homeserver does not know
//! it: the account begins anew, and what was written meanwhile is not answered.

use std::{sync::Arc, time::Duration};

use serde::{Deserialize, Serialize};
use tokio::time::{Instant, sleep_until};
use tracing::{debug, warn};

use super::{
    Matrix,
    judge::Me,
    wire::{Event, JoinedRoom, SyncResponse},
};
use crate::{
    call::CallError,
    connection::{Disconnected, MIN_POLL_INTERVAL},
    inbound::{RetryMode, UpdateResult},
};

/// Time that one call waits for events.
const SYNC_WAIT: Duration = Duration::from_secs(25);

/// Maximum number of calls for the events that a sync left out, for each room.
const MAX_HISTORY_PAGES: usize = 50;

/// Name under which the position is stored.
const POSITION: &str = "sync";

/// Why the homeserver refuses the account.
pub(super) const REJECTED: &str = "the homeserver does not accept the access token: it is wrong or \
                                   was revoked; sign in again and set `secrets.access_token`";

#[derive(Serialize, Deserialize)]
struct StoredPosition {
    user: String,
    since: String,
}

impl Matrix {
    /// Polls until a call fails.
    pub(super) async fn sync(self: Arc<Self>) -> Disconnected {
        let me = match self.me().await {
            Ok(me) => me,
            Err(error) => return error.disconnected(REJECTED),
        };
        let mut since = match self.position(me).await {
            Ok(since) => since,
            Err(why) => return Disconnected::lost(why),
        };
        self.account.report_working(format!("signed in as {}", me.id));
        loop {
            let began = Instant::now();
            let wait = if since.is_some() { SYNC_WAIT } else { Duration::ZERO };
            let response = match self.server.sync(since.as_deref(), wait).await {
                Ok(response) => response,
                Err(CallError::Refused { status: 400, .. }) if since.is_some() => {
                    warn!(account.id = %self.account.id, "the homeserver does not know the position; beginning anew");
                    since = None;
                    continue;
                }
                Err(error) => return error.disconnected(REJECTED),
            };
            let next = response.next_batch.clone();
            if let Err(ended) = self.take(me, response, since.as_deref()).await {
                return ended;
            }
            let is_progress = since.as_ref() != Some(&next);
            if is_progress && let Err(why) = self.store_position(me, &next).await {
                return Disconnected::lost(why);
            }
            since = Some(next);
            if !is_progress {
                sleep_until(began + MIN_POLL_INTERVAL).await;
            }
        }
    }

    /// Handles the events of a sync. In the first one the messages are old.
    async fn take(
        self: &Arc<Self>,
        me: &Me,
        response: SyncResponse,
        since: Option<&str>,
    ) -> Result<(), Disconnected> {
        let unfinished = || Disconnected::lost("an event could not be taken in yet");
        for (room, invited) in response.rooms.invite {
            let invite = invited.invite_state.events.into_iter();
            let mut invite = invite.filter(|event| event.membership_of(&me.id) == Some("invite"));
            if let Some(event) = invite.next()
                && self.answer_invite(&room, &event.sender).await == UpdateResult::SendAgain
            {
                return Err(unfinished());
            }
        }
        let Some(since) = since else { return Ok(()) };
        for (room, joined) in response.rooms.join {
            let events = self.new_events(me, &room, joined, since).await;
            for event in events.map_err(|error| error.disconnected(REJECTED))? {
                let handled = self.handle_event(&room, &event, RetryMode::UntilDecided).await;
                if handled == UpdateResult::SendAgain {
                    return Err(unfinished());
                }
            }
        }
        Ok(())
    }

    /// Returns a room's events since a position, oldest first; in a room that the account has just
    /// joined, those since it was invited.
    async fn new_events(
        &self,
        me: &Me,
        room: &str,
        joined: JoinedRoom,
        since: &str,
    ) -> Result<Vec<Event>, CallError> {
        let timeline = joined.timeline;
        let mut events = timeline.events;
        if timeline.limited && arrival(&events, me).is_none() {
            let (mut older, mut from) = (Vec::new(), timeline.prev_batch);
            for _ in 0..MAX_HISTORY_PAGES {
                let page = match self.server.history(room, &from, since).await {
                    Err(CallError::Refused { status: 403 | 404, .. }) => break,
                    page => page?,
                };
                let has_arrived = page.chunk.iter().any(|event| is_arrival(event, me));
                let is_last = page.chunk.is_empty() || has_arrived;
                older.extend(page.chunk);
                match page.end {
                    Some(end) if !is_last => from = end,
                    _ => break,
                }
            }
            debug!(events = older.len(), "a sync left out events; they were fetched");
            older.reverse();
            older.append(&mut events);
            events = older;
        }
        let first = arrival(&events, me).map_or(0, |at| at + 1);
        Ok(events.split_off(first))
    }

    async fn position(&self, me: &Me) -> Result<Option<String>, String> {
        let (tenant, id) = (self.account.tenant, self.account.id);
        let stored = self.directory.accounts().position(tenant, id, POSITION).await;
        let stored = stored.map_err(|error| format!("the position cannot be read: {error}"))?;
        let stored = stored.and_then(|text| serde_json::from_str::<StoredPosition>(&text).ok());
        Ok(stored.filter(|stored| stored.user == me.id).map(|stored| stored.since))
    }

    async fn store_position(&self, me: &Me, since: &str) -> Result<(), String> {
        let (tenant, id) = (self.account.tenant, self.account.id);
        let position = StoredPosition { user: me.id.clone(), since: since.to_owned() };
        let text = serde_json::to_string(&position).map_err(|error| error.to_string())?;
        let stored = self.directory.accounts().set_position(tenant, id, POSITION, &text).await;
        stored.map_err(|error| format!("the position cannot be stored: {error}"))
    }
}

/// Returns where in a timeline the account was invited, or joined without that.
fn arrival(events: &[Event], me: &Me) -> Option<usize> {
    let invited = |event: &Event| event.membership_of(&me.id) == Some("invite");
    let of_invite = events.iter().rposition(invited);
    of_invite.or_else(|| events.iter().rposition(|event| is_arrival(event, me)))
}

/// Whether the account entered the room by this event. A changed display name is also a `join`.
fn is_arrival(event: &Event, me: &Me) -> bool {
    match event.membership_of(&me.id) {
        Some("invite") => true,
        Some("join") => {
            let before = &event.unsigned["prev_content"]["membership"];
            *before != "join"
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn what_was_written_before_the_account_was_invited_is_old() {
        let me = Me { id: "@bot:x".into(), name: String::new() };
        let event = |value: Value| serde_json::from_value::<Event>(value).unwrap();
        let member = |membership: &str, before: &str| {
            event(
                json!({"type": "m.room.member", "state_key": "@bot:x", "content": {"membership": membership},
                "unsigned": {"prev_content": {"membership": before}}}),
            )
        };
        let text = || event(json!({"type": "m.room.message", "content": {}}));

        let invited = [text(), member("invite", "leave"), text(), member("join", "invite"), text()];
        assert_eq!(arrival(&invited, &me), Some(1));
        assert_eq!(arrival(&[text(), member("join", "leave"), text()], &me), Some(1));
        assert_eq!(arrival(&[text(), member("join", "join"), text()], &me), None);
        assert_eq!(arrival(&[text()], &me), None);
    }
}
