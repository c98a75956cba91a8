//! Previews: while a turn writes its answer, a message in the chat shows the beginning and is edited.
//!
//! Each preview has a task of its own in the bridge that handed over the message. All of it is
//! cosmetic: the answer is a delivery, which replaces the preview or, if that is not possible, is
//! sent as any other (`deliver.rs`).

use std::{sync::Arc, time::Duration};

use holdfast_proto::gateway::v1::AcceptResponse;
use holdfast_session::{Error, PreviewState};
use holdfast_types::{MessageId, SessionId, Target, TenantId};
use tokio::time::{Instant, sleep, sleep_until, timeout};
use tracing::debug;

use super::step_text::StepText;
use crate::{
    Outcome,
    account::RunningAnswers,
    channel::{ChannelAccount, Edit, MessageEdits},
    meter,
};

/// Maximum duration of a call that changes a preview. Less than the time for which the session store
/// counts a preview as being changed.
const CALL_TIMEOUT: Duration = Duration::from_secs(8);

/// Time after which a preview is no longer edited.
const MAX_FOLLOW_TIME: Duration = Duration::from_secs(30 * 60);

/// Time without a delta after which the database is asked whether the turn has ended.
const SILENCE_BEFORE_QUERY: Duration = Duration::from_secs(15);

/// How often, and how many times, the database is asked after the end of a turn what has become of
/// its delivery.
const SETTLE_INTERVAL: Duration = Duration::from_secs(1);
const MAX_SETTLE_QUERIES: u32 = 120;

/// Shows the answer to a message while it is written, if the account does that.
pub(super) fn show_answer(account: &Arc<dyn ChannelAccount>, accepted: &AcceptResponse) {
    let Some(answers) = account.account().answers.clone() else { return };
    let ids = (accepted.message_id.parse(), accepted.session_id.parse());
    let (Some(_), Ok(message), Ok(session)) = (account.edits(), ids.0, ids.1) else { return };
    let tenant = account.account().tenant;
    let account = Arc::clone(account);
    let task = PreviewTask { answers, account, tenant, message, state: PreviewMessage::default() };
    tokio::spawn(task.run(session, accepted.seq));
}

/// The preview of one answer.
struct PreviewTask {
    answers: RunningAnswers,
    account: Arc<dyn ChannelAccount>,
    tenant: TenantId,
    message: MessageId,
    state: PreviewMessage,
}

#[derive(Default)]
struct PreviewMessage {
    /// Where the preview is; `None` until it is begun.
    target: Option<Target>,
    /// The platform's id of its message; `None` until it is sent.
    platform_id: Option<String>,
    text: String,
    /// Before this time nothing is changed.
    next_at: Option<Instant>,
    /// Nothing is changed any more.
    is_over: bool,
}

impl PreviewTask {
    async fn run(mut self, session: SessionId, seq: i64) {
        let stopping = self.answers.stopping.clone();
        tokio::select! {
            () = stopping.cancelled() => {}
            done = self.follow(session, seq) => {
                if let Err(error) = done {
                    debug!(%error, "a preview was given up");
                }
            }
        }
    }

    async fn follow(&mut self, session: SessionId, seq: i64) -> Result<(), Error> {
        let Ok(mut deltas) = self.answers.bus.subscribe_deltas(self.tenant, session).await else {
            return Ok(());
        };
        let mut text = StepText::new(self.message.into(), seq);
        let until = Instant::now() + MAX_FOLLOW_TIME;
        while Instant::now() < until {
            let wanted = if self.state.is_over { None } else { self.new_text(&text) };
            let due = self.state.next_at.unwrap_or_else(Instant::now);
            tokio::select! {
                biased;
                delta = deltas.next() => {
                    let Some(delta) = delta else { break };
                    if text.add(delta) {
                        break;
                    }
                }
                () = sleep_until(due), if wanted.is_some() => {
                    self.show(wanted.unwrap_or_default()).await?;
                }
                () = sleep(SILENCE_BEFORE_QUERY) => {
                    if self.settle().await? {
                        return Ok(());
                    }
                }
            }
        }
        for _ in 0..MAX_SETTLE_QUERIES {
            if self.settle().await? {
                break;
            }
            sleep(SETTLE_INTERVAL).await;
        }
        Ok(())
    }

    /// Returns the text to show, if it is not shown yet.
    fn new_text(&self, text: &StepText) -> Option<String> {
        let whole = text.shown()?;
        let shown = match self.account.fits(&whole) {
            true => whole,
            false => {
                // The answer will have several parts, and its first one replaces the preview.
                let mut first = self.account.split_reply(&whole).into_iter().next()?;
                while !self.account.fits(&format!("{first} …")) {
                    first.pop()?;
                }
                format!("{} …", first.trim_end_matches(" …"))
            }
        };
        (shown != self.state.text).then_some(shown)
    }

    /// Sends the preview, or edits it.
    async fn show(&mut self, text: String) -> Result<(), Error> {
        let deliveries = self.answers.sessions.deliveries();
        let Some(edits) = self.account.edits() else { return Ok(()) };
        let may_change = match &self.state.target {
            None => {
                self.state.target = deliveries.begin_preview(self.tenant, self.message).await?;
                self.state.target.is_some()
            }
            Some(_) => deliveries.begin_preview_edit(self.tenant, self.message).await?,
        };
        let (true, Some(target)) = (may_change, &self.state.target) else {
            self.state.is_over = true;
            return Ok(());
        };
        let call = async {
            match &self.state.platform_id {
                None => edits.post(target, &text).await,
                Some(id) => edits.edit(Edit { target, id, text: &text, delivery: None }).await,
            }
        };
        let outcome = timeout(CALL_TIMEOUT, call).await;
        let outcome = outcome.unwrap_or_else(|_| Outcome::unsure("it took too long"));
        let interval = edits.min_interval(target);
        self.state.next_at = Some(Instant::now() + interval);
        match outcome {
            Outcome::Sent { platform_id } => {
                let id = self.state.platform_id.get_or_insert(platform_id).clone();
                self.state.text = text;
                let is_ours = deliveries.end_preview_edit(self.tenant, self.message, &id).await?;
                if !is_ours {
                    // The delivery came meanwhile. It did not know this message if it is new, and
                    // deletes it otherwise.
                    self.state.is_over = true;
                    remove(edits, target, &id).await;
                }
                meter::preview(self.account.account().channel, "shown");
            }
            Outcome::NotSent { after, .. } => {
                if let Some(id) = &self.state.platform_id {
                    deliveries.end_preview_edit(self.tenant, self.message, id).await?;
                }
                self.state.next_at = Some(Instant::now() + after.unwrap_or(interval).max(interval));
                meter::preview(self.account.account().channel, "later");
            }
            Outcome::Refused { .. } | Outcome::Unsure { .. } | Outcome::Unknown { .. } => {
                self.state.is_over = true;
                meter::preview(self.account.account().channel, "given_up");
            }
        }
        Ok(())
    }

    /// Deletes the preview if nothing replaces it. Returns whether it is settled.
    async fn settle(&self) -> Result<bool, Error> {
        let deliveries = self.answers.sessions.deliveries();
        match deliveries.settle_preview(self.tenant, self.message).await? {
            PreviewState::Open => Ok(false),
            PreviewState::Taken => Ok(true),
            PreviewState::Abandoned { platform_id } => {
                if let (Some(edits), Some(target), Some(id)) =
                    (self.account.edits(), &self.state.target, platform_id)
                {
                    remove(edits, target, &id).await;
                }
                Ok(true)
            }
        }
    }
}

async fn remove(edits: &dyn MessageEdits, target: &Target, id: &str) {
    let _ = timeout(CALL_TIMEOUT, edits.remove(target, id)).await;
}
