//! Handling of events: messages, invites, encrypted rooms, and the files that come along.
//!
//! **What can go wrong.** The homeserver does not say who is in a room: the event is not finished,
//! and comes again. A file is too large, deleted, or comes slowly: the message is accepted without
//! it, and says that there was one.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use holdfast_proto::gateway::v1::AcceptRequest;
use tokio::time::{Instant, timeout};
use tracing::{debug, info};

use super::{
    Matrix,
    judge::{Me, Room, is_allowed_in, judge},
    wire::Event,
};
use crate::{
    call::CallError,
    channel::ChannelAccount,
    inbound::{self, RetryMode, UpdateResult, Verdict},
};

/// Time for which the number of a room's members is remembered, unless a change is seen.
const ROOM_TTL: Duration = Duration::from_secs(300);

/// Maximum number of rooms that are remembered.
const MAX_ROOMS: usize = 10_000;

/// Minimum interval between two notices about the same encrypted room.
const ENCRYPTED_NOTICE_INTERVAL: Duration = Duration::from_secs(3600);

const ENCRYPTED_NOTICE: &str = "This room is encrypted, and I cannot read encrypted messages. \
                                Please write to me in a room without encryption.";

/// Maximum size of a file, in bytes.
const MAX_FILE_BYTES: usize = 10 * 1024 * 1024;

/// Maximum size of the files of one message together, in bytes: the gateway's limit.
const MAX_FILES_BYTES: usize = 20 * 1024 * 1024;

/// Timeout per file.
const FILE_TIMEOUT: Duration = Duration::from_secs(20);

/// What is known about rooms.
#[derive(Debug, Default)]
pub struct RoomCache(Mutex<HashMap<String, KnownRoom>>);

#[derive(Debug, Default, Clone, Copy)]
struct KnownRoom {
    /// Number of members, and when it was asked for.
    members: Option<(usize, Instant)>,
    told_encrypted: Option<Instant>,
}

impl RoomCache {
    fn members(&self, room: &str) -> Option<usize> {
        let rooms = self.lock();
        let (count, at) = rooms.get(room)?.members?;
        (at.elapsed() < ROOM_TTL).then_some(count)
    }

    fn set_members(&self, room: &str, count: Option<usize>) {
        self.entry(room, |known| known.members = count.map(|count| (count, Instant::now())));
    }

    /// Whether a notice is due that a room is encrypted; then it counts as sent.
    fn is_notice_due(&self, room: &str) -> bool {
        let mut is_due = false;
        self.entry(room, |known| {
            is_due =
                known.told_encrypted.is_none_or(|at| at.elapsed() >= ENCRYPTED_NOTICE_INTERVAL);
            if is_due {
                known.told_encrypted = Some(Instant::now());
            }
        });
        is_due
    }

    fn entry(&self, room: &str, change: impl FnOnce(&mut KnownRoom)) {
        let mut rooms = self.lock();
        if rooms.len() >= MAX_ROOMS && !rooms.contains_key(room) {
            rooms.clear();
        }
        change(rooms.entry(room.to_owned()).or_default());
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, KnownRoom>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Matrix {
    /// Handles an event of a room. [`me`](Self::me) must have succeeded before.
    pub(super) async fn handle_event(
        self: &Arc<Self>,
        room: &str,
        event: &Event,
        mode: RetryMode,
    ) -> UpdateResult {
        let Some(me) = self.me.get() else { return UpdateResult::SendAgain };
        let account: Arc<dyn ChannelAccount> = Arc::<Self>::clone(self);
        match event.kind.as_str() {
            "m.room.member" => {
                self.rooms.set_members(room, None);
                match event.membership_of(&me.id) {
                    Some("invite") => self.answer_invite(room, &event.sender).await,
                    _ => UpdateResult::Done,
                }
            }
            "m.room.encrypted" if event.sender != me.id => {
                let Ok(is_direct) = self.is_direct(room).await else { return UpdateResult::Done };
                let room = Room { id: room, is_direct, replied: None };
                if is_allowed_in(room, &event.sender, &self.settings)
                    && self.rooms.is_notice_due(room.id)
                {
                    self.notify_room(room.id, ENCRYPTED_NOTICE).await;
                }
                inbound::finish(&account, "encrypted")
            }
            "m.room.message" if event.sender != me.id => {
                self.handle_message(&account, room, event, (mode, me)).await
            }
            _ => UpdateResult::Done,
        }
    }

    async fn handle_message(
        &self,
        account: &Arc<dyn ChannelAccount>,
        room: &str,
        event: &Event,
        (mode, me): (RetryMode, &Me),
    ) -> UpdateResult {
        let is_direct = match self.is_direct(room).await {
            Ok(is_direct) => is_direct,
            // The account is no longer in the room.
            Err(CallError::Refused { .. }) => return inbound::finish(account, "ignored"),
            Err(error) => {
                debug!(%error, "the members of a room are not known");
                return UpdateResult::SendAgain;
            }
        };
        let replied = match event.replied_id() {
            Some(id) => self.server.event(room, id).await.unwrap_or_default(),
            None => None,
        };
        let place = Room { id: room, is_direct, replied: replied.as_ref() };
        let mut verdict = judge(event, &self.settings, place, me);
        if let Verdict::Take(request) = &mut verdict {
            self.fetch_files(request).await;
        }
        inbound::handle(account, verdict, mode).await
    }

    /// Whether a room is a conversation with one person: it has two members, and is not listed as a
    /// room.
    async fn is_direct(&self, room: &str) -> Result<bool, CallError> {
        if self.settings.groups.allow.names(room, "") {
            return Ok(false);
        }
        if let Some(members) = self.rooms.members(room) {
            return Ok(members <= 2);
        }
        let members = self.server.members(room).await?.joined.len();
        self.rooms.set_members(room, Some(members));
        Ok(members <= 2)
    }

    /// Joins a room to which an allowed person invites, or which is listed; declines others.
    pub(super) async fn answer_invite(&self, room: &str, inviter: &str) -> UpdateResult {
        let is_welcome =
            self.settings.allow.allows(inviter, "") || self.settings.groups.allow.names(room, "");
        let done = match is_welcome {
            true => self.server.join(room).await,
            false => self.server.leave(room).await,
        };
        match done {
            Ok(()) if is_welcome => {
                self.rooms.set_members(room, None);
                info!(account.id = %self.account.id, "joined a room");
                if matches!(self.server.state(room, "m.room.encryption").await, Ok(Some(_)))
                    && self.rooms.is_notice_due(room)
                {
                    self.notify_room(room, ENCRYPTED_NOTICE).await;
                }
                UpdateResult::Done
            }
            Ok(()) => {
                debug!("an invitation by somebody who is not allowed was declined");
                UpdateResult::Done
            }
            // The invitation was withdrawn, or the room does not let the account in.
            Err(error @ CallError::Refused { .. }) => {
                debug!(%error, "an invitation could not be answered");
                UpdateResult::Done
            }
            Err(error) => {
                debug!(%error, "an invitation is not answered yet");
                UpdateResult::SendAgain
            }
        }
    }

    /// Fetches the files of a message, unless the message is silent or the file is a video.
    async fn fetch_files(&self, request: &mut AcceptRequest) {
        if request.silent {
            return;
        }
        let mut left = MAX_FILES_BYTES;
        for attachment in &mut request.attachments {
            if attachment.kind == "video" || attachment.reference.is_empty() {
                continue;
            }
            let most = left.min(MAX_FILE_BYTES);
            let fetched = self.server.download(&attachment.reference, most);
            match timeout(FILE_TIMEOUT, fetched).await {
                Ok(Ok(content)) => {
                    left -= content.len();
                    attachment.content = content;
                }
                Ok(Err(error)) => debug!(%error, "a file was not fetched"),
                Err(_) => debug!("a file took too long to fetch"),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn the_members_of_a_room_are_asked_for_again_after_a_change_and_after_a_while() {
        let rooms = RoomCache::default();

        rooms.set_members("!a", Some(2));
        assert_eq!(rooms.members("!a"), Some(2));
        rooms.set_members("!a", None);
        assert_eq!(rooms.members("!a"), None);
        rooms.set_members("!a", Some(3));
        tokio::time::advance(ROOM_TTL).await;
        assert_eq!(rooms.members("!a"), None);
    }

    #[tokio::test(start_paused = true)]
    async fn an_encrypted_room_is_told_once_an_hour() {
        let rooms = RoomCache::default();

        assert!(rooms.is_notice_due("!a"));
        rooms.set_members("!a", None);
        assert!(!rooms.is_notice_due("!a"));
        assert!(rooms.is_notice_due("!b"));
        tokio::time::advance(ENCRYPTED_NOTICE_INTERVAL).await;
        assert!(rooms.is_notice_due("!a"));
    }
}
