//! Inbound messages of all channels: judged by the channel, handed over to the gateway here.
//!
//! A channel turns what its platform sent into a [`Verdict`]. `handle` offers an accepted message to
//! the gateway under its idempotency key, shows that it is answered, and tells people why they are
//! not: strangers at most once an hour.

mod previews;
mod step_text;

use std::{sync::Arc, time::Duration};

use holdfast_proto::gateway::v1::{AcceptRequest, AcceptResponse, SenderAssurance};
use tokio::{sync::mpsc, time::timeout};
use tokio_util::task::AbortOnDropHandle;
use tracing::{debug, warn};

use crate::{
    channel::{ChannelAccount, Place},
    ingest::AcceptError,
    meter,
};

/// Maximum duration of a cosmetic call.
const COSMETIC_TIMEOUT: Duration = Duration::from_secs(20);

/// What a channel decided about something that its platform sent.
#[derive(Debug, Clone, PartialEq)]
pub enum Verdict {
    /// Accept and pass to the gateway. `handle` fills in the account's fields.
    Take(Box<AcceptRequest>),
    /// Refuse: a direct message from a sender that is not allowed.
    Refuse { place: Place, sender: String },
    /// Ignore, with the reason for the log.
    Ignore(&'static str),
}

/// Result of handling an update.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UpdateResult {
    /// The update is finished: the platform may forget it.
    Done,
    /// The update is not finished: the platform must send it again.
    SendAgain,
}

/// Retry behaviour towards the gateway.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RetryMode {
    /// One attempt: the platform calls again by itself.
    Once,
    /// Retries: the platform does not repeat the message, or all later ones wait for it.
    UntilDecided,
}

/// Carries out a verdict.
pub async fn handle(
    account: &Arc<dyn ChannelAccount>,
    verdict: Verdict,
    mode: RetryMode,
) -> UpdateResult {
    let served = account.account();
    match verdict {
        Verdict::Ignore(why) => {
            debug!(why, "an update is nothing to us");
            finish(account, "ignored")
        }
        Verdict::Refuse { place, sender } => {
            if served.notices.is_due(&sender) {
                let text = format!(
                    "You are not allowed to write to this assistant. \
                     Its owner can allow you by your id: {sender}"
                );
                notify(account, place, text);
            }
            finish(account, "not_allowed")
        }
        Verdict::Take(request) => {
            let assurance = match request.sender_assurance() {
                SenderAssurance::Unspecified => served.assurance,
                stated => stated,
            };
            let request = AcceptRequest {
                sender_assurance: assurance.into(),
                account_id: served.id.to_string(),
                channel: served.channel.to_owned(),
                account: served.name.clone(),
                ..*request
            };
            offer(account, request, mode).await
        }
    }
}

/// Counts an update with its outcome, and reports it as finished.
pub fn finish(account: &Arc<dyn ChannelAccount>, outcome: &'static str) -> UpdateResult {
    meter::update(account.account().channel, outcome);
    UpdateResult::Done
}

async fn offer(
    account: &Arc<dyn ChannelAccount>,
    request: AcceptRequest,
    mode: RetryMode,
) -> UpdateResult {
    let served = account.account();
    let thread = Some(request.reply_thread.clone()).filter(|thread| !thread.is_empty());
    let place = Place { chat: request.reply_chat.clone(), thread };
    let silent = request.silent;
    let offered = match mode {
        RetryMode::Once => served.ingest.accept(served.tenant, request).await,
        RetryMode::UntilDecided => served.ingest.accept_until_decided(served.tenant, request).await,
    };
    match offered {
        Ok(AcceptResponse { duplicate: true, .. }) | Err(AcceptError::KeyReused(_)) => {
            finish(account, "duplicate")
        }
        Ok(_) if silent => finish(account, "silent"),
        Ok(accepted) => {
            show_typing(account, place);
            previews::show_answer(account, &accepted);
            finish(account, "accepted")
        }
        Err(refusal @ (AcceptError::Unavailable(_) | AcceptError::Forbidden(_))) => {
            debug!(%refusal, "an update waits at its platform");
            meter::update(served.channel, "unavailable");
            UpdateResult::SendAgain
        }
        Err(AcceptError::Full { .. } | AcceptError::GatewayFailed(_))
            if mode == RetryMode::Once =>
        {
            meter::update(served.channel, "unavailable");
            UpdateResult::SendAgain
        }
        Err(refusal) => {
            warn!(%refusal, account.id = %served.id, "an update cannot be taken, and its sender is told");
            if !silent {
                let text = "This message could not be taken in. Please try again later.";
                notify(account, place, text.to_owned());
            }
            finish(account, "rejected")
        }
    }
}

fn show_typing(account: &Arc<dyn ChannelAccount>, place: Place) {
    let account = Arc::clone(account);
    tokio::spawn(async move {
        let _ = timeout(COSMETIC_TIMEOUT, account.show_typing(&place)).await;
    });
}

fn notify(account: &Arc<dyn ChannelAccount>, place: Place, text: String) {
    let account = Arc::clone(account);
    tokio::spawn(async move {
        let _ = timeout(COSMETIC_TIMEOUT, account.notify(&place, &text)).await;
    });
}

/// Events of a connection, handled in order on a task of their own, so that the connection goes on
/// while the gateway is unavailable. The task ends when the queue is dropped.
#[derive(Debug)]
pub struct EventQueue<T> {
    queue: mpsc::Sender<T>,
    _task: AbortOnDropHandle<()>,
}

impl<T: Send + 'static> EventQueue<T> {
    /// Starts the task; at most `capacity` events wait.
    pub fn start<F>(capacity: usize, handle: impl Fn(T) -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = ()> + Send,
    {
        let (queue, mut waiting) = mpsc::channel(capacity);
        let task = tokio::spawn(async move {
            while let Some(event) = waiting.recv().await {
                handle(event).await;
            }
        });
        Self { queue, _task: AbortOnDropHandle::new(task) }
    }

    /// Adds an event; `false` if too many wait.
    #[must_use]
    pub fn push(&self, event: T) -> bool {
        self.queue.try_send(event).is_ok()
    }
}
