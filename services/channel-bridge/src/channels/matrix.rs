//! Matrix: one user of a homeserver for each account.
//!
//! The homeserver executes each transaction id once, so a reply whose outcome is not known is sent
//! again under the same id. docs/channels/matrix.md describes the two ways in which events arrive.
//!
//! | file | subject |
//! |---|---|
//! | `client`, `wire` | calls of the client-server API, and its objects |
//! | `judge` | classification of events |
//! | `events` | handling of events: messages, invites, encrypted rooms, files |
//! | `sync` | long polling, for ordinary users |
//! | `push` | transactions that the homeserver pushes to an application service |
//! | `edits` | messages that are edited while an answer is written |
//! | `send` | texts, files and actions as events |

mod client;
mod edits;
mod events;
mod judge;
mod push;
mod send;
mod sync;
mod wire;

use std::{sync::Arc, time::Duration};

use axum::response::Response;
use futures::future::BoxFuture;
use holdfast_directory::{
    Directory,
    channel::{self, MatrixMode, MatrixSettings, Streaming},
};
use holdfast_proto::gateway::v1::SenderAssurance;
use holdfast_session::Delivery;
use holdfast_types::{DeliveryClass, Sender};
use secrecy::SecretString;
use serde_json::json;
use tokio::sync::OnceCell;
use tokio_util::sync::CancellationToken;
use tracing::debug;

use self::{client::Homeserver, events::RoomCache, judge::Me, push::Transactions};
use crate::{
    Outcome,
    account::ServedAccount,
    call::CallError,
    channel::{
        AccountContext, Channel, ChannelAccount, MessageEdits, Place, StoredSettings, Unusable,
    },
    connection::Disconnected,
    http::InboundRequest,
};

/// Synapse keeps the transactions of application services for 30 minutes, and others longer.
const TXN_WINDOW: Duration = Duration::from_secs(25 * 60);

/// Time for which typing is shown unless a message comes, in milliseconds.
const TYPING_MS: u32 = 20_000;

pub(super) static CHANNEL: Channel = Channel {
    name: channel::MATRIX,
    class: DeliveryClass::Keyed { window: TXN_WINDOW },
    assurance: SenderAssurance::Verified,
    build: |account, stored, context| Ok(Arc::new(Matrix::new(account, stored, context)?)),
};

#[derive(Debug)]
struct Matrix {
    account: ServedAccount,
    settings: MatrixSettings,
    hs_token: Option<SecretString>,
    server: Homeserver,
    me: OnceCell<Me>,
    rooms: RoomCache,
    transactions: Transactions,
    directory: Directory,
}

impl Matrix {
    fn new(
        account: ServedAccount,
        stored: StoredSettings<'_>,
        AccountContext { clients, directory, .. }: &AccountContext,
    ) -> Result<Self, Unusable> {
        let (settings, secrets) = MatrixSettings::read(stored.settings, stored.secrets)?;
        let called = clients.for_secret(&settings.homeserver);
        let (http, base) = called.map_err(|error| Unusable::Address("homeserver", error))?;
        let server = Homeserver::new(http, base, secrets.access_token, settings.user.clone());
        Ok(Self {
            account,
            settings,
            hs_token: secrets.hs_token,
            server,
            me: OnceCell::new(),
            rooms: RoomCache::default(),
            transactions: Transactions::default(),
            directory: directory.clone(),
        })
    }

    /// Returns the account's user. Asks the homeserver until it has answered once.
    async fn me(&self) -> Result<&Me, CallError> {
        self.me.get_or_try_init(|| self.ask_identity()).await
    }

    async fn ask_identity(&self) -> Result<Me, CallError> {
        let id = self.server.whoami().await?.user_id;
        let name = self.server.display_name(&id).await?;
        Ok(Me { id, name })
    }

    async fn notify_room(&self, room: &str, text: &str) {
        let content = json!({"msgtype": "m.notice", "body": text, "m.mentions": {}});
        let txn = format!("notice-{:032x}", rand::random::<u128>());
        if let Err(error) = self.server.send(room, "m.room.message", &txn, &content).await {
            debug!(%error, "a room was not told");
        }
    }
}

impl ChannelAccount for Matrix {
    fn account(&self) -> &ServedAccount {
        &self.account
    }

    fn is_allowed(&self, sender: &Sender) -> bool {
        self.settings.allow.allows(&sender.id, "")
    }

    fn fits(&self, text: &str) -> bool {
        self.is_sendable(text)
    }

    fn send<'a>(&'a self, part: &'a Delivery, file: Option<&'a [u8]>) -> BoxFuture<'a, Outcome> {
        Box::pin(self.send_part(part, file))
    }

    fn connect(
        self: Arc<Self>,
        stop: CancellationToken,
    ) -> Option<BoxFuture<'static, Disconnected>> {
        Some(match self.settings.mode {
            MatrixMode::Sync => Box::pin(async move {
                tokio::select! {
                    () = stop.cancelled() => Disconnected::Stopped,
                    ended = self.sync() => ended,
                }
            }),
            MatrixMode::Appservice => Box::pin(async move {
                tokio::select! {
                    () = stop.cancelled() => Disconnected::Stopped,
                    ended = self.watch() => ended,
                }
            }),
        })
    }

    fn receive(self: Arc<Self>, request: InboundRequest) -> BoxFuture<'static, Response> {
        Box::pin(self.receive_transaction(request))
    }

    fn show_typing<'a>(&'a self, place: &'a Place) -> BoxFuture<'a, ()> {
        Box::pin(async move {
            let Some(me) = self.me.get() else { return };
            if let Err(error) = self.server.set_typing(&place.chat, &me.id, TYPING_MS).await {
                debug!(%error, "typing was not shown");
            }
        })
    }

    fn edits(&self) -> Option<&dyn MessageEdits> {
        match self.settings.streaming {
            Streaming::Edits => Some(self),
            Streaming::Off => None,
        }
    }

    fn notify<'a>(&'a self, place: &'a Place, text: &'a str) -> BoxFuture<'a, ()> {
        Box::pin(self.notify_room(&place.chat, text))
    }
}
