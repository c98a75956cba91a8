//! Interface of a channel: what a folder in `channels/` implements (spec CHN-001 to CHN-003).
//!
//! docs/adding-a-channel.md explains it, with IRC as the example.

use std::{fmt, sync::Arc, time::Duration};

use axum::response::Response;
use futures::future::BoxFuture;
use holdfast_directory::{Directory, channel};
use holdfast_kit::Budget;
use holdfast_lock::Locks;
use holdfast_proto::gateway::v1::SenderAssurance;
use holdfast_session::Delivery;
use holdfast_types::{DeliveryClass, DeliveryId, Sender, Target, TenantId};
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use crate::{
    Outcome,
    account::{RunningAnswers, ServedAccount},
    config::Bridge,
    connection::Disconnected,
    guard::{AddressRefusal, Clients},
    http::{InboundRequest, unauthorized},
    ingest::Ingest,
    outcome::Reconciliation,
    split::split,
};

/// A kind of channel, as `channels::CHANNELS` lists it.
#[derive(Debug)]
pub struct Channel {
    /// Name, which `holdfast_directory::channel::CHANNELS` also has.
    pub name: &'static str,
    /// Guarantee of the platform for a message that is sent twice.
    pub class: DeliveryClass,
    /// How sure the channel is of a sender, where a message does not say it.
    pub assurance: SenderAssurance,
    /// Builds an account without a call to the platform.
    pub build: BuildAccount,
}

type BuildAccount = fn(
    ServedAccount,
    StoredSettings<'_>,
    &AccountContext,
) -> Result<Arc<dyn ChannelAccount>, Unusable>;

/// What accounts are built with.
#[derive(Debug, Clone)]
pub struct AccountContext {
    pub config: Bridge,
    /// HTTP clients for calls to platforms.
    pub clients: Clients,
    /// Client of the gateway, which receives the messages.
    pub ingest: Ingest,
    /// Where answers are seen while they are written.
    pub answers: RunningAnswers,
    /// Leases that decide which bridge connects an account.
    pub locks: Locks,
    /// Where accounts go on reading at their platforms.
    pub directory: Directory,
    /// Pages of web widgets that listen to this process.
    pub widget_pages: Arc<Budget<TenantId>>,
    /// Cancelled when the process stops: answers that would go on end.
    pub stopping: CancellationToken,
}

/// Settings and secrets of an account, as they are stored.
#[derive(Clone, Copy)]
pub struct StoredSettings<'a> {
    pub settings: &'a Value,
    pub secrets: &'a Value,
}

impl fmt::Debug for StoredSettings<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StoredSettings").field("settings", self.settings).finish_non_exhaustive()
    }
}

/// Place in which a message stands: a chat, and a thread in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    pub chat: String,
    pub thread: Option<String>,
}

/// One account on one channel.
///
/// `send` and `reconcile` belong to deliveries and are awaited. `show_typing` and `notify` are
/// cosmetic: they run on tasks of their own, and their failures are ignored.
pub trait ChannelAccount: fmt::Debug + Send + Sync + 'static {
    /// Returns the account's identity, its ways to the gateway, and its status.
    fn account(&self) -> &ServedAccount;

    /// Whether this sender may write to the account directly.
    fn is_allowed(&self, sender: &Sender) -> bool;

    /// Whether the platform takes this text as one message.
    fn fits(&self, text: &str) -> bool;

    /// Splits a reply into parts that the platform takes.
    fn split_reply(&self, text: &str) -> Vec<String> {
        split(text, |part| self.fits(part))
    }

    /// Sends one part once, with its file if it has one. The caller decides about retries.
    fn send<'a>(&'a self, part: &'a Delivery, file: Option<&'a [u8]>) -> BoxFuture<'a, Outcome>;

    /// Asks the platform whether it has a part whose outcome is not known. Called on channels of
    /// class [`DeliveryClass::Reconcilable`] only, before the part is sent again.
    fn reconcile<'a>(&'a self, part: &'a Delivery) -> BoxFuture<'a, Reconciliation> {
        let _ = part;
        Box::pin(async {
            Reconciliation::CannotTell { reason: "the platform cannot be asked".to_owned() }
        })
    }

    /// Holds the account's connection, or polls, until that ends; `None` if the platform calls the
    /// bridge instead. `keeper.rs` calls it in one bridge at a time, and again after a delay
    /// when it has ended. After `stop` it may take a second to say goodbye.
    fn connect(
        self: Arc<Self>,
        stop: CancellationToken,
    ) -> Option<BoxFuture<'static, Disconnected>> {
        let _ = stop;
        None
    }

    /// Whether messages are sent over the connection. Then only the bridge that holds it sends.
    fn sends_over_connection(&self) -> bool {
        false
    }

    /// Handles `/<channel>/<account>` and what lies below. It authenticates the caller before it
    /// reads the body.
    fn receive(self: Arc<Self>, request: InboundRequest) -> BoxFuture<'static, Response> {
        let _ = request;
        let channel = self.account().channel;
        Box::pin(async move { unauthorized(channel) })
    }

    /// Edits of messages, if the account's settings say that answers are shown while they are
    /// written.
    fn edits(&self) -> Option<&dyn MessageEdits> {
        None
    }

    /// Shows that an answer is being written.
    fn show_typing<'a>(&'a self, place: &'a Place) -> BoxFuture<'a, ()> {
        let _ = place;
        Box::pin(async {})
    }

    /// Tells a person something outside of their conversation: that they may not write, for example.
    fn notify<'a>(&'a self, place: &'a Place, text: &'a str) -> BoxFuture<'a, ()> {
        let _ = (place, text);
        Box::pin(async {})
    }
}

/// Edits of the messages that an account has sent. All of them can be repeated without harm, so an
/// outcome that is not known is reported as [`Outcome::NotSent`]; not so for [`post`](Self::post).
pub trait MessageEdits: fmt::Debug + Send + Sync {
    /// Minimum time between two changes of a message, by the limits of the platform.
    fn min_interval(&self, target: &Target) -> Duration;

    /// Sends a message that will be edited.
    fn post<'a>(&'a self, target: &'a Target, text: &'a str) -> BoxFuture<'a, Outcome>;

    /// Replaces the text of a message.
    fn edit<'a>(&'a self, edit: Edit<'a>) -> BoxFuture<'a, Outcome>;

    /// Deletes a message. Failures are ignored.
    fn remove<'a>(&'a self, target: &'a Target, id: &'a str) -> BoxFuture<'a, ()>;
}

/// A new text for a message.
#[derive(Debug, Clone, Copy)]
pub struct Edit<'a> {
    pub target: &'a Target,
    /// The platform's id of the message.
    pub id: &'a str,
    pub text: &'a str,
    /// The delivery whose text it is; `None` for a beginning of it.
    pub delivery: Option<DeliveryId>,
}

/// Reason why a stored account cannot be served here.
///
/// `holdfast_directory::channel` checks settings when they are stored. Checks that depend on this
/// installation and on its version are the bridge's.
#[derive(Debug, thiserror::Error)]
pub enum Unusable {
    /// The stored settings cannot be parsed.
    #[error("{0}")]
    Stored(#[from] channel::UnusableAccount),
    /// An address in the settings must not be called.
    #[error("`settings.{0}` cannot be used: {1}")]
    Address(&'static str, #[source] AddressRefusal),
    /// This bridge does not serve this kind of channel.
    #[error("`{0}` is no channel that this bridge serves")]
    Channel(String),
    /// A secret cannot be used; the text says what to write.
    #[error("{0}")]
    Secret(&'static str),
}
