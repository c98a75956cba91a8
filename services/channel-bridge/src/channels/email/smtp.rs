//! Mails as they are sent: by SMTP, with a copy in the folder of sent mails.
//!
//! The `Message-ID` follows from the delivery. A mail whose outcome is not known is looked up by it.
//!
//! **What can go wrong.** The process dies after the server took the mail and before the copy was
//! stored: the folder does not have it, although it was sent. So its absence means something only
//! if the server stores the copy itself (`server_saves_sent`).

use std::time::Duration;

use holdfast_directory::channel::MailSecurity;
use holdfast_egress as egress;
use holdfast_session::Delivery;
use holdfast_types::StoredFile;
use lettre::{
    Address, Message,
    message::{
        Attachment, Mailbox, MultiPart, SinglePart,
        header::{ContentType, HeaderName, HeaderValue},
    },
    transport::smtp::{
        authentication::{Credentials, Mechanism},
        client::{AsyncSmtpConnection, TlsParameters},
        extension::ClientId,
    },
};
use secrecy::ExposeSecret as _;
use tokio::time::timeout;
use tracing::debug;

use super::{Email, mailbox::ConnectError};
use crate::{Outcome, channel::Place, guard::AddressRefusal, html, outcome::Reconciliation};

/// Timeout of one step of the SMTP dialogue.
const STEP_TIMEOUT: Duration = Duration::from_secs(20);

/// Maximum time that storing the copy may take: the mail is sent already.
const COPY_TIMEOUT: Duration = Duration::from_secs(10);

/// Mail that is ready to be sent.
#[derive(Debug)]
pub(super) struct OutgoingMail {
    /// Id without angle brackets.
    id: String,
    message: Message,
}

impl Email {
    /// Writes the mail of a delivery.
    pub(super) fn mail_of(
        &self,
        part: &Delivery,
        attached: Option<(&StoredFile, &[u8])>,
    ) -> Result<OutgoingMail, String> {
        let id = self.message_id(&part.id.to_string());
        let thread = part.target.thread.as_deref();
        let replied = part.target.reply_to.as_deref();
        self.write(&id, &part.target.chat, (thread, replied), (&part.text, attached))
    }

    /// Writes a mail that no delivery asks for.
    pub(super) fn notice(&self, place: &Place, text: &str) -> Result<OutgoingMail, String> {
        let id = self.message_id(&format!("notice-{:032x}", rand::random::<u128>()));
        self.write(&id, &place.chat, (place.thread.as_deref(), None), (text, None))
    }

    /// Writes a mail of the account to itself, with the token in its subject and findings as a
    /// server writes them.
    pub(super) fn test_mail(&self, token: &str, findings: &str) -> Result<OutgoingMail, String> {
        let id = self.message_id(&format!("test-{token}"));
        let thread = format!("{token} Test of this mailbox: {token}");
        let text = "The assistant has sent this mail to itself, to see how your mail server \
                    marks senders whom it has checked. You can delete it.";
        let mut mail =
            self.write(&id, &self.settings.address, (Some(&thread), None), (text, None))?;
        let name = HeaderName::new_from_ascii_str("Authentication-Results");
        mail.message.headers_mut().insert_raw(HeaderValue::new(name, findings.to_owned()));
        Ok(mail)
    }

    fn message_id(&self, name: &str) -> String {
        let domain = self.settings.address.rsplit_once('@').map_or("", |(_, domain)| domain);
        format!("{name}@{domain}")
    }

    fn write(
        &self,
        id: &str,
        to: &str,
        (thread, replied): (Option<&str>, Option<&str>),
        (text, attached): (&str, Option<(&StoredFile, &[u8])>),
    ) -> Result<OutgoingMail, String> {
        let address = |text: &str| {
            text.parse::<Address>().map_err(|_| format!("`{}` is no address", shown(text)))
        };
        let name = Some(self.settings.name.clone()).filter(|name| !name.is_empty());
        let (root, subject) = thread.unwrap_or_default().split_once(' ').unwrap_or_default();
        let root = if subject.is_empty() { thread.unwrap_or_default() } else { root };
        let mut builder = Message::builder()
            .from(Mailbox::new(name, address(&self.settings.address)?))
            .to(Mailbox::new(None, address(to)?))
            .subject(subject_of(subject, text))
            .message_id(Some(format!("<{id}>")));
        let replied = replied.filter(|id| is_id(id));
        if let Some(replied) = replied {
            builder = builder.in_reply_to(format!("<{replied}>"));
        }
        let mut references: Vec<&str> =
            [Some(root).filter(|id| is_id(id)), replied].into_iter().flatten().collect();
        references.dedup();
        if !references.is_empty() {
            let listed: Vec<String> = references.iter().map(|id| format!("<{id}>")).collect();
            builder = builder.references(listed.join(" "));
        }
        let unwritable = |_| "the mail cannot be written".to_owned();
        let body = body(text);
        let built = match attached {
            None => builder.multipart(body),
            Some((stored, content)) => {
                let kind = ContentType::parse(&stored.media_type);
                let kind = kind.or_else(|_| ContentType::parse("application/octet-stream"));
                let kind = kind.map_err(|_| "the file's type is none".to_owned())?;
                let name: String = stored.name().chars().filter(|c| !c.is_control()).collect();
                let file = Attachment::new(name).body(content.to_vec(), kind);
                builder.multipart(MultiPart::mixed().multipart(body).singlepart(file))
            }
        };
        let mut message = built.map_err(unwritable)?;
        // Other programs must not answer it (RFC 3834).
        for (name, value) in
            [("Auto-Submitted", "auto-replied"), ("X-Auto-Response-Suppress", "All")]
        {
            let name = HeaderName::new_from_ascii_str(name);
            message.headers_mut().insert_raw(HeaderValue::new(name, value.to_owned()));
        }
        Ok(OutgoingMail { id: id.to_owned(), message })
    }

    /// Hands a mail over to the SMTP server, and stores the copy.
    pub(super) async fn deliver(&self, mail: &OutgoingMail) -> Outcome {
        let mut connection = match self.connect_smtp().await {
            Ok(connection) => connection,
            Err(ConnectError::Unreachable(why) | ConnectError::Rejected(why)) => {
                return Outcome::not_sent(why);
            }
        };
        let content = mail.message.formatted();
        let sent = connection.send(mail.message.envelope(), &content).await;
        let outcome = match sent {
            Ok(_) => Outcome::Sent { platform_id: mail.id.clone() },
            // The server answered with a refusal: for good (5xx), or for now (4xx).
            Err(error) if error.is_permanent() => Outcome::refused(format!(
                "the SMTP server refuses it: {}",
                shown(&error.to_string())
            )),
            Err(error) if error.is_transient() => Outcome::not_sent(format!(
                "the SMTP server does not take it now: {}",
                shown(&error.to_string())
            )),
            Err(error) if error.is_client() => {
                Outcome::refused("the SMTP server does not know letters of the address")
            }
            Err(_) => Outcome::unsure("the connection broke while the mail was handed over"),
        };
        connection.abort().await;
        if matches!(outcome, Outcome::Sent { .. }) && !self.settings.server_saves_sent {
            match timeout(COPY_TIMEOUT, self.store_copy(&content)).await {
                Ok(Ok(())) => {}
                Ok(Err(error)) => debug!(?error, "the copy of a mail was not stored"),
                Err(_) => debug!("the copy of a mail took too long"),
            }
        }
        outcome
    }

    /// Hands a mail over to the SMTP server, without a copy.
    pub(super) async fn hand_over(&self, mail: &OutgoingMail) -> Result<(), ConnectError> {
        let mut connection = self.connect_smtp().await?;
        let sent = connection.send(mail.message.envelope(), &mail.message.formatted()).await;
        connection.abort().await;
        match sent {
            Ok(_) => Ok(()),
            Err(error) if error.is_permanent() => Err(ConnectError::Rejected(format!(
                "the SMTP server refuses it: {}",
                shown(&error.to_string())
            ))),
            Err(_) => Err(ConnectError::Unreachable(
                "the SMTP server does not take a test mail now".to_owned(),
            )),
        }
    }

    async fn store_copy(&self, content: &[u8]) -> Result<(), ConnectError> {
        let failed = |error: super::imap::ImapError| ConnectError::Unreachable(error.to_string());
        let mut imap = self.connect_imap().await?;
        if let Some(folder) = self.sent_folder(&mut imap).await.map_err(failed)? {
            imap.append(&folder, content).await.map_err(failed)?;
        }
        imap.sign_out().await;
        Ok(())
    }

    async fn sent_folder(
        &self,
        imap: &mut super::imap::Imap,
    ) -> Result<Option<String>, super::imap::ImapError> {
        match &self.settings.sent {
            Some(folder) => Ok(Some(folder.clone())),
            None => imap.sent_folder().await,
        }
    }

    /// Looks for a mail in the folder of sent mails.
    pub(super) async fn look_up(&self, part: &Delivery) -> Reconciliation {
        let id = self.message_id(&part.id.to_string());
        let not_yet = |reason: String| Reconciliation::NotYet { reason };
        let mut imap = match self.connect_imap().await {
            Ok(imap) => imap,
            Err(ConnectError::Unreachable(why) | ConnectError::Rejected(why)) => {
                return not_yet(why);
            }
        };
        let found = async {
            let Some(folder) = self.sent_folder(&mut imap).await? else { return Ok(None) };
            imap.select(&folder).await?;
            imap.has_mail(&id).await.map(Some)
        };
        let found: Result<Option<bool>, super::imap::ImapError> = found.await;
        imap.sign_out().await;
        match found {
            Ok(Some(true)) => Reconciliation::Sent { platform_id: id },
            Ok(Some(false)) if self.settings.server_saves_sent => Reconciliation::NotSent,
            Ok(Some(false)) => Reconciliation::CannotTell {
                reason:
                    "the SMTP server may have taken it: it is not in the folder of sent mails, \
                         where the bridge puts a copy after sending"
                        .to_owned(),
            },
            Ok(None) => Reconciliation::CannotTell {
                reason: "the account has no folder of sent mails: set `sent`".to_owned(),
            },
            Err(error) => not_yet(error.to_string()),
        }
    }

    /// Connects to the SMTP server and signs in.
    pub(super) async fn connect_smtp(&self) -> Result<AsyncSmtpConnection, ConnectError> {
        let server = &self.settings.smtp;
        let (host, port) = (server.host.as_str(), server.port(465, 587));
        let unreachable = |why: &str| ConnectError::Unreachable(format!("`{host}:{port}` {why}"));
        let addresses = self.clients.guard().addresses(host, port).await;
        let addresses = addresses.map_err(|error| match error {
            egress::AddressRefusal::Private(host) => {
                ConnectError::Rejected(AddressRefusal::Private(host).to_string())
            }
            other => ConnectError::Unreachable(other.to_string()),
        })?;
        let tls = || {
            TlsParameters::new(host.to_owned())
                .map_err(|_| unreachable("needs TLS, for which this machine has no certificates"))
        };
        let hello = ClientId::Domain("holdfast.invalid".to_owned());
        let from_start = match server.security {
            MailSecurity::Tls => Some(tls()?),
            MailSecurity::Starttls | MailSecurity::None => None,
        };
        let connecting = AsyncSmtpConnection::connect_tokio1(
            addresses.as_slice(),
            Some(STEP_TIMEOUT),
            &hello,
            from_start,
            None,
        );
        let mut connection = match timeout(STEP_TIMEOUT, connecting).await {
            Ok(Ok(connection)) => connection,
            Ok(Err(error)) if error.is_tls() => {
                return Err(unreachable("was reached, and TLS failed"));
            }
            Ok(Err(_)) => return Err(unreachable("could not be reached")),
            Err(_) => return Err(unreachable("did not answer in time")),
        };
        if server.security == MailSecurity::Starttls {
            if !connection.can_starttls() {
                return Err(unreachable("offers no STARTTLS: try `security` `tls` and port 465"));
            }
            let upgraded = connection.starttls(tls()?, &hello).await;
            upgraded.map_err(|_| unreachable("was reached, and STARTTLS failed"))?;
        }
        let password = self.password.expose_secret().to_owned();
        let credentials = Credentials::new(self.settings.user().to_owned(), password);
        let signed_in = connection.auth(&[Mechanism::Plain, Mechanism::Login], &credentials).await;
        match signed_in {
            Ok(_) => Ok(connection),
            Err(error) if error.is_permanent() => Err(ConnectError::Rejected(
                "the SMTP server does not accept `user` and `password`".to_owned(),
            )),
            Err(_) => Err(unreachable("did not let the account sign in")),
        }
    }
}

fn body(text: &str) -> MultiPart {
    // Nothing but the text is a file without a caption.
    let plain = SinglePart::plain(text.to_owned());
    match html::render(text) {
        None => MultiPart::mixed().singlepart(plain),
        Some(html) => MultiPart::alternative().singlepart(plain).singlepart(SinglePart::html(html)),
    }
}

/// Subject of a mail: that of the conversation, else the beginning of the text.
fn subject_of(subject: &str, text: &str) -> String {
    if subject.is_empty() {
        let line = text
            .lines()
            .map(|line| line.trim_matches(['#', '*', ' ']))
            .find(|line| !line.is_empty());
        return shown(line.unwrap_or("Message")).chars().take(60).collect();
    }
    let is_answer = subject.get(..3).is_some_and(|start| start.eq_ignore_ascii_case("re:"));
    shown(&if is_answer { subject.to_owned() } else { format!("Re: {subject}") })
}

fn is_id(id: &str) -> bool {
    let plain = |letter: char| letter.is_ascii_graphic() && !matches!(letter, '<' | '>');
    id.contains('@') && id.chars().all(plain)
}

fn shown(text: &str) -> String {
    text.chars().filter(|letter| !letter.is_control()).take(250).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_subject_is_kept_and_says_that_it_is_an_answer() {
        assert_eq!(subject_of("Lunch", "x"), "Re: Lunch");
        assert_eq!(subject_of("RE: Lunch", "x"), "RE: Lunch");
        assert_eq!(subject_of("", "\n## Your *report*\nis"), "Your *report");
        assert_eq!(subject_of("a\r\nBcc: eve@evil.net", ""), "Re: aBcc: eve@evil.net");
    }
}
