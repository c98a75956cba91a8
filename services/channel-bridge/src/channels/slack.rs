//! Slack: one app in one workspace for each account.
//!
//! Events come over a connection (Socket Mode) or by calls (Events API); everything is sent by the
//! Web API. A message carries the delivery's id as metadata: after an unsure attempt the history is
//! searched for it. Sources: <https://docs.slack.dev/apis/events-api/using-socket-mode>,
//! <https://docs.slack.dev/authentication/verifying-requests-from-slack>,
//! <https://docs.slack.dev/reference/methods/chat.postMessage>.
//!
//! | file | subject |
//! |---|---|
//! | `actions` | sending, and actions besides |
//! | `client` | calls of the Web API |
//! | `edits` | messages that are edited while an answer is written |
//! | `events` | events, however they came |
//! | `judge` | classification of events |
//! | `reconcile` | search for a message of ours |
//! | `socket` | Socket Mode |

mod actions;
mod client;
mod edits;
mod events;
mod judge;
mod reconcile;
mod socket;

use std::sync::Arc;

use axum::response::Response;
use futures::future::BoxFuture;
use holdfast_directory::channel::{self, SlackMode, SlackSecrets, SlackSettings, Streaming};
use holdfast_proto::gateway::v1::SenderAssurance;
use holdfast_session::Delivery;
use holdfast_types::{DeliveryClass, Sender};
use tokio::sync::OnceCell;
use tokio_util::sync::CancellationToken;

use self::client::{Identity, WebApi};
use crate::{
    Outcome,
    account::ServedAccount,
    channel::{
        AccountContext, Channel, ChannelAccount, MessageEdits, Place, StoredSettings, Unusable,
    },
    connection::Disconnected,
    guard::{Clients, PlatformHosts},
    http::InboundRequest,
    outcome::Reconciliation,
    split::utf16,
};

pub(super) static CHANNEL: Channel = Channel {
    name: channel::SLACK,
    class: DeliveryClass::Reconcilable,
    assurance: SenderAssurance::Verified,
    build: |account, stored, context| Ok(Arc::new(Slack::new(account, stored, context)?)),
};

/// Hosts of Slack's files (<https://docs.slack.dev/reference/objects/file-object>), also for governments
/// (<https://docs.slack.dev/govslack>). Files of other services that people share have other hosts.
const HOSTS: &[&str] = &["slack.com", "slack-gov.com"];

/// Maximum length of a message's Markdown blocks together
/// (<https://docs.slack.dev/reference/block-kit/blocks/markdown-block>).
const MAX_MESSAGE_UNITS: usize = 12_000;

#[derive(Debug)]
pub struct Slack {
    account: ServedAccount,
    settings: SlackSettings,
    secrets: SlackSecrets,
    api: WebApi,
    clients: Clients,
    hosts: PlatformHosts,
    me: OnceCell<Identity>,
}

impl Slack {
    fn new(
        account: ServedAccount,
        stored: StoredSettings<'_>,
        context: &AccountContext,
    ) -> Result<Self, Unusable> {
        let (settings, secrets) = SlackSettings::read(stored.settings, stored.secrets)?;
        let AccountContext { config, clients, .. } = context;
        let api = WebApi::new(clients.platform.clone(), &config.slack.api_base);
        let hosts = PlatformHosts::new(HOSTS, &config.slack.api_base);
        let clients = clients.clone();
        Ok(Self { account, settings, secrets, api, clients, hosts, me: OnceCell::new() })
    }
}

impl ChannelAccount for Slack {
    fn account(&self) -> &ServedAccount {
        &self.account
    }

    fn is_allowed(&self, sender: &Sender) -> bool {
        self.settings.allow.allows(&sender.id, "")
    }

    fn fits(&self, text: &str) -> bool {
        utf16(text) <= MAX_MESSAGE_UNITS
    }

    fn send<'a>(&'a self, part: &'a Delivery, file: Option<&'a [u8]>) -> BoxFuture<'a, Outcome> {
        Box::pin(self.send_part(part, file))
    }

    fn reconcile<'a>(&'a self, part: &'a Delivery) -> BoxFuture<'a, Reconciliation> {
        Box::pin(self.find_message(part))
    }

    fn connect(
        self: Arc<Self>,
        stop: CancellationToken,
    ) -> Option<BoxFuture<'static, Disconnected>> {
        Some(match self.settings.mode {
            SlackMode::Socket => Box::pin(self.hold_connection(stop)),
            SlackMode::Events => Box::pin(self.watch_credentials(stop)),
        })
    }

    fn receive(self: Arc<Self>, request: InboundRequest) -> BoxFuture<'static, Response> {
        Box::pin(self.receive_event(request))
    }

    fn edits(&self) -> Option<&dyn MessageEdits> {
        match self.settings.streaming {
            Streaming::Edits => Some(self),
            Streaming::Off => None,
        }
    }

    fn notify<'a>(&'a self, place: &'a Place, text: &'a str) -> BoxFuture<'a, ()> {
        Box::pin(self.send_notice(place, text))
    }
}
