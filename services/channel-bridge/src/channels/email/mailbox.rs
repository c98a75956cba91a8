//! Reading of a mailbox: new mails, in the order of their UIDs, each once.
//!
//! The position moves past a mail after the gateway has it, and is stored, so that the next bridge
//! goes on from there. A mail that comes twice is recognized by its `Message-ID`.
//!
//! **What can go wrong.** The server numbers the mails anew (`UIDVALIDITY`): those that nobody has
//! read are taken. The connection breaks: it is made again, and the position is where it was.

use std::{convert::Infallible, sync::Arc, time::Duration};

use holdfast_directory::{
    Error as DirectoryError,
    channel::{MailAuthentication, MailSecurity},
};
use jiff::Timestamp;
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use tokio::time::sleep;

use super::{
    Email,
    authentication::OwnServers,
    imap::{Imap, ImapError, Selected},
    judge::{Mail, NOT_VERIFIED, judge},
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

/// Name under which it is stored how many mails were refused.
const REFUSALS: &str = "refusals";

/// Keyword of mails that were refused because their senders are not verified.
const REFUSED_KEYWORD: &str = "HoldfastRefused";

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Position {
    mailbox: String,
    uid_validity: u32,
    /// UID from which on mails are new.
    next: u32,
}

/// Mails that were refused because their senders are not verified.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Refusals {
    count: u64,
    last: Timestamp,
}

/// An open mailbox, and what is known of it.
struct OpenMailbox {
    imap: Imap,
    uid_validity: u32,
    own: OwnServers,
    refusals: Refusals,
}

/// Where reading begins.
struct Beginning {
    position: Position,
    /// Unread mails before the position, which got new numbers.
    earlier: Vec<u32>,
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
        match self.take_new_mails(imap, selected).await {
            Ok(never) => match never {},
            Err(ended) => ended,
        }
    }

    async fn take_new_mails(
        self: &Arc<Self>,
        mut imap: Imap,
        selected: Selected,
    ) -> Result<Infallible, Disconnected> {
        let Beginning { mut position, earlier } = self.begin(&mut imap, selected).await?;
        let own = self.own_servers(&mut imap).await?;
        let refusals = self.stored(REFUSALS).await?.unwrap_or_default();
        let uid_validity = position.uid_validity;
        let mut mailbox = OpenMailbox { imap, uid_validity, own, refusals };
        self.report_reading(&mailbox);
        for uid in earlier {
            self.take(&mut mailbox, uid).await?;
        }
        self.store(POSITION, &position).await?;
        loop {
            let new = format!("UID {}:*", position.next);
            for uid in mailbox.imap.search(&new).await.map_err(lost)? {
                // The range `n:*` has the last mail in it, however small its number.
                if uid < position.next {
                    continue;
                }
                self.take(&mut mailbox, uid).await?;
                position.next = uid + 1;
                self.store(POSITION, &position).await?;
            }
            let imap = &mut mailbox.imap;
            if imap.has("IDLE") {
                imap.idle(IDLE_WAIT).await.map_err(lost)?;
            } else {
                sleep(POLL_INTERVAL).await;
                imap.command("NOOP").await.map_err(lost)?;
            }
        }
    }

    /// Returns where to begin: at the stored position; in a new mailbox at its end, which is stored
    /// at once.
    async fn begin(
        &self,
        imap: &mut Imap,
        Selected { uid_validity, uid_next }: Selected,
    ) -> Result<Beginning, Disconnected> {
        let mailbox = self.settings.mailbox.clone();
        let end = Position { mailbox, uid_validity, next: uid_next };
        let stored: Option<Position> = self.stored(POSITION).await?;
        let earlier = match stored.filter(|stored| stored.mailbox == end.mailbox) {
            Some(stored) if stored.uid_validity == uid_validity => {
                return Ok(Beginning { position: stored, earlier: Vec::new() });
            }
            Some(_) => {
                let unseen = imap.search("UNSEEN").await.map_err(lost)?;
                unseen.into_iter().filter(|uid| *uid < uid_next).collect()
            }
            None => {
                self.store(POSITION, &end).await?;
                Vec::new()
            }
        };
        Ok(Beginning { position: end, earlier })
    }

    /// Takes one mail, and marks it as seen if the gateway has it.
    async fn take(
        self: &Arc<Self>,
        mailbox: &mut OpenMailbox,
        uid: u32,
    ) -> Result<(), Disconnected> {
        let Some(fetched) = mailbox.imap.fetch(uid, MAX_MAIL_BYTES).await.map_err(lost)? else {
            return Ok(());
        };
        let mail = Mail {
            content: &fetched.content,
            size: fetched.size,
            place: format!("{}.{uid}", mailbox.uid_validity),
        };
        let verdict = judge(&mail, &self.settings, &mailbox.own);
        let is_taken = matches!(verdict, Verdict::Take(_));
        let account: Arc<dyn ChannelAccount> = Arc::<Self>::clone(self);
        if verdict == Verdict::Ignore(NOT_VERIFIED) {
            self.note_refusal(mailbox, uid).await?;
            inbound::finish(&account, NOT_VERIFIED);
            return Ok(());
        }
        match inbound::handle(&account, verdict, RetryMode::UntilDecided).await {
            UpdateResult::SendAgain => Err(Disconnected::lost("a mail could not be taken in yet")),
            UpdateResult::Done if is_taken => mailbox.imap.mark_seen(uid).await.map_err(lost),
            UpdateResult::Done => Ok(()),
        }
    }

    /// Counts a mail whose sender is not verified, and marks it so that people find it.
    async fn note_refusal(&self, mailbox: &mut OpenMailbox, uid: u32) -> Result<(), Disconnected> {
        // Servers may have no keywords. The mail is unread in any case.
        match mailbox.imap.add_flag(uid, REFUSED_KEYWORD).await {
            Ok(()) | Err(ImapError::Refused(_)) => {}
            Err(error) => return Err(lost(error)),
        }
        let count = mailbox.refusals.count.saturating_add(1);
        mailbox.refusals = Refusals { count, last: Timestamp::now() };
        self.store(REFUSALS, &mailbox.refusals).await?;
        self.report_reading(mailbox);
        Ok(())
    }

    fn report_reading(&self, mailbox: &OpenMailbox) {
        let (address, host) = (&self.settings.address, &self.settings.imap.host);
        let checked = match (self.settings.authentication, mailbox.own.0.as_slice()) {
            (MailAuthentication::Off, _) => {
                "; all senders are strangers without rights, since `authentication` is `off`"
                    .to_owned()
            }
            (_, []) => "; all senders are strangers without rights, since the name of the server \
                        in `Authentication-Results` is not known: set `authserv`"
                .to_owned(),
            (_, names) => {
                let shown = |name: &Option<String>| name.clone().unwrap_or_else(|| "-".to_owned());
                let names: Vec<String> = names.iter().map(shown).collect();
                format!("; believes the results of `{}` about senders", names.join(" "))
            }
        };
        let refused = match mailbox.refusals {
            Refusals { count: 0, .. } => String::new(),
            Refusals { count, last } => format!(
                "; {count} mails were refused because their senders are not verified, the last at \
                 {last:.0}: they are unread in `{}`, with the keyword `{REFUSED_KEYWORD}`",
                self.settings.mailbox
            ),
        };
        self.account
            .report_working(format!("reads the mailbox of {address} at {host}{checked}{refused}"));
    }

    /// Returns what the account has stored under a name.
    pub(super) async fn stored<T: DeserializeOwned>(
        &self,
        name: &str,
    ) -> Result<Option<T>, Disconnected> {
        let (tenant, id) = (self.account.tenant, self.account.id);
        let stored = self.directory.accounts().position(tenant, id, name).await;
        let unreadable = |error: DirectoryError| {
            Disconnected::lost(format!("the account's state cannot be read: {error}"))
        };
        Ok(stored.map_err(unreadable)?.and_then(|text| serde_json::from_str(&text).ok()))
    }

    pub(super) async fn store(
        &self,
        name: &str,
        state: &impl Serialize,
    ) -> Result<(), Disconnected> {
        let (tenant, id) = (self.account.tenant, self.account.id);
        let text = serde_json::to_string(state);
        let text = text.map_err(|error| Disconnected::lost(error.to_string()))?;
        let stored = self.directory.accounts().set_position(tenant, id, name, &text).await;
        let failed = |error: DirectoryError| {
            Disconnected::lost(format!("the account's state cannot be stored: {error}"))
        };
        stored.map_err(failed)
    }
}
