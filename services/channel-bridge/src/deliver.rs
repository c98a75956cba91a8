//! Sending of replies: claims due deliveries, sends each, and settles it.
//!
//! A part is committed as `sending` before its platform is called and settled after. If the process
//! crashes between the two, the outcome of the send is unknown. So every claimed delivery is sent and settled, also during shutdown; the process only stops claiming. A delivery
//! that was claimed and not yet `sending` at a crash becomes due again seconds later, by the
//! session store.

use std::{future::pending, sync::Arc, time::Duration};

use holdfast_bus::{Bus, Subscription};
use holdfast_kit::{Backoff, trace};
use holdfast_pg::FailureLog;
use holdfast_session::{Delivery, Error, SendResult, Sessions, TakenPreview};
use holdfast_types::{ChannelAction, DeliveryClass, Fault as _, RunnerId};
use holdfast_workspace::{ContentHash, Workspaces};
use tokio::{
    sync::{Notify, OwnedSemaphorePermit, Semaphore},
    time::{sleep, timeout},
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use tracing::{Instrument as _, debug, error, info, info_span, warn};

use crate::{
    Outcome,
    accounts::{Accounts, MissingAdapter},
    channel::{ChannelAccount, Edit},
    meter,
    outcome::{Reconciliation, RetryPolicy},
    share::SendSlots,
};

/// Interval between claims while no wake-up arrives and no delivery is due.
const POLL_INTERVAL: Duration = Duration::from_secs(1);

/// [`POLL_INTERVAL`] of a channel without accounts, whose replies can only be refused.
const UNUSED_POLL_INTERVAL: Duration = Duration::from_secs(5);

/// Maximum duration of one send: below the lease of a delivery, with time left to settle it.
pub const SEND_TIMEOUT: Duration = Duration::from_secs(45);

/// Maximum time for which a sent answer waits until its preview is deleted.
const PREVIEW_TIMEOUT: Duration = Duration::from_secs(5);

/// Number of attempts, over about a minute and a half, in which a bridge of a newer version may take
/// an action that this one does not know. Later replies of the session wait for it.
const UNKNOWN_ACTION_TRIES: i32 = 9;

/// Delays while the database does not answer.
const BACKOFF: Backoff = Backoff::new(Duration::from_millis(200), Duration::from_secs(5));

/// Sender of the due deliveries of one kind of channel.
#[derive(Debug)]
pub struct DeliveryWorker {
    pub sessions: Sessions,
    /// Store of the attached files.
    pub files: Workspaces,
    pub accounts: Arc<Accounts>,
    pub bus: Bus,
    pub retry: RetryPolicy,
    /// Id of this process, which owns its claims.
    pub owner: RunnerId,
    pub channel: &'static str,
    /// Guarantee of the channel for a message that is sent twice.
    pub class: DeliveryClass,
    /// Maximum number of sends at once.
    pub slots: usize,
    /// Sends in progress by tenant and account.
    pub shares: Arc<SendSlots>,
}

impl DeliveryWorker {
    /// Sends until `stop` is cancelled, then finishes the sends in progress.
    ///
    /// # Errors
    ///
    /// Never; a failure is logged and retried.
    pub async fn run(self, stop: CancellationToken) -> anyhow::Result<()> {
        let (this, more) = (Arc::new(self), Arc::new(Notify::new()));
        let slots = Arc::new(Semaphore::new(this.slots));
        let sends = TaskTracker::new();
        let mut wakes = None;
        let trouble = FailureLog::new("replies are not claimed");
        let mut failures = 0;
        while !stop.is_cancelled() {
            if wakes.is_none() {
                wakes = this.bus.deliver_wakes(this.channel).await.ok();
            }
            let permits = tokio::select! {
                () = stop.cancelled() => break,
                permits = take_free_slots(&slots) => permits,
            };
            // Not cancelled half way: deliveries that were claimed and not sent would look as if
            // they had been.
            match this.claim(permits.len()).await {
                Ok(claimed) => {
                    trouble.on_success();
                    failures = 0;
                    let is_idle = claimed.is_empty();
                    for (delivery, permit) in claimed.into_iter().zip(permits) {
                        let (this, more) = (Arc::clone(&this), Arc::clone(&more));
                        let share = this.shares.take(delivery.tenant, delivery.target.account);
                        sends.spawn(async move {
                            this.deliver(delivery, &more).await;
                            let is_awaited = share.is_awaited();
                            drop((share, permit));
                            if is_awaited {
                                more.notify_one();
                            }
                        });
                    }
                    if !is_idle {
                        continue;
                    }
                    tokio::select! {
                        () = stop.cancelled() => {}
                        () = more.notified() => {}
                        () = next_wake_up(&mut wakes) => {}
                        () = sleep(this.poll_interval()) => {}
                    }
                }
                Err(error) => {
                    drop(permits);
                    trouble.on_failure(&error);
                    tokio::select! {
                        () = stop.cancelled() => {}
                        () = sleep(BACKOFF.delay(failures)) => {}
                    }
                    failures += 1;
                }
            }
        }
        sends.close();
        sends.wait().await;
        Ok(())
    }

    fn poll_interval(&self) -> Duration {
        if self.accounts.has_any_of(self.channel) { POLL_INTERVAL } else { UNUSED_POLL_INTERVAL }
    }

    async fn claim(&self, free: usize) -> Result<Vec<Delivery>, Error> {
        let mut capacity = self.shares.capacity(free);
        capacity.elsewhere = self.accounts.connected_elsewhere(self.channel);
        self.sessions.deliveries().claim(self.channel, self.class, self.owner, &capacity).await
    }

    async fn deliver(&self, mut delivery: Delivery, more: &Notify) {
        let span = info_span!(
            "deliver",
            tenant.id = %delivery.tenant,
            session.id = %delivery.session,
            run.id = %delivery.run,
            delivery.id = %delivery.id,
            channel = self.channel,
            attempt = delivery.attempt,
        );
        if let Some(traceparent) = &delivery.trace {
            trace::continue_from(&span, traceparent);
        }
        async {
            let Some(outcome) = self.attempt(&mut delivery).await else { return };
            let tries = u32::try_from(delivery.tries).unwrap_or(u32::MAX);
            let unsure_for = delivery.unsure_for.unwrap_or_default();
            let sent = self.retry.settle(self.class, (tries, unsure_for), outcome);
            self.log_outcome(&delivery, &sent);
            self.settle(&delivery, sent, more).await;
        }
        .instrument(span)
        .await;
    }

    /// Makes one attempt; returns `None` if another bridge owns the delivery now.
    async fn attempt(&self, delivery: &mut Delivery) -> Option<Outcome> {
        let adapter = match self.accounts.adapter(delivery.tenant, delivery.target.account).await {
            Ok(adapter) => adapter,
            Err(MissingAdapter::Deleted) => {
                return Some(Outcome::refused("its account was deleted"));
            }
            Err(MissingAdapter::Unavailable(why)) => return Some(Outcome::not_sent(why)),
        };
        let preview = match self.take_preview(&*adapter, delivery).await {
            Ok(preview) => preview,
            Err(outcome) => return Some(outcome),
        };
        // An edit can be repeated without harm.
        if preview.is_none()
            && let Some(outcome) = self.resolve_unsure(&*adapter, delivery).await
        {
            return Some(outcome);
        }
        let file = match self.prepare(delivery).await {
            Ok(file) => file,
            Err(outcome) => return Some(outcome),
        };
        if !delivery.split && delivery.act.is_none() {
            let mut parts = adapter.split_reply(&delivery.text);
            if parts.is_empty() {
                return Some(Outcome::refused("there is nothing in it to show"));
            }
            match self.sessions.deliveries().split(delivery, self.owner, &parts).await {
                Ok(()) => {
                    if parts.len() > 1 {
                        delivery.approval = None;
                    }
                    delivery.text = parts.swap_remove(0);
                }
                Err(error) if error.is_fenced() => return None,
                Err(error) => return Some(Outcome::not_sent(format!("cannot cut it: {error}"))),
            }
        }
        if let Some(preview) = preview {
            return Some(self.replace_preview(&*adapter, delivery, &preview).await);
        }
        Some(send(&*adapter, delivery, file.as_deref()).await)
    }

    /// Takes the preview of the answer, if this delivery is the beginning of the answer.
    async fn take_preview(
        &self,
        adapter: &dyn ChannelAccount,
        delivery: &Delivery,
    ) -> Result<Option<TakenPreview>, Outcome> {
        let is_text = delivery.act.is_none() && delivery.approval.is_none() && delivery.part == 0;
        if adapter.edits().is_none() || !is_text {
            return Ok(None);
        }
        let taken = self.sessions.deliveries().take_preview(delivery).await;
        taken.map_err(|error| Outcome::not_sent(format!("cannot look for its preview: {error}")))
    }

    /// Replaces the preview of the answer by the answer. If the platform refuses that, or an earlier
    /// edit may still be executed, the answer is sent as a new message.
    async fn replace_preview(
        &self,
        adapter: &dyn ChannelAccount,
        delivery: &Delivery,
        TakenPreview { platform_id, is_changing }: &TakenPreview,
    ) -> Outcome {
        let Some(edits) = adapter.edits() else { return Outcome::not_sent("its account changes") };
        let (target, text) = (&delivery.target, delivery.text.as_str());
        if !is_changing {
            let edit = Edit { target, id: platform_id, text, delivery: Some(delivery.id) };
            match timeout(SEND_TIMEOUT, edits.edit(edit)).await {
                Err(_) => return Outcome::not_sent("it took too long"),
                Ok(Outcome::Refused { .. }) => {}
                Ok(outcome) => return outcome,
            }
        }
        if let Err(error) = self.sessions.deliveries().forget_preview(delivery).await {
            return Outcome::not_sent(format!("cannot leave its preview: {error}"));
        }
        let sent = send(adapter, delivery, None).await;
        // Nothing knows of it any more.
        let _ = timeout(PREVIEW_TIMEOUT, edits.remove(target, platform_id)).await;
        sent
    }

    /// Decides about a part of which an earlier attempt may have arrived; `None` if it may be sent.
    async fn resolve_unsure(
        &self,
        adapter: &dyn ChannelAccount,
        delivery: &Delivery,
    ) -> Option<Outcome> {
        let unsure_for = delivery.unsure_for?;
        // The text is split before the first call to the platform.
        if !delivery.split && delivery.act.is_none() {
            return None;
        }
        match self.class {
            DeliveryClass::Plain => None,
            DeliveryClass::Keyed { window } if unsure_for < window => None,
            DeliveryClass::Keyed { window } => Some(Outcome::Unknown {
                reason: format!(
                    "an earlier attempt may have arrived, and the platform remembers keys for \
                     {} s only",
                    window.as_secs()
                ),
            }),
            DeliveryClass::Reconcilable => {
                let asked = timeout(SEND_TIMEOUT, adapter.reconcile(delivery)).await;
                let asked = asked.unwrap_or_else(|_| Reconciliation::NotYet {
                    reason: "the platform did not say in time whether it has the message"
                        .to_owned(),
                });
                match asked {
                    Reconciliation::Sent { platform_id } => Some(Outcome::Sent { platform_id }),
                    Reconciliation::NotSent => None,
                    Reconciliation::NotYet { reason } => Some(Outcome::Unsure { reason }),
                    Reconciliation::CannotTell { reason } => Some(Outcome::Unknown { reason }),
                }
            }
        }
    }

    /// Loads the file that an act sends, or finds the message that it deletes or closes.
    async fn prepare(&self, delivery: &mut Delivery) -> Result<Option<Vec<u8>>, Outcome> {
        match &mut delivery.act {
            Some(ChannelAction::Media { file, .. }) => {
                let hash = file.hash.parse::<ContentHash>();
                let hash = hash.map_err(|_| Outcome::refused("its file has no hash"))?;
                let found = self.files.content_by_hash(delivery.tenant, &hash).await;
                found.map_err(|error| Outcome::not_sent(format!("cannot read its file: {error}")))
            }
            // Earlier parts are settled by now: parts of a session are delivered in order.
            Some(ChannelAction::Delete { message: None }) => {
                let before = self.sessions.deliveries().previous_platform_id(delivery).await;
                let before = before.map_err(|error| {
                    Outcome::not_sent(format!("cannot tell what to delete: {error}"))
                })?;
                delivery.act = Some(ChannelAction::Delete { message: before });
                Ok(None)
            }
            Some(ChannelAction::Close { approval, message: None }) => {
                let approval = *approval;
                let asked = self
                    .sessions
                    .deliveries()
                    .approval_request_platform_id(delivery, approval)
                    .await;
                let asked = asked.map_err(|error| {
                    Outcome::not_sent(format!("cannot tell where it was asked: {error}"))
                })?;
                // A request that was never delivered has no buttons to remove.
                let Some(asked) = asked else {
                    return Err(Outcome::Sent { platform_id: String::new() });
                };
                delivery.act = Some(ChannelAction::Close { approval, message: Some(asked) });
                Ok(None)
            }
            Some(ChannelAction::Unknown) => {
                let why = "this version of the bridge does not know the action";
                Err(match delivery.tries {
                    ..UNKNOWN_ACTION_TRIES => Outcome::not_sent(why),
                    _ => Outcome::refused(why),
                })
            }
            Some(_) | None => Ok(None),
        }
    }

    fn log_outcome(&self, delivery: &Delivery, sent: &SendResult) {
        let (outcome, reason) = match sent {
            SendResult::Sent { .. } => ("sent", ""),
            SendResult::Retry { reason, .. } | SendResult::Unsure { reason, .. } => {
                ("again", reason.as_str())
            }
            SendResult::Rejected { reason } => ("dead", reason.as_str()),
            SendResult::Unknown { reason } => ("unknown", reason.as_str()),
        };
        meter::delivery(self.channel, outcome);
        // The reason may contain the platform's text, which may contain the message's. Do not log
        // it: it is stored, where only the tenant sees it.
        match sent {
            SendResult::Sent { .. } => debug!(part = delivery.part, "a reply was sent"),
            SendResult::Retry { after, .. } => info!(?after, "a reply was not sent, and will be"),
            SendResult::Unsure { after, .. } => {
                info!(?after, "a reply may have arrived, and is tried again");
            }
            SendResult::Rejected { .. } | SendResult::Unknown { .. } => {
                warn!(
                    outcome,
                    reason.bytes = reason.len(),
                    "a reply was given up; its delivery says why"
                );
            }
        }
    }

    /// Records the outcome, and retries until it is stored: an unrecorded send would be reported as
    /// unknown, or repeated.
    async fn settle(&self, delivery: &Delivery, sent: SendResult, more: &Notify) {
        for tries in 0.. {
            match self.sessions.deliveries().record_result(delivery, self.owner, sent.clone()).await
            {
                Ok(is_more) => {
                    if is_more {
                        more.notify_one();
                    }
                    return;
                }
                Err(error) if error.kind().is_transient() => {
                    if tries == 0 {
                        warn!(%error, "how a reply fared is not recorded yet; trying again");
                    }
                    sleep(BACKOFF.delay(tries)).await;
                }
                Err(error) => {
                    error!(
                        error = &error as &dyn std::error::Error,
                        "how a reply fared cannot be recorded"
                    );
                    return;
                }
            }
        }
    }
}

async fn send(adapter: &dyn ChannelAccount, delivery: &Delivery, file: Option<&[u8]>) -> Outcome {
    let sent = timeout(SEND_TIMEOUT, adapter.send(delivery, file)).await;
    sent.unwrap_or_else(|_| Outcome::unsure("it took too long"))
}

/// Waits for a free slot, then takes all free slots.
async fn take_free_slots(slots: &Arc<Semaphore>) -> Vec<OwnedSemaphorePermit> {
    let mut permits = Vec::new();
    // The semaphore is never closed.
    if let Ok(first) = Arc::clone(slots).acquire_owned().await {
        permits.push(first);
    }
    while let Ok(permit) = Arc::clone(slots).try_acquire_owned() {
        permits.push(permit);
    }
    permits
}

/// Waits for a wake-up. If the subscription has ended, waits forever: the caller also polls.
async fn next_wake_up(wakes: &mut Option<Subscription>) {
    let token = match wakes {
        Some(subscription) => subscription.next().await,
        None => None,
    };
    if token.is_none() {
        *wakes = None;
        pending::<()>().await;
    }
}
