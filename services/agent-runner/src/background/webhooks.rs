//! Webhooks for events, by the runner with the duty of upkeep: each event of a tenant's log is posted
//! to the tenant's webhooks that want it.
//!
//! Events of one session are posted in order. If one is not accepted, it and the later ones of its
//! session wait in the database, and other sessions go on. After [`MAX_FAILURES_IN_A_ROW`] a webhook
//! is taken to be down: nothing new is posted for a time, and the log keeps it. An event that is not
//! accepted for `runner.webhook_give_up` is a dead letter; a webhook that has accepted nothing for so
//! long is disabled.
//!
//! Tenants share the slots fairly, and a webhook keeps one for [`MAX_SERVING_TIME`] and one request at
//! most: slow receivers of one tenant do not delay others'.
//!
//! ## What can go wrong
//!
//! A runner that dies after a request and before its record posts the event again, with the same
//! `webhook-id`. So does a second runner that believes it has the duty: the position moves only from
//! where it was read, so one of the two stops.

mod post;

use std::{collections::HashSet, sync::Arc, time::Duration};

use holdfast_directory::OpenEventWebhook;
use holdfast_egress::Guard;
use holdfast_kit::{Budget, BudgetShare, FairSlots};
use holdfast_pg::FailureLog;
use holdfast_session::{
    EventFilter, EventText, HeldEvent, LoggedEvent, WebhookKey, WebhookProgress, WebhookResult,
};
use holdfast_types::{SessionId, TenantId};
use jiff::Timestamp;
use tokio::{
    task::JoinSet,
    time::{Instant, sleep},
};
use tokio_util::sync::CancellationToken;
use tracing::warn;

use crate::{jitter::jittered, worker::Worker};
use post::{PostResult, post};

/// Interval of looking for something to send.
const INTERVAL: Duration = Duration::from_secs(1);

/// Webhooks that are served at a time. Tenants share them fairly.
const WEBHOOKS_AT_ONCE: usize = 64;

/// Webhooks that are served or wait for it.
const MAX_BEGUN_WEBHOOKS: u64 = 1024;

/// Webhooks that are looked for at a time.
const WEBHOOKS_PER_QUERY: i64 = 256;

/// Time after which a webhook makes room for another: its receiver may be slow.
const MAX_SERVING_TIME: Duration = Duration::from_secs(30);

/// Waiting events that are tried again before a webhook makes room for another.
const MAX_RETRIES: i64 = 32;

/// New events that are posted before a webhook makes room for another.
const MAX_EVENTS: usize = 200;

/// Attempts in a row after whose failure no new event is posted for a time.
const MAX_FAILURES_IN_A_ROW: i32 = 3;

/// Longest delay before an attempt is repeated.
const MAX_RETRY_DELAY: Duration = Duration::from_secs(3600);

/// Posts events, until `stop`.
pub(crate) async fn run(worker: Arc<Worker>, guard: Guard, stop: CancellationToken) {
    let trouble = FailureLog::new("events are not posted to webhooks");
    let mut pool = WebhookPool::new();
    while stop.run_until_cancelled(sleep(jittered(INTERVAL))).await.is_some() {
        if !worker.upkeep.is_held() {
            continue;
        }
        let due = match worker.sessions.event_log().due_webhooks(WEBHOOKS_PER_QUERY).await {
            Ok(due) => due,
            Err(error) => {
                trouble.on_failure(&error);
                continue;
            }
        };
        trouble.on_success();
        pool.begin(&worker, &guard, due);
    }
}

/// Webhooks that are served or wait for it. No webhook waits until others have ended: a slot that is
/// free goes to the tenant with the fewest.
struct WebhookPool {
    slots: Arc<FairSlots<TenantId>>,
    begun: Arc<Budget<WebhookKey>>,
    /// Ends them when the pool is dropped.
    tasks: JoinSet<()>,
}

impl WebhookPool {
    fn new() -> Self {
        let slots = FairSlots::new(WEBHOOKS_AT_ONCE);
        Self { slots, begun: Budget::new(MAX_BEGUN_WEBHOOKS, 1), tasks: JoinSet::new() }
    }

    /// Begins to serve the webhooks that are not being served.
    fn begin(&mut self, worker: &Arc<Worker>, guard: &Guard, due: Vec<WebhookKey>) {
        while self.tasks.try_join_next().is_some() {}
        for key in due {
            let begun = self.begun.share(key);
            if begun.grow(1).is_err() {
                continue;
            }
            let sender = Sender { worker: Arc::clone(worker), guard: guard.clone(), key };
            self.tasks.spawn(serve(sender, Arc::clone(&self.slots), begun));
        }
    }
}

async fn serve(sender: Sender, slots: Arc<FairSlots<TenantId>>, begun: BudgetShare<WebhookKey>) {
    let key = sender.key;
    let slot = slots.acquire(key.tenant).await;
    if let Err(error) = sender.serve(Instant::now() + MAX_SERVING_TIME).await {
        let error: &dyn std::error::Error = error.as_ref();
        warn!(tenant.id = %key.tenant, webhook.id = %key.webhook, error, "a webhook is not served");
    }
    drop((slot, begun));
}

/// Serves one webhook.
struct Sender {
    worker: Arc<Worker>,
    guard: Guard,
    key: WebhookKey,
}

impl Sender {
    /// Sends events until there are none, or until `end`.
    async fn serve(&self, end: Instant) -> anyhow::Result<()> {
        let webhooks = self.worker.directory.event_webhooks();
        let Some(open) = webhooks.open(self.key.tenant, self.key.webhook).await? else {
            return Ok(());
        };
        let log = self.worker.sessions.event_log();
        let Some(progress) = log.webhook_progress(self.key).await? else {
            // The gateway stopped between the two writes of a creation.
            let bounds = log.bounds(self.key.tenant).await?;
            return Ok(log.start_webhook(self.key, bounds.newest).await?);
        };
        if self.retry_held(&open, end).await? && progress.is_due {
            self.send_new(&open, progress, end).await?;
        }
        Ok(())
    }

    /// Tries events that wait. Returns whether new ones may be sent now.
    async fn retry_held(&self, open: &OpenEventWebhook, end: Instant) -> anyhow::Result<bool> {
        let log = self.worker.sessions.event_log();
        let mut tried = 0;
        loop {
            let due = log.due_held(self.key, MAX_RETRIES).await?;
            if due.is_empty() {
                return Ok(true);
            }
            for held in due {
                let result = self.attempt(open, &held.logged, Some(&held)).await?;
                log.record_held(self.key, held.logged.position, &result).await?;
                match self.after(open, &result).await? {
                    Progress::GoOn => {}
                    Progress::Stop => return Ok(false),
                }
                tried += 1;
                if Instant::now() >= end {
                    return Ok(false);
                }
                if tried >= MAX_RETRIES {
                    return Ok(true);
                }
            }
        }
    }

    /// Sends events behind the webhook's position.
    async fn send_new(
        &self,
        open: &OpenEventWebhook,
        progress: WebhookProgress,
        end: Instant,
    ) -> anyhow::Result<()> {
        let log = self.worker.sessions.event_log();
        let settings = &open.webhook.settings;
        let filter = EventFilter {
            types: settings.types.clone(),
            agent: settings.agent,
            session: settings.session,
            channel: settings.channel.clone(),
        };
        let mut held: HashSet<SessionId> = log.held_sessions(self.key).await?.into_iter().collect();
        let (mut position, mut sent) = (progress.position, 0);
        while sent < MAX_EVENTS {
            let page = log.page(self.key.tenant, position).await?;
            if position < page.bounds.deleted {
                warn!(
                    tenant.id = %self.key.tenant, webhook = settings.name,
                    "events were deleted before a webhook accepted them"
                );
                return Ok(log.start_webhook(self.key, page.bounds.deleted).await?);
            }
            if page.events.is_empty() {
                return Ok(());
            }
            for logged in page.events {
                let session = logged.event.session.unwrap_or_else(|| uuid::Uuid::nil().into());
                let result = if !filter.includes(&logged.event) {
                    WebhookResult::Unwanted
                } else if held.contains(&session) {
                    WebhookResult::Held
                } else {
                    sent += 1;
                    self.attempt(open, &logged, None).await?
                };
                if !log.advance_webhook(self.key, position, (&logged, &result)).await? {
                    return Ok(());
                }
                position = logged.position;
                if matches!(result, WebhookResult::Failed { .. }) {
                    held.insert(session);
                }
                let progress = self.after(open, &result).await?;
                if matches!(progress, Progress::Stop) || Instant::now() >= end {
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    /// Posts an event once. `held` is its record if it was tried before.
    async fn attempt(
        &self,
        open: &OpenEventWebhook,
        logged: &LoggedEvent,
        held: Option<&HeldEvent>,
    ) -> anyhow::Result<WebhookResult> {
        let mut body = logged.to_json();
        if open.webhook.settings.include_content
            && let Some(wanted) = EventText::of(logged)
        {
            let texts = self.worker.sessions.event_log().texts(self.key.tenant, &[wanted]).await?;
            body["text"] = texts.into_iter().flatten().next().into();
        }
        let id = logged.cursor().to_string();
        let settings = &open.webhook.settings;
        let reason =
            match post(&self.guard, &settings.url, (&id, &body.to_string()), &open.secrets).await {
                PostResult::Accepted => {
                    count("accepted");
                    return Ok(WebhookResult::Accepted);
                }
                PostResult::Refused(reason) => reason,
            };
        let attempts = held.map_or(0, |held| held.attempts);
        let first = held.and_then(|held| held.failed_at);
        let config = &self.worker.config;
        if first.is_some_and(|first| is_past(first, config.webhook_give_up)) {
            count("dead");
            return Ok(WebhookResult::Dead { reason });
        }
        count("failed");
        let factor = 2_u32.saturating_pow(u32::try_from(attempts).unwrap_or(u32::MAX));
        let after = config.webhook_retry.saturating_mul(factor).min(MAX_RETRY_DELAY);
        Ok(WebhookResult::Failed { reason, after: jittered(after) })
    }

    /// Pauses or disables a webhook that keeps failing.
    async fn after(
        &self,
        open: &OpenEventWebhook,
        result: &WebhookResult,
    ) -> anyhow::Result<Progress> {
        let (reason, after) = match result {
            WebhookResult::Failed { reason, after } => (reason, *after),
            WebhookResult::Dead { reason } => (reason, Duration::ZERO),
            WebhookResult::Accepted | WebhookResult::Held | WebhookResult::Unwanted => {
                return Ok(Progress::GoOn);
            }
        };
        let log = self.worker.sessions.event_log();
        let progress = log.webhook_progress(self.key).await?.unwrap_or_default();
        let config = &self.worker.config;
        let is_down = progress.failing_since.is_some_and(|at| is_past(at, config.webhook_give_up));
        if is_down && matches!(result, WebhookResult::Dead { .. }) {
            let name = &open.webhook.settings.name;
            warn!(tenant.id = %self.key.tenant, webhook = name, reason, "a webhook is disabled");
            let told = format!("it accepted nothing for too long: {reason}");
            let webhooks = self.worker.directory.event_webhooks();
            webhooks.disable(self.key.tenant, self.key.webhook, &told).await?;
            self.worker.events.notify_one();
            return Ok(Progress::Stop);
        }
        if progress.failures >= MAX_FAILURES_IN_A_ROW {
            log.pause_webhook(self.key, after).await?;
            return Ok(Progress::Stop);
        }
        Ok(Progress::GoOn)
    }
}

/// Whether more events may be sent to a webhook now.
enum Progress {
    GoOn,
    Stop,
}

fn is_past(since: Timestamp, after: Duration) -> bool {
    Timestamp::now().duration_since(since).unsigned_abs() >= after
}

fn count(outcome: &'static str) {
    metrics::counter!("holdfast_runner_webhook_posts_total", "outcome" => outcome).increment(1);
}
