//! The `email` tool: drafts a mail, and sends it after approval.
//!
//! A draft is not stored: it is the text that the model got, and its number is a digest of that
//! text. To send, the model repeats the mail with that number. So the sent mail is exactly the
//! drafted one; and a person approves it first.
//!
//! **What can go wrong.** A line break in an address or a subject would inject a header: addresses
//! are parsed and formatted again, and a subject with a line break is refused. A mail that was
//! handed over and not acknowledged may have been sent: its outcome is unknown, and it is never
//! sent again; its `Message-ID` follows from the call, so that a person can check.

use std::{fmt::Write as _, time::Duration};

use holdfast_types::{ConnectionKind, ConnectionSettings, Effect, SmtpSecurity, SmtpServer};
use lettre::{
    Address, Message,
    message::{Mailbox, header::ContentType},
    transport::smtp::{
        authentication::{Credentials, Mechanism},
        client::{AsyncSmtpConnection, TlsParameters},
        extension::ClientId,
    },
};
use schemars::JsonSchema;
use secrecy::{ExposeSecret as _, SecretString};
use serde::Deserialize;
use serde_json::json;
use sha2::{Digest as _, Sha256};

use super::{ConnectionContext, Connections, OpenConnection, open_connection};
use crate::{Approval, Call, Output, SubjectText, Tool, ToolError};

/// Maximum number of recipients of one mail.
const MAX_RECIPIENTS: usize = 20;
const MAX_SUBJECT_LEN: usize = 500;
const MAX_BODY_LEN: usize = 50_000;

/// Timeout of one step of the SMTP dialogue.
const STEP_TIMEOUT: Duration = Duration::from_secs(30);

/// Write an e-mail. First `draft` it and show it to the person; then `send` the very same with the
/// draft's number.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct EmailInput {
    /// `draft` checks and shows it; `send` sends it.
    action: Action,
    /// Which mail account, if there are several.
    #[serde(default)]
    connection: Option<String>,
    /// Addresses, as `anna@example.com` or `Anna <anna@example.com>`.
    to: Vec<String>,
    #[serde(default)]
    cc: Vec<String>,
    subject: String,
    /// The text, plain.
    body: String,
    /// The `Message-ID` of the mail that this one answers.
    #[serde(default)]
    in_reply_to: Option<String>,
    /// The draft's number, to send it.
    #[serde(default)]
    draft: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
enum Action {
    Draft,
    Send,
}

#[derive(Debug)]
pub struct Email<C>(ConnectionContext<C>);

impl<C> Email<C> {
    pub(super) const fn new(context: ConnectionContext<C>) -> Self {
        Self(context)
    }
}

impl<C: Connections> Email<C> {
    async fn checked_mail(
        &self,
        call: &Call,
        input: &EmailInput,
    ) -> Result<(OpenConnection, CheckedMail), ToolError> {
        let (connections, kind) = (&*self.0.connections, ConnectionKind::Smtp);
        let opened = open_connection(connections, call, kind, input.connection.as_deref()).await?;
        let ConnectionSettings::Smtp(server) = &opened.to else {
            return Err(ToolError::Tell("that connection sends no mail any more".to_owned()));
        };
        let letter = CheckedMail::new(input, server).map_err(ToolError::Tell)?;
        Ok((opened, letter))
    }
}

impl<C: Connections> Tool<Output> for Email<C> {
    const NAME: &'static str = "email";
    const EFFECT: Effect = Effect::Acts;
    // A server may accept a mail slowly; each step has its own timeout.
    const TIMEOUT: Option<Duration> = Some(Duration::from_secs(120));
    type Input = EmailInput;

    async fn approval(&self, call: &Call, input: &EmailInput) -> Result<Approval, ToolError> {
        if input.action == Action::Draft {
            return Ok(Approval::Never);
        }
        let (opened, letter) = self.checked_mail(call, input).await?;
        letter.check_draft(input).map_err(ToolError::Tell)?;
        Ok(Approval::Ask {
            subject: letter.subject_text(&opened.name),
            summary: letter.summary(),
            // Each mail needs its own approval.
            pattern: None,
        })
    }

    async fn call(&self, call: Call, input: EmailInput) -> Result<Output, ToolError> {
        let (opened, letter) = self.checked_mail(&call, &input).await?;
        if input.action == Action::Draft {
            return Ok(format!(
                "This is draft {}; nothing was sent. Show it to the person, and send it with this \
                 number if they want it so.\n\n{}",
                letter.number(),
                letter.display_text()
            )
            .into());
        }
        letter.check_draft(&input).map_err(ToolError::Tell)?;
        let ConnectionSettings::Smtp(server) = &opened.to else {
            return Err(ToolError::Tell("that connection sends no mail any more".to_owned()));
        };
        let id = message_id(&call.key, &letter.from);
        let message = letter.message(&id).map_err(ToolError::Tell)?;
        let sent = self.send(server, opened.secret.as_ref(), &message).await;
        sent.map_err(ToolError::Tell)?;
        let told = format!("The mail was handed to {}; its Message-ID is {id}.", server.host);
        Ok(Output::from(told).record(json!({ "connection": opened.name, "message_id": id })))
    }
}

impl<C: Connections> Email<C> {
    /// Hands a mail over to its server.
    async fn send(
        &self,
        server: &SmtpServer,
        secret: Option<&SecretString>,
        message: &Message,
    ) -> Result<(), String> {
        let unsent = |why: String| format!("{why}; nothing was sent");
        let mut connection = self.connect(server, secret).await.map_err(unsent)?;
        let sent = connection.send(message.envelope(), &message.formatted()).await;
        let outcome = match sent {
            Ok(_) => Ok(()),
            // The server answered with a refusal.
            Err(error) if error.status().is_some() => Err(format!(
                "the server refused it: {}; nothing was sent",
                crate::untrusted::one_line(&error.to_string()).chars().take(300).collect::<String>()
            )),
            Err(error) if error.is_client() => Err(unsent(
                "the server cannot take such a mail: an address or a text has letters that it does \
                 not know"
                    .to_owned(),
            )),
            Err(_) => Err("the connection broke while the mail was handed over: whether it was \
                           sent is not known, and it must not be sent again before someone looked"
                .to_owned()),
        };
        connection.abort().await;
        outcome
    }

    /// Opens a connection with the required protection, and logs in.
    async fn connect(
        &self,
        server: &SmtpServer,
        secret: Option<&SecretString>,
    ) -> Result<AsyncSmtpConnection, String> {
        if server.security == SmtpSecurity::None
            && !self.0.guard.is_listed(&server.host.to_lowercase(), server.port)
        {
            return Err(format!(
                "`{}` is reached without TLS, which is for servers that the operator listed",
                server.host
            ));
        }
        let addresses = self.0.guard.addresses(&server.host, server.port).await;
        let addresses = addresses.map_err(|refused| refused.to_string())?;
        let tls = || {
            TlsParameters::new(server.host.clone())
                .map_err(|_| "no TLS is to be had: are CA certificates installed?".to_owned())
        };
        let hello = ClientId::Domain("holdfast.invalid".to_owned());
        let from_start = match server.security {
            SmtpSecurity::Tls => Some(tls()?),
            SmtpSecurity::Starttls | SmtpSecurity::None => None,
        };
        let connecting = AsyncSmtpConnection::connect_tokio1(
            addresses.as_slice(),
            Some(STEP_TIMEOUT),
            &hello,
            from_start,
            None,
        );
        let connected = tokio::time::timeout(STEP_TIMEOUT, connecting).await;
        let mut connection = match connected {
            Ok(Ok(connection)) => connection,
            Ok(Err(error)) if error.is_tls() => {
                return Err("the server could not prove that it is the right one".to_owned());
            }
            Ok(Err(_)) => return Err("no connection could be made".to_owned()),
            Err(_) => return Err(format!("no answer came within {} s", STEP_TIMEOUT.as_secs())),
        };
        if server.security == SmtpSecurity::Starttls {
            if !connection.can_starttls() {
                return Err(
                    "the server offers no TLS: try `security` `tls` and port 465".to_owned()
                );
            }
            let upgraded = connection.starttls(tls()?, &hello).await;
            upgraded.map_err(|_| "no TLS could be agreed on".to_owned())?;
        }
        if !server.user.is_empty() {
            let password = secret.map(|secret| secret.expose_secret().to_owned());
            let credentials = Credentials::new(server.user.clone(), password.unwrap_or_default());
            let mechanisms = [Mechanism::Plain, Mechanism::Login];
            connection.auth(&mechanisms, &credentials).await.map_err(|_| {
                "the server did not let us in: the connection's user or secret is not right"
                    .to_owned()
            })?;
        }
        Ok(connection)
    }
}

/// Mail whose parts were checked.
#[derive(Debug)]
struct CheckedMail {
    from: Mailbox,
    to: Vec<Mailbox>,
    cc: Vec<Mailbox>,
    subject: String,
    body: String,
    in_reply_to: Option<String>,
}

impl CheckedMail {
    fn new(input: &EmailInput, server: &SmtpServer) -> Result<Self, String> {
        let count = input.to.len() + input.cc.len();
        if input.to.is_empty() {
            return Err("`to` is empty: say who it is for".to_owned());
        }
        if count > MAX_RECIPIENTS {
            return Err(format!("{count} people, and {MAX_RECIPIENTS} are the most"));
        }
        let all = |said: &[String]| -> Result<Vec<Mailbox>, String> {
            said.iter().map(|said| parse_recipient(said, server)).collect()
        };
        let subject = input.subject.trim();
        if subject.is_empty() || subject.len() > MAX_SUBJECT_LEN {
            return Err(format!("`subject` has 1 to {MAX_SUBJECT_LEN} bytes"));
        }
        if subject.contains(char::is_control) {
            return Err("`subject` is one line".to_owned());
        }
        if input.body.trim().is_empty() || input.body.len() > MAX_BODY_LEN {
            return Err(format!("`body` has 1 to {MAX_BODY_LEN} bytes"));
        }
        let in_reply_to = match &input.in_reply_to {
            Some(id) if !is_message_id(id) => {
                return Err("`in_reply_to` is a Message-ID, as `<1@example.com>`".to_owned());
            }
            id => id.clone(),
        };
        Ok(Self {
            from: parse_mailbox(&server.from)
                .map_err(|_| "the connection's `from` is no address: its owner has to change it")?,
            to: all(&input.to)?,
            cc: all(&input.cc)?,
            subject: subject.to_owned(),
            body: input.body.clone(),
            in_reply_to,
        })
    }

    /// Formats the mail for a person.
    fn display_text(&self) -> String {
        let list = |people: &[Mailbox]| {
            people.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
        };
        let mut text = format!("From: {}\nTo: {}\n", self.from, list(&self.to));
        if !self.cc.is_empty() {
            // Writing to a `String` cannot fail.
            let _ = writeln!(text, "Cc: {}", list(&self.cc));
        }
        if let Some(id) = &self.in_reply_to {
            let _ = writeln!(text, "In-Reply-To: {id}");
        }
        let _ = write!(text, "Subject: {}\n\n{}", self.subject, self.body);
        text
    }

    /// Everything that would be sent, for its approval.
    fn subject_text(&self, connection: &str) -> String {
        let list = |people: &[Mailbox]| {
            people.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
        };
        SubjectText::default()
            .with("connection", connection)
            .with("from", &self.from.to_string())
            .with("to", &list(&self.to))
            .with("cc", &list(&self.cc))
            .with("in reply to", self.in_reply_to.as_deref().unwrap_or_default())
            .with("subject", &self.subject)
            .with("body", &self.body)
            .into()
    }

    fn summary(&self) -> String {
        let people: Vec<String> =
            self.to.iter().chain(&self.cc).map(|person| person.email.to_string()).collect();
        format!("mail to {}: {}", people.join(", "), self.subject)
    }

    fn number(&self) -> String {
        hex(&format!("draft:{}", self.display_text()), 6)
    }

    /// Refuses a mail that differs from its draft.
    fn check_draft(&self, input: &EmailInput) -> Result<(), String> {
        match input.draft.as_deref().map(str::trim) {
            Some(number) if number == self.number() => Ok(()),
            Some(_) => {
                Err("that is not what was drafted: `draft` it as it is now, show it to the \
                            person, and send it with the new number; nothing was sent"
                    .to_owned())
            }
            None => Err("`draft` it first, show it to the person, then send it with the draft's \
                         number; nothing was sent"
                .to_owned()),
        }
    }

    fn message(&self, id: &str) -> Result<Message, String> {
        let mut message = Message::builder()
            .from(self.from.clone())
            .subject(self.subject.clone())
            .message_id(Some(id.to_owned()))
            .date_now()
            .header(ContentType::TEXT_PLAIN);
        for person in &self.to {
            message = message.to(person.clone());
        }
        for person in &self.cc {
            message = message.cc(person.clone());
        }
        if let Some(answered) = &self.in_reply_to {
            message = message.in_reply_to(answered.clone()).references(answered.clone());
        }
        message.body(self.body.clone()).map_err(|_| "the mail cannot be written".to_owned())
    }
}

/// Parses a recipient, and checks that the connection may write to it.
fn parse_recipient(said: &str, server: &SmtpServer) -> Result<Mailbox, String> {
    let person = parse_mailbox(said).map_err(|()| {
        let shown: String = crate::untrusted::one_line(said).chars().take(80).collect();
        format!("`{shown}` is no address: write `anna@example.com` or `Anna <anna@example.com>`")
    })?;
    if !server.may_write_to(person.email.as_ref()) {
        return Err(format!(
            "mail to `{}` is not allowed: the connection lists whom it may go to",
            person.email
        ));
    }
    Ok(person)
}

fn parse_mailbox(said: &str) -> Result<Mailbox, ()> {
    if said.contains(char::is_control) || said.len() > 320 {
        return Err(());
    }
    let said = said.trim();
    let (name, address) = match said.strip_suffix('>').and_then(|said| said.rsplit_once('<')) {
        Some((name, address)) => (name.trim().trim_matches('"').trim(), address),
        None => ("", said),
    };
    let address: Address = address.parse().map_err(|_| ())?;
    Ok(Mailbox::new(Some(name.to_owned()).filter(|name| !name.is_empty()), address))
}

fn is_message_id(text: &str) -> bool {
    let inner = text.strip_prefix('<').and_then(|text| text.strip_suffix('>')).unwrap_or_default();
    let is_plain = |c: char| c.is_ascii_graphic() && !matches!(c, '<' | '>');
    inner.contains('@') && inner.len() <= 200 && inner.chars().all(is_plain)
}

/// Message-ID of the mail that a call sends, in the sender's domain.
fn message_id(key: &str, from: &Mailbox) -> String {
    format!("<{}@{}>", hex(&format!("email:{key}"), 16), from.email.domain())
}

fn hex(text: &str, bytes: usize) -> String {
    let digest = Sha256::digest(text.as_bytes());
    digest.iter().take(bytes).fold(String::new(), |mut hex, byte| {
        // Writing to a `String` cannot fail.
        let _ = write!(hex, "{byte:02x}");
        hex
    })
}

#[cfg(test)]
mod tests;
