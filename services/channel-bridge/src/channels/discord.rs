//! Discord: one bot for each account.
//!
//! Messages come over the gateway, a WebSocket that can be resumed; everything is sent by REST. A
//! message carries a nonce that Discord checks for some minutes, so that it can be sent again within
//! them. Sources: <https://discord.com/developers/docs/events/gateway>,
//! <https://discord.com/developers/docs/resources/message>.
//!
//! | file | subject |
//! |---|---|
//! | `actions` | sending, and actions besides |
//! | `edits` | messages that are edited while an answer is written |
//! | `client` | REST calls and their rate limits |
//! | `gateway` | the connection: heartbeat, resume |
//! | `judge` | classification of events |
//! | `threads` | known threads and their channels |

mod actions;
mod client;
mod edits;
mod gateway;
mod judge;
mod threads;

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use futures::future::BoxFuture;
use holdfast_directory::channel::{self, DiscordSettings, Streaming};
use holdfast_proto::gateway::v1::SenderAssurance;
use holdfast_session::Delivery;
use holdfast_types::{DeliveryClass, Sender};
use tokio_util::sync::CancellationToken;

use self::{client::Rest, gateway::GatewaySession, threads::ThreadIndex};
use crate::{
    Outcome,
    account::ServedAccount,
    channel::{
        AccountContext, Channel, ChannelAccount, MessageEdits, Place, StoredSettings, Unusable,
    },
    connection::Disconnected,
    guard::{Clients, PlatformHosts},
    split::utf16,
};

pub(super) static CHANNEL: Channel = Channel {
    name: channel::DISCORD,
    class: DeliveryClass::Keyed { window: NONCE_WINDOW },
    assurance: SenderAssurance::Verified,
    build: |account, stored, context| Ok(Arc::new(Discord::new(account, stored, context)?)),
};

/// Time for which a nonce is used. Discord checks it for "the past few minutes".
const NONCE_WINDOW: Duration = Duration::from_secs(180);

/// Hosts of Discord's files
/// (<https://docs.discord.com/developers/reference#signed-attachment-cdn-urls>).
const HOSTS: &[&str] = &["cdn.discordapp.com", "media.discordapp.net"];

/// Maximum length of a message. Discord counts characters, which are never more than UTF-16 units.
const MAX_MESSAGE_UNITS: usize = 2000;

#[derive(Debug)]
pub struct Discord {
    account: ServedAccount,
    settings: DiscordSettings,
    rest: Rest,
    clients: Clients,
    hosts: PlatformHosts,
    threads: ThreadIndex,
    /// Session of the gateway that the next connection resumes.
    session: Mutex<Option<GatewaySession>>,
}

impl Discord {
    fn new(
        account: ServedAccount,
        stored: StoredSettings<'_>,
        context: &AccountContext,
    ) -> Result<Self, Unusable> {
        let (settings, secrets) = DiscordSettings::read(stored.settings, stored.secrets)?;
        let AccountContext { config, clients, .. } = context;
        let rest = Rest::new(clients.platform.clone(), &config.discord.api_base, secrets.token);
        Ok(Self {
            account,
            settings,
            rest,
            clients: clients.clone(),
            hosts: PlatformHosts::new(HOSTS, &config.discord.api_base),
            threads: ThreadIndex::default(),
            session: Mutex::default(),
        })
    }
}

impl ChannelAccount for Discord {
    fn account(&self) -> &ServedAccount {
        &self.account
    }

    fn is_allowed(&self, sender: &Sender) -> bool {
        self.settings.allow.allows(&sender.id, &sender.name)
    }

    fn fits(&self, text: &str) -> bool {
        utf16(text) <= MAX_MESSAGE_UNITS
    }

    fn send<'a>(&'a self, part: &'a Delivery, file: Option<&'a [u8]>) -> BoxFuture<'a, Outcome> {
        Box::pin(self.send_part(part, file))
    }

    fn connect(
        self: Arc<Self>,
        stop: CancellationToken,
    ) -> Option<BoxFuture<'static, Disconnected>> {
        Some(Box::pin(self.hold_connection(stop)))
    }

    fn show_typing<'a>(&'a self, place: &'a Place) -> BoxFuture<'a, ()> {
        Box::pin(self.send_typing(place))
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
