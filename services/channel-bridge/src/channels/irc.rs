//! IRC: one connection for each account, over which messages also go out.
//!
//! IRC has no message ids and keeps nothing for an absent client. A part of a reply is a few lines,
//! followed by a PING: its PONG shows that the server has processed them. If the connection breaks
//! before, the part is `unknown`.
//!
//! | file | subject |
//! |---|---|
//! | `wire` | lines of the protocol |
//! | `register` | signing in: capabilities, SASL, the nick |
//! | `session` | a connection after it has signed in |
//! | `flood` | limit on lines |
//! | `judge` | classification of messages |

mod flood;
mod judge;
mod register;
mod session;
mod wire;

use std::sync::{Arc, Mutex, PoisonError};

use futures::future::BoxFuture;
use holdfast_directory::channel::{self, IrcIdentity, IrcSecrets, IrcSettings};
use holdfast_proto::gateway::v1::SenderAssurance;
use holdfast_session::Delivery;
use holdfast_types::{ChannelAction, DeliveryClass, Sender};
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;

use self::session::Batch;
use crate::{
    Outcome,
    account::ServedAccount,
    channel::{AccountContext, Channel, ChannelAccount, Place, StoredSettings, Unusable},
    connection::Disconnected,
    guard::Clients,
};

pub(super) static CHANNEL: Channel = Channel {
    name: channel::IRC,
    class: DeliveryClass::Plain,
    assurance: SenderAssurance::Weak,
    build: |account, stored, context| Ok(Arc::new(Irc::new(account, stored, context)?)),
};

/// Maximum length of a line's text, in bytes. A line has 512 with its end, of which the server's
/// prefix (nick, user, host), the command and the target may take 170, and the name of the addressed
/// person 32 (<https://modern.ircdocs.horse/#message-format>).
const MAX_TEXT_BYTES: usize = 300;

/// Maximum number of lines in a part.
const MAX_PART_LINES: usize = 5;

/// Number of batches that wait for the connection; as many are sent at once.
const MAX_WAITING_BATCHES: usize = 16;

#[derive(Debug)]
pub struct Irc {
    account: ServedAccount,
    settings: IrcSettings,
    secrets: IrcSecrets,
    clients: Clients,
    /// Way to the connection; `None` without one.
    connected: Mutex<Option<mpsc::Sender<Batch>>>,
}

impl Irc {
    fn new(
        account: ServedAccount,
        stored: StoredSettings<'_>,
        context: &AccountContext,
    ) -> Result<Self, Unusable> {
        let (settings, secrets) = IrcSettings::read(stored.settings, stored.secrets)?;
        let clients = context.clients.clone();
        Ok(Self { account, settings, secrets, clients, connected: Mutex::default() })
    }

    async fn send_part(&self, part: &Delivery) -> Outcome {
        match &part.act {
            None => {}
            // There are no buttons that could be removed.
            Some(ChannelAction::Close { .. }) => {
                return Outcome::Sent { platform_id: String::new() };
            }
            Some(_) => return Outcome::refused("irc has texts only"),
        }
        let text =
            if part.approval.is_some() { judge::for_typing(&part.text) } else { part.text.clone() };
        let mut lines = lines_of(&text);
        // In a channel the first line says whom it answers.
        if let (Some(nick), Some(first), 0) = (&part.target.reply_to, lines.first_mut(), part.part)
            && wire::is_channel(&part.target.chat)
        {
            *first = format!("{nick}: {first}");
        }
        self.say(&part.target.chat, lines).await
    }

    async fn say(&self, target: &str, lines: Vec<String>) -> Outcome {
        if !wire::is_target(target) {
            return Outcome::refused("the target is neither a nick nor a channel");
        }
        let connected = self.connected.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let Some(connection) = connected else {
            return Outcome::not_sent("the account is not connected to its server");
        };
        let (done, outcome) = oneshot::channel();
        let batch = Batch { target: target.to_owned(), lines, done };
        if connection.send(batch).await.is_err() {
            return Outcome::not_sent("the connection ended before it was sent");
        }
        // The connection reports what it has begun. If it is gone, it may have sent some lines.
        outcome.await.unwrap_or_else(|_| Outcome::unsure("the connection broke"))
    }
}

/// Lines of a text as they are sent: without empty ones, which IRC refuses.
fn lines_of(text: &str) -> Vec<String> {
    let lines = text.split(['\n', '\r']).map(|line| line.replace('\0', ""));
    lines.filter(|line| !line.trim().is_empty()).collect()
}

impl ChannelAccount for Irc {
    fn account(&self) -> &ServedAccount {
        &self.account
    }

    fn is_allowed(&self, sender: &Sender) -> bool {
        match self.settings.identify_by {
            IrcIdentity::Account => self.settings.allow.allows(&sender.id, ""),
            IrcIdentity::Nick => self.settings.allow.allows(&sender.id, &sender.name),
        }
    }

    fn fits(&self, text: &str) -> bool {
        let lines = lines_of(text);
        lines.len() <= MAX_PART_LINES && lines.iter().all(|line| line.len() <= MAX_TEXT_BYTES)
    }

    fn send<'a>(&'a self, part: &'a Delivery, _file: Option<&'a [u8]>) -> BoxFuture<'a, Outcome> {
        Box::pin(self.send_part(part))
    }

    fn connect(
        self: Arc<Self>,
        stop: CancellationToken,
    ) -> Option<BoxFuture<'static, Disconnected>> {
        Some(Box::pin(self.hold_connection(stop)))
    }

    fn sends_over_connection(&self) -> bool {
        true
    }

    fn notify<'a>(&'a self, place: &'a Place, text: &'a str) -> BoxFuture<'a, ()> {
        Box::pin(async move {
            self.say(&place.chat, lines_of(text)).await;
        })
    }
}
