//! Webhooks for events, by the runner with the duty of upkeep: each event of a tenant's log is posted
//! to the tenant's webhooks that want it.
//!
//! Events of one session are posted in order. If one is not accepted, it and the later ones of its
//! session wait in the database, and other sessions go on. After [`MAX_FAILURES_IN_A_ROW`] a webhook
//! is taken to be down: nothing new is posted for a time, and the log keeps it. An event that is not
//! accepted for `runner.webhook_give_up` is a dead letter; a webhook that has accepted nothing for so
//! long is disabled.
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
use holdfast_pg::FailureLog;
use holdfast_session::{
    EventFilter, EventText, HeldEvent, LoggedEvent, WebhookKey, WebhookProgress, WebhookResult,
};
use holdfast_types::SessionId;
use jiff::Timestamp;
use tokio::{task::JoinSet, time::sleep};
use tokio_util::sync::CancellationToken;
use tracing::warn;

use crate::{jitter::jittered, worker::Worker};
use post::{PostResult, post};

/// Interval of looking for something to send.
const INTERVAL: Duration = Duration::from_secs(1);

/// Webhooks that are served at a time.
const WEBHOOKS_AT_ONCE: usize = 16;

/// Webhooks that one round looks at.
const WEBHOOKS_PER_ROUND: i64 = 256;

/// Waiting events that one round tries again.
const RETRIES_PER_ROUND: i64 = 32;

/// New events that one round posts, so that a busy webhook does not keep others waiting.
const EVENTS_PER_ROUND: usize = 200;

/// Attempts in a row after whose failure no new event is posted for a time.
const MAX_FAILURES_IN_A_ROW: i32 = 3;

/// Longest delay before an attempt is repeated.
const MAX_RETRY_DELAY: Duration = Duration::from_secs(3600);

/// Posts events, until `stop`.
pub(crate) async fn run(worker: Arc<Worker>, guard: Guard, stop: CancellationToken) {
    let trouble = FailureLog::new("events are not posted to webhooks");
    while stop.run_until_cancelled(sleep(jittered(INTERVAL))).await.is_some() {
        if !worker.upkeep.is_held() {
            continue;
        }
        let due = match worker.sessions.event_log().due_webhooks(WEBHOOKS_PER_ROUND).await {
            Ok(due) => due,
            Err(error) => {
                trouble.on_failure(&error);
                continue;
            }
        };
        trouble.on_success();
        if stop.run_until_cancelled(serve_all(&worker, &guard, due)).await.is_none() {
            return;
        }
    }
}

/// Serves webhooks, some at a time; one that is slow or fails keeps no other waiting for long.
async fn serve_all(worker: &Arc<Worker>, guard: &Guard, due: Vec<WebhookKey>) {
    let mut served = JoinSet::new();
    for key in due {
        if served.len() >= WEBHOOKS_AT_ONCE {
            served.join_next().await;
        }
        let sender = Sender { worker: Arc::clone(worker), guard: guard.clone(), key };
        served.spawn(async move {
            if let Err(error) = sender.serve().await {
                let error: &dyn std::error::Error = error.as_ref();
                warn!(tenant.id = %key.tenant, webhook.id = %key.webhook, error, "a webhook is not served");
            }
        });
    }
    while served.join_next().await.is_some() {}
}

/// Serves one webhook.
struct Sender {
    worker: Arc<Worker>,
    guard: Guard,
    key: WebhookKey,
}

impl Sender {
    async fn serve(&self) -> anyhow::Result<()> {
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
        if self.retry_held(&open).await? && progress.is_due {
            self.send_new(&open, progress).await?;
        }
        Ok(())
    }

    /// Tries events that wait. Returns whether new ones may be sent now.
    async fn retry_held(&self, open: &OpenEventWebhook) -> anyhow::Result<bool> {
        let log = self.worker.sessions.event_log();
        let mut tried = 0;
        loop {
            let due = log.due_held(self.key, RETRIES_PER_ROUND).await?;
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
                if tried >= RETRIES_PER_ROUND {
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
        while sent < EVENTS_PER_ROUND {
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
                if let Progress::Stop = self.after(open, &result).await? {
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
