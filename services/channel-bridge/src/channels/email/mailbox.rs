//! Reading of a mailbox: new mails, in the order of their UIDs, each once.
//!
//! The position moves past a mail after the gateway has it, and is stored, so that the next bridge
//! goes on from there. A mail that comes twice is recognized by its `Message-ID`.
//!
//! **What can go wrong.** The server numbers the mails anew (`UIDVALIDITY`): those that nobody has
//! read are taken. The connection breaks: it is made again, and the position is where it was.

use std::{convert::Infallible, sync::Arc, time::Duration};

use holdfast_directory::{Error as DirectoryError, channel::MailSecurity};
use serde::{Deserialize, Serialize};
use tokio::time::sleep;

use super::{
    Email,
    imap::{Imap, ImapError, Selected},
    judge::{Mail, judge},
};
use crate::{
    channel::ChannelAccount,
    connection::Disconnected,
    guard::Encryption,
    inbound::{self, RetryMode, UpdateResult, Verdict},
};

/// Time after which waiting for a change begins anew: servers end longer waits, and routers forget
/// quiet connections.
const IDLE_WAIT: Duration = Duration::from_secs(300);

/// Interval between looks into the mailbox of a server without `IDLE`.
const POLL_INTERVAL: Duration = Duration::from_secs(30);

/// Maximum size of a mail, in bytes; of a larger one only the header is read.
const MAX_MAIL_BYTES: usize = 28 * 1024 * 1024;

/// Name under which the position is stored.
const POSITION: &str = "mailbox";

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Position {
    mailbox: String,
    uid_validity: u32,
    /// UID from which on mails are new.
    next: u32,
}

/// Reason why there is no connection.
#[derive(Debug)]
pub(super) enum ConnectError {
    /// The server could not be reached, or did not prove who it is.
    Unreachable(String),
    /// The server does not let the account in.
    Rejected(String),
}

impl From<ConnectError> for Disconnected {
    fn from(error: ConnectError) -> Self {
        match error {
            ConnectError::Unreachable(reason) => Self::lost(reason),
            ConnectError::Rejected(reason) => Self::rejected(reason),
        }
    }
}

fn lost(error: ImapError) -> Disconnected {
    Disconnected::lost(format!("IMAP: {error}"))
}

impl Email {
    /// Connects to the IMAP server and signs in.
    pub(super) async fn connect_imap(&self) -> Result<Imap, ConnectError> {
        let unreachable = |error: ImapError| ConnectError::Unreachable(format!("IMAP: {error}"));
        let server = &self.settings.imap;
        let (host, port) = (server.host.as_str(), server.port(993, 143));
        let encryption = match server.security {
            MailSecurity::Tls => Encryption::Tls(""),
            MailSecurity::Starttls | MailSecurity::None => Encryption::None,
        };
        let stream = self.clients.connect(host, port, encryption).await;
        let stream = stream.map_err(ConnectError::Unreachable)?;
        let mut imap = Imap::greet(stream).await.map_err(unreachable)?;
        if server.security == MailSecurity::Starttls {
            let plain = imap.start_tls().await.map_err(unreachable)?;
            let secured = self.clients.secure(host, port, "", plain).await;
            imap = Imap::over(secured.map_err(ConnectError::Unreachable)?);
        }
        match imap.sign_in(self.settings.user(), &self.password).await {
            Ok(()) => Ok(imap),
            Err(ImapError::Refused(why)) => Err(ConnectError::Rejected(format!(
                "the IMAP server does not accept `user` and `password`: {why}"
            ))),
            Err(error) => Err(unreachable(error)),
        }
    }

    /// Reads the mailbox until the connection ends.
    pub(super) async fn read_mailbox(self: Arc<Self>) -> Disconnected {
        let mut imap = match self.connect_imap().await {
            Ok(imap) => imap,
            Err(error) => return error.into(),
        };
        let selected = match imap.select(&self.settings.mailbox).await {
            Ok(selected) => selected,
            Err(ImapError::Refused(why)) => {
                let mailbox = &self.settings.mailbox;
                return Disconnected::rejected(format!("there is no folder `{mailbox}`: {why}"));
            }
            Err(error) => return lost(error),
        };
        // An account that cannot answer is not working.
        if let Err(error) = self.connect_smtp().await {
            return error.into();
        }
        let (address, host) = (&self.settings.address, &self.settings.imap.host);
        self.account.report_working(format!("reads the mailbox of {address} at {host}"));
        match self.take_new_mails(&mut imap, selected).await {
            Ok(never) => match never {},
            Err(ended) => ended,
        }
    }

    async fn take_new_mails(
        self: &Arc<Self>,
        imap: &mut Imap,
        selected: Selected,
    ) -> Result<Infallible, Disconnected> {
        let mut position = self.begin(imap, selected).await?;
        loop {
            for uid in imap.search(&format!("UID {}:*", position.next)).await.map_err(lost)? {
                // The range `n:*` has the last mail in it, however small its number.
                if uid < position.next {
                    continue;
                }
                self.take(imap, position.uid_validity, uid).await?;
                position.next = uid + 1;
                self.store_position(&position).await?;
            }
            if imap.has("IDLE") {
                imap.idle(IDLE_WAIT).await.map_err(lost)?;
            } else {
                sleep(POLL_INTERVAL).await;
                imap.command("NOOP").await.map_err(lost)?;
            }
        }
    }

    /// Returns the position to begin at: the stored one; in a new mailbox its end.
    async fn begin(
        self: &Arc<Self>,
        imap: &mut Imap,
        Selected { uid_validity, uid_next }: Selected,
    ) -> Result<Position, Disconnected> {
        let (tenant, id) = (self.account.tenant, self.account.id);
        let stored = self.directory.accounts().position(tenant, id, POSITION).await;
        let unreadable = |error: DirectoryError| {
            Disconnected::lost(format!("the position cannot be read: {error}"))
        };
        let stored = stored.map_err(unreadable)?;
        let stored = stored.and_then(|text| serde_json::from_str::<Position>(&text).ok());
        let mailbox = self.settings.mailbox.clone();
        let end = Position { mailbox, uid_validity, next: uid_next };
        match stored.filter(|stored| stored.mailbox == end.mailbox) {
            Some(stored) if stored.uid_validity == uid_validity => return Ok(stored),
            Some(_) => {
                let unseen = imap.search("UNSEEN").await.map_err(lost)?;
                for uid in unseen.into_iter().filter(|uid| *uid < uid_next) {
                    self.take(imap, uid_validity, uid).await?;
                }
            }
            None => {}
        }
        self.store_position(&end).await?;
        Ok(end)
    }

    /// Takes one mail, and marks it as seen if the gateway has it.
    async fn take(
        self: &Arc<Self>,
        imap: &mut Imap,
        uid_validity: u32,
        uid: u32,
    ) -> Result<(), Disconnected> {
        let Some(fetched) = imap.fetch(uid, MAX_MAIL_BYTES).await.map_err(lost)? else {
            return Ok(());
        };
        let mail = Mail {
            content: &fetched.content,
            size: fetched.size,
            place: format!("{uid_validity}.{uid}"),
        };
        let verdict = judge(&mail, &self.settings);
        let is_taken = matches!(verdict, Verdict::Take(_));
        let account: Arc<dyn ChannelAccount> = Arc::<Self>::clone(self);
        match inbound::handle(&account, verdict, RetryMode::UntilDecided).await {
            UpdateResult::SendAgain => Err(Disconnected::lost("a mail could not be taken in yet")),
            UpdateResult::Done if is_taken => imap.mark_seen(uid).await.map_err(lost),
            UpdateResult::Done => Ok(()),
        }
    }

    async fn store_position(&self, position: &Position) -> Result<(), Disconnected> {
        let (tenant, id) = (self.account.tenant, self.account.id);
        let text = serde_json::to_string(position);
        let text = text.map_err(|error| Disconnected::lost(error.to_string()))?;
        let stored = self.directory.accounts().set_position(tenant, id, POSITION, &text).await;
        let failed = |error: DirectoryError| {
            Disconnected::lost(format!("the position cannot be stored: {error}"))
        };
        stored.map_err(failed)
    }
}
