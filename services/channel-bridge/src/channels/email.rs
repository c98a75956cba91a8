//! E-mail: one mailbox for each account. IMAP brings mails in, SMTP sends them.
//!
//! A mail whose outcome is not known is looked up by its `Message-ID` in the folder of sent mails.
//! docs/channels/email.md describes what is answered and what is not.
//!
//! | file | subject |
//! |---|---|
//! | `imap` | client of the protocol |
//! | `mailbox` | reading of a mailbox, and its position |
//! | `judge` | classification of mails |
//! | `sender` | the one address in `From` |
//! | `own_server` | the names of the own server in its findings |
//! | `authentication` | what the own server found out about a sender |
//! | `lexer` | parts that structured headers share |
//! | `quotes` | removal of quoted text |
//! | `smtp` | mails as they are sent |

mod authentication;
mod imap;
mod judge;
mod lexer;
mod mailbox;
mod own_server;
mod quotes;
mod sender;
mod smtp;

use std::sync::Arc;

use futures::future::BoxFuture;
use holdfast_directory::{
    Directory,
    channel::{self, EmailSettings},
};
use holdfast_proto::gateway::v1::SenderAssurance;
use holdfast_session::Delivery;
use holdfast_types::{ChannelAction, DeliveryClass, Sender, StoredFile};
use secrecy::SecretString;
use tokio::sync::Mutex;
use tokio_util::sync::CancellationToken;
use tracing::debug;

use self::own_server::FailedTest;
use crate::{
    Outcome,
    account::ServedAccount,
    channel::{AccountContext, Channel, ChannelAccount, Place, StoredSettings, Unusable},
    connection::Disconnected,
    guard::Clients,
    outcome::Reconciliation,
};

pub(super) static CHANNEL: Channel = Channel {
    name: channel::EMAIL,
    class: DeliveryClass::Reconcilable,
    assurance: SenderAssurance::None,
    build: |account, stored, context| Ok(Arc::new(Email::new(account, stored, context)?)),
};

/// Maximum length of a text, in bytes.
const MAX_TEXT_BYTES: usize = 500_000;

/// Maximum size of an attached file, in bytes: many servers take 25 MB, in base64.
const MAX_FILE_BYTES: usize = 18 * 1024 * 1024;

#[derive(Debug)]
struct Email {
    account: ServedAccount,
    settings: EmailSettings,
    password: SecretString,
    clients: Clients,
    directory: Directory,
    /// The last test mail that did not show the names of the own server.
    failed_test: Mutex<Option<FailedTest>>,
}

impl Email {
    fn new(
        account: ServedAccount,
        stored: StoredSettings<'_>,
        AccountContext { clients, directory, .. }: &AccountContext,
    ) -> Result<Self, Unusable> {
        let (settings, secrets) = EmailSettings::read(stored.settings, stored.secrets)?;
        let (clients, directory) = (clients.clone(), directory.clone());
        let (password, failed_test) = (secrets.password, Mutex::default());
        Ok(Self { account, settings, password, clients, directory, failed_test })
    }

    async fn send_part(&self, part: &Delivery, file: Option<&[u8]>) -> Outcome {
        let attached = match &part.act {
            None => None,
            Some(ChannelAction::Media { file: stored, .. }) => match attachment(stored, file) {
                Ok(attached) => Some(attached),
                Err(outcome) => return outcome,
            },
            // Requests for approval have no buttons here.
            Some(ChannelAction::Close { message, .. }) => {
                return Outcome::Sent { platform_id: message.clone().unwrap_or_default() };
            }
            Some(_) => return Outcome::refused("e-mail has nothing like it"),
        };
        match self.mail_of(part, attached) {
            Ok(mail) => self.deliver(&mail).await,
            Err(why) => Outcome::refused(why),
        }
    }
}

fn attachment<'a>(
    stored: &'a StoredFile,
    file: Option<&'a [u8]>,
) -> Result<(&'a StoredFile, &'a [u8]), Outcome> {
    let content = file.ok_or_else(|| Outcome::refused("its file is gone"))?;
    if content.len() > MAX_FILE_BYTES {
        let size = content.len();
        return Err(Outcome::refused(format!(
            "the file has {size} bytes, and {MAX_FILE_BYTES} are the most"
        )));
    }
    Ok((stored, content))
}

impl ChannelAccount for Email {
    fn account(&self) -> &ServedAccount {
        &self.account
    }

    fn is_allowed(&self, sender: &Sender) -> bool {
        self.settings.allows(&sender.id)
    }

    fn fits(&self, text: &str) -> bool {
        text.len() <= MAX_TEXT_BYTES
    }

    fn send<'a>(&'a self, part: &'a Delivery, file: Option<&'a [u8]>) -> BoxFuture<'a, Outcome> {
        Box::pin(self.send_part(part, file))
    }

    fn reconcile<'a>(&'a self, part: &'a Delivery) -> BoxFuture<'a, Reconciliation> {
        Box::pin(self.look_up(part))
    }

    fn connect(
        self: Arc<Self>,
        stop: CancellationToken,
    ) -> Option<BoxFuture<'static, Disconnected>> {
        Some(Box::pin(async move {
            tokio::select! {
                () = stop.cancelled() => Disconnected::Stopped,
                ended = self.read_mailbox() => ended,
            }
        }))
    }

    fn notify<'a>(&'a self, place: &'a Place, text: &'a str) -> BoxFuture<'a, ()> {
        Box::pin(async move {
            let sent = match self.notice(place, text) {
                Ok(mail) => self.deliver(&mail).await,
                Err(why) => Outcome::refused(why),
            };
            if !matches!(sent, Outcome::Sent { .. }) {
                debug!("a sender was not told");
            }
        })
    }
}
