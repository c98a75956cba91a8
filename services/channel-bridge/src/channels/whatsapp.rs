//! WhatsApp Cloud API: one business phone number for each account
//! (<https://developers.facebook.com/docs/whatsapp/cloud-api>).
//!
//! A message carries the delivery's id as `biz_opaque_callback_data`, which Meta repeats in the
//! status webhooks of the message. So a message whose outcome is not known counts as sent when such
//! a status arrives.
//!
//! | file | subject |
//! |---|---|
//! | `client` | calls of the Graph API |
//! | `judge`, `wire` | classification of webhooks, and their objects |
//! | `receive` | verification and signed webhooks |
//! | `send` | texts, files, reactions, buttons, templates |

mod client;
mod judge;
mod receive;
mod send;
mod wire;

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use axum::response::Response;
use futures::future::BoxFuture;
use holdfast_directory::channel::{self, WhatsappSettings};
use holdfast_proto::gateway::v1::SenderAssurance;
use holdfast_session::Delivery;
use holdfast_types::{DeliveryClass, Sender};
use secrecy::SecretString;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;
use tracing::debug;

use self::client::Graph;
use crate::{
    Outcome,
    account::ServedAccount,
    call::CallError,
    channel::{AccountContext, Channel, ChannelAccount, Place, StoredSettings, Unusable},
    connection::Disconnected,
    guard::{Clients, PlatformHosts},
    http::InboundRequest,
    outcome::Reconciliation,
    split::utf16,
};

pub(super) static CHANNEL: Channel = Channel {
    name: channel::WHATSAPP,
    class: DeliveryClass::Reconcilable,
    assurance: SenderAssurance::Verified,
    build: |account, stored, context| Ok(Arc::new(Whatsapp::new(account, stored, context)?)),
};

/// Maximum length of a text, in UTF-16 units.
const MAX_TEXT_UTF16_UNITS: usize = 4096;

/// Interval at which Meta is asked whether it still accepts the token.
const CHECK_INTERVAL: Duration = Duration::from_secs(300);

/// Time after an unsure attempt within which its status webhook is expected.
const STATUS_TIMEOUT: Duration = Duration::from_secs(120);

/// Maximum number of people whose last message is remembered.
const MAX_REMEMBERED_PEOPLE: usize = 10_000;

const REJECTED: &str = "meta does not accept the access token or the phone number id: make a new \
                        token of a system user, and set `secrets.access_token`";

/// Hosts of Meta that take the token: the API, and the server of files
/// (<https://developers.facebook.com/docs/whatsapp/cloud-api/reference/media#download-media>).
const HOSTS: &[&str] = &["graph.facebook.com", "lookaside.fbsbx.com"];

#[derive(Debug)]
struct Whatsapp {
    account: ServedAccount,
    settings: WhatsappSettings,
    app_secret: SecretString,
    verify_token: SecretString,
    graph: Graph,
    clients: Clients,
    hosts: PlatformHosts,
    /// Last message of each person, which is marked as read when typing is shown.
    last_messages: Mutex<HashMap<String, String>>,
    statuses: receive::SeenStatuses,
}

impl Whatsapp {
    fn new(
        account: ServedAccount,
        stored: StoredSettings<'_>,
        AccountContext { clients, directory, .. }: &AccountContext,
    ) -> Result<Self, Unusable> {
        let (settings, secrets) = WhatsappSettings::read(stored.settings, stored.secrets)?;
        let called = clients.for_secret(&settings.api_base);
        let (http, base) = called.map_err(|error| Unusable::Address("api_base", error))?;
        Ok(Self {
            account,
            hosts: PlatformHosts::new(HOSTS, &settings.api_base),
            graph: Graph::new(http, base, secrets.access_token),
            settings,
            app_secret: secrets.app_secret,
            verify_token: secrets.verify_token,
            clients: clients.clone(),
            last_messages: Mutex::default(),
            statuses: receive::SeenStatuses::new(directory.clone()),
        })
    }

    /// Checks now and then that Meta accepts the token.
    async fn watch(self: Arc<Self>) -> Disconnected {
        loop {
            match self.graph.number(&self.settings.phone_number_id).await {
                Ok(number) => self.account.report_working(format!("connected as {number}")),
                Err(CallError::Refused { status: 400 | 404, .. }) => {
                    return Disconnected::rejected(REJECTED);
                }
                Err(error) => return error.disconnected(REJECTED),
            }
            sleep(CHECK_INTERVAL).await;
        }
    }

    fn remember_message(&self, person: &str, message: &str) {
        let mut last = self.last_messages.lock().unwrap_or_else(PoisonError::into_inner);
        if last.len() >= MAX_REMEMBERED_PEOPLE {
            last.clear();
        }
        last.insert(person.to_owned(), message.to_owned());
    }

    async fn show_typing_to(&self, person: &str) {
        let message = {
            let last = self.last_messages.lock().unwrap_or_else(PoisonError::into_inner);
            last.get(person).cloned()
        };
        let Some(message) = message else { return };
        let number = &self.settings.phone_number_id;
        if let Err(error) = self.graph.mark_read(number, &message).await {
            debug!(%error, "typing was not shown");
        }
    }
}

impl ChannelAccount for Whatsapp {
    fn account(&self) -> &ServedAccount {
        &self.account
    }

    fn is_allowed(&self, sender: &Sender) -> bool {
        self.settings.allows(&sender.id)
    }

    fn fits(&self, text: &str) -> bool {
        utf16(text) <= MAX_TEXT_UTF16_UNITS
    }

    fn send<'a>(&'a self, part: &'a Delivery, file: Option<&'a [u8]>) -> BoxFuture<'a, Outcome> {
        Box::pin(self.send_part(part, file))
    }

    fn reconcile<'a>(&'a self, part: &'a Delivery) -> BoxFuture<'a, Reconciliation> {
        Box::pin(async move {
            let delivery = part.id.to_string();
            match self.statuses.message_of(&self.account, &delivery).await {
                Err(reason) => Reconciliation::NotYet { reason },
                Ok(Some(platform_id)) => Reconciliation::Sent { platform_id },
                Ok(None) if part.unsure_for.is_none_or(|since| since < STATUS_TIMEOUT) => {
                    Reconciliation::NotYet { reason: "no status has arrived yet".to_owned() }
                }
                // A status may have been lost with the message: its absence proves nothing.
                Ok(None) => Reconciliation::CannotTell {
                    reason: "no status of the message has arrived".to_owned(),
                },
            }
        })
    }

    fn connect(
        self: Arc<Self>,
        stop: CancellationToken,
    ) -> Option<BoxFuture<'static, Disconnected>> {
        Some(Box::pin(async move {
            tokio::select! {
                () = stop.cancelled() => Disconnected::Stopped,
                ended = self.watch() => ended,
            }
        }))
    }

    fn receive(self: Arc<Self>, request: InboundRequest) -> BoxFuture<'static, Response> {
        Box::pin(self.receive_call(request))
    }

    fn show_typing<'a>(&'a self, place: &'a Place) -> BoxFuture<'a, ()> {
        Box::pin(self.show_typing_to(&place.chat))
    }

    fn notify<'a>(&'a self, place: &'a Place, text: &'a str) -> BoxFuture<'a, ()> {
        Box::pin(async move {
            if let Err(error) = self.send_text(&place.chat, text, None).await {
                debug!(%error, "a sender was not told");
            }
        })
    }
}
