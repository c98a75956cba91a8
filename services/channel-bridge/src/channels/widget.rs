//! Web widget: a conversation on a page, which the bridge itself serves.
//!
//! A site includes one script, which shows the page in a frame; the page can also be opened by
//! itself. The conversation is stored, so that a page that comes back shows it. docs/channels/widget.md
//! describes it.
//!
//! | file | subject |
//! |---|---|
//! | `assets` | the page, its program, and the script for sites |
//! | `receive` | the calls of the page |
//! | `stream` | what is new for a page, as server-sent events |
//! | `limits` | limits of rates |
//! | `visitor` | tokens of visitors, and identities that the site signed |

mod assets;
mod limits;
mod receive;
mod stream;
mod visitor;

use std::{sync::Arc, time::Duration};

use axum::response::Response;
use futures::future::BoxFuture;
use holdfast_directory::{
    Directory, NewWidgetMessage,
    channel::{self, WidgetSecrets, WidgetSettings},
};
use holdfast_proto::gateway::v1::SenderAssurance;
use holdfast_session::Delivery;
use holdfast_types::{ChannelAction, DeliveryClass, Sender};
use tokio_util::sync::CancellationToken;

pub use self::stream::page_budget;
use self::{limits::RateLimits, stream::Listeners};
use crate::{
    Outcome,
    account::ServedAccount,
    channel::{AccountContext, Channel, ChannelAccount, Place, StoredSettings, Unusable},
    http::InboundRequest,
    split::utf16,
};

/// Maximum length of a text, in UTF-16 units.
const MAX_TEXT_UTF16_UNITS: usize = 16_000;

/// Time for which a delivery's key is kept: far longer than any delivery is tried.
const KEY_WINDOW: Duration = Duration::from_secs(24 * 3600);

pub(super) static CHANNEL: Channel = Channel {
    name: channel::WIDGET,
    class: DeliveryClass::Keyed { window: KEY_WINDOW },
    assurance: SenderAssurance::Anonymous,
    build: |account, stored, context| Ok(Arc::new(Widget::new(account, stored, context)?)),
};

#[derive(Debug)]
struct Widget {
    account: ServedAccount,
    settings: WidgetSettings,
    secrets: WidgetSecrets,
    directory: Directory,
    listeners: Listeners,
    limits: RateLimits,
    /// Cancelled when the process stops.
    stopping: CancellationToken,
}

impl Widget {
    fn new(
        account: ServedAccount,
        stored: StoredSettings<'_>,
        AccountContext { directory, widget_pages, stopping, .. }: &AccountContext,
    ) -> Result<Self, Unusable> {
        let (settings, secrets) = WidgetSettings::read(stored.settings, stored.secrets)?;
        Ok(Self {
            listeners: Listeners::new(account.tenant, Arc::clone(widget_pages)),
            account,
            limits: RateLimits::default(),
            settings,
            secrets,
            directory: directory.clone(),
            stopping: stopping.clone(),
        })
    }

    /// Stores a message for a visitor and shows it, once for its key.
    async fn show(&self, visitor: &str, key: &str, text: &str) -> Outcome {
        let new = NewWidgetMessage { visitor, key, from_visitor: false, text };
        let accounts = self.directory.accounts();
        match accounts.add_widget_message(self.account.tenant, self.account.id, new).await {
            Ok(seq) => {
                self.listeners.wake(visitor);
                Outcome::Sent { platform_id: seq.to_string() }
            }
            // The key makes it safe to try again, whether it was stored or not.
            Err(error) => Outcome::not_sent(format!("it could not be stored: {error}")),
        }
    }
}

impl ChannelAccount for Widget {
    fn account(&self) -> &ServedAccount {
        &self.account
    }

    fn is_allowed(&self, sender: &Sender) -> bool {
        self.settings.allow.allows(&sender.id, "")
    }

    fn fits(&self, text: &str) -> bool {
        utf16(text) <= MAX_TEXT_UTF16_UNITS
    }

    fn send<'a>(&'a self, part: &'a Delivery, _: Option<&'a [u8]>) -> BoxFuture<'a, Outcome> {
        Box::pin(async move {
            match &part.act {
                None => self.show(&part.target.chat, &part.id.to_string(), &part.text).await,
                // Requests for approval have no buttons here.
                Some(ChannelAction::Close { message, .. }) => {
                    Outcome::Sent { platform_id: message.clone().unwrap_or_default() }
                }
                Some(_) => Outcome::refused("the web widget has nothing like it"),
            }
        })
    }

    fn receive(self: Arc<Self>, request: InboundRequest) -> BoxFuture<'static, Response> {
        Box::pin(self.answer(request))
    }

    fn show_typing<'a>(&'a self, place: &'a Place) -> BoxFuture<'a, ()> {
        Box::pin(async move { self.listeners.show_typing(&place.chat) })
    }

    fn notify<'a>(&'a self, place: &'a Place, text: &'a str) -> BoxFuture<'a, ()> {
        Box::pin(async move {
            let key = format!("notice-{:032x}", rand::random::<u128>());
            self.show(&place.chat, &key, text).await;
        })
    }
}
