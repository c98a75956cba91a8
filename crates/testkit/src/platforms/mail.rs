//! Mail: IMAP4rev1 (RFC 3501) with IDLE, and SMTP (RFC 5321), with servers of its own for each mailbox.
//! The SMTP server stores what it takes in the folder of sent mails; a mail to the mailbox itself
//! arrives there. The receiving server checks senders and writes `Authentication-Results`.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use mail_parser::MessageParser;
use serde_json::json;
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio_util::sync::{CancellationToken, DropGuard};

use super::{AccountSettings, Posted, Written, accept, secret_of};
use crate::faults::{Fault, Faults};
use crate::scratch::lock;

#[derive(Debug)]
pub struct FakeMail {
    ip: IpAddr,
    mailboxes: Mutex<HashMap<String, Arc<Mailbox>>>,
    faults: Faults,
    stop: CancellationToken,
    _stop: DropGuard,
}

/// Name of the receiving server in `Authentication-Results`.
const SERVER: &str = "mx.x.example";

#[derive(Debug)]
struct Mailbox {
    address: String,
    secret: String,
    /// Beginning of the header in which the server writes its findings; `None` if it writes none.
    server: Mutex<Option<String>>,
    /// UID, and flag that was set.
    flags: Mutex<Vec<(usize, String)>>,
    /// Mails of the inbox; the UID of the first is 1.
    inbox: watch::Sender<Vec<String>>,
    sent: Mutex<Vec<(Instant, String)>>,
    /// IMAP connections that wait for mails at this moment, and all.
    connections: Mutex<(usize, usize)>,
    /// Whether somebody has waited for mails: what comes now is taken.
    is_watched: Mutex<bool>,
    cuts: Mutex<CancellationToken>,
    faults: Faults,
}

impl FakeMail {
    #[must_use]
    pub fn new(ip: IpAddr) -> Self {
        let stop = CancellationToken::new();
        let (mailboxes, faults) = (Mutex::default(), Faults::default());
        Self { ip, mailboxes, faults, stop: stop.clone(), _stop: stop.drop_guard() }
    }

    /// What goes wrong when a mail is sent. A status below 500 is a refusal for good.
    #[must_use]
    pub fn faults(&self) -> &Faults {
        &self.faults
    }

    /// Makes a mailbox that everybody may write to.
    pub async fn account(&self, name: &str) -> anyhow::Result<AccountSettings> {
        let address = format!("{name}@x.example");
        let mailbox = Arc::new(Mailbox {
            address: address.clone(),
            server: Mutex::new(Some(SERVER.to_owned())),
            flags: Mutex::default(),
            secret: secret_of(name),
            inbox: watch::Sender::default(),
            sent: Mutex::default(),
            connections: Mutex::default(),
            is_watched: Mutex::default(),
            cuts: Mutex::default(),
            faults: self.faults.clone(),
        });
        let (reading, sending) = (Arc::clone(&mailbox), Arc::clone(&mailbox));
        let imap = accept(self.ip, self.stop.clone(), move |stream| {
            let mailbox = Arc::clone(&reading);
            lock(&mailbox.connections).1 += 1;
            async move { mailbox.imap(&mut BufReader::new(stream)).await.unwrap_or_default() }
        });
        let smtp = accept(self.ip, self.stop.clone(), move |stream| {
            let mailbox = Arc::clone(&sending);
            async move { mailbox.smtp(&mut BufReader::new(stream)).await.unwrap_or_default() }
        });
        let host = self.ip.to_string();
        let server = |port| json!({"host": host, "port": port, "security": "none"});
        let settings = json!({"address": address, "allow": ["*"],
            "imap": server(imap.await?), "smtp": server(smtp.await?), "server_saves_sent": true});
        lock(&self.mailboxes).insert(name.to_owned(), mailbox);
        Ok(AccountSettings { settings, secrets: json!({"password": secret_of(name)}) })
    }

    /// Whether what is written to the mailbox now will be read.
    #[must_use]
    pub fn is_heard(&self, account: &str) -> bool {
        self.mailbox(account).is_some_and(|mailbox| *lock(&mailbox.is_watched))
    }

    /// Somebody writes; the mail stays in the mailbox.
    pub fn push(&self, account: &str, written: &Written<'_>) {
        let Written { person, id, text } = written;
        let mail =
            format!("From: <person-{person}@y.example>\nMessage-ID: <{id}@y.example>\n\n{text}\n");
        self.push_verified(account, "y.example", &mail);
    }

    /// Changes the name under which the server writes its findings; `None` if it writes none.
    pub fn set_server(&self, account: &str, name: Option<&str>) {
        if let Some(mailbox) = self.mailbox(account) {
            *lock(&mailbox.server) = name.map(str::to_owned);
        }
    }

    /// Puts a mail into the mailbox whose sender's domain the server has verified.
    pub fn push_verified(&self, account: &str, domain: &str, mail: &str) {
        if let Some(mailbox) = self.mailbox(account) {
            mailbox.receive(domain, &mail.replace('\n', "\r\n"));
        }
    }

    /// Flags that were set, with the UIDs of their mails.
    #[must_use]
    pub fn flags(&self, account: &str) -> Vec<(usize, String)> {
        self.mailbox(account).map(|mailbox| lock(&mailbox.flags).clone()).unwrap_or_default()
    }

    /// Number of mails in the mailbox.
    #[must_use]
    pub fn mails(&self, account: &str) -> usize {
        self.mailbox(account).map_or(0, |mailbox| mailbox.inbox.borrow().len())
    }

    /// Puts a mail with lines that end in `\n` into the mailbox, as it is.
    pub fn push_mail(&self, account: &str, mail: &str) {
        if let Some(mailbox) = self.mailbox(account) {
            mailbox.inbox.send_modify(|mails| mails.push(mail.replace('\n', "\r\n")));
        }
    }

    /// Mails that were sent from the mailbox, oldest first.
    #[must_use]
    pub fn sent(&self, account: &str) -> Vec<String> {
        let mailbox = self.mailbox(account);
        let sent = mailbox.map(|mailbox| lock(&mailbox.sent).clone()).unwrap_or_default();
        sent.into_iter().map(|(_, mail)| mail).collect()
    }

    /// IMAP connections of a mailbox that wait at this moment, and all since the beginning.
    #[must_use]
    pub fn connections(&self, account: &str) -> (usize, usize) {
        self.mailbox(account).map(|mailbox| *lock(&mailbox.connections)).unwrap_or_default()
    }

    /// Ends the IMAP connections of a mailbox that wait.
    pub fn cut(&self, account: &str) {
        if let Some(mailbox) = self.mailbox(account) {
            std::mem::take(&mut *lock(&mailbox.cuts)).cancel();
        }
    }

    fn mailbox(&self, account: &str) -> Option<Arc<Mailbox>> {
        lock(&self.mailboxes).get(account).cloned()
    }

    /// Mails that were taken, those of one mailbox after the other.
    #[must_use]
    pub fn posted(&self) -> Vec<Posted> {
        let mailboxes = lock(&self.mailboxes);
        let all = mailboxes.iter().flat_map(|(account, mailbox)| {
            let sent = lock(&mailbox.sent).clone();
            sent.into_iter().filter_map(|(at, mail)| {
                let mail = MessageParser::default().parse(mail.as_bytes())?.into_owned();
                let chat = mail.to()?.first()?.address()?.to_owned();
                let text = mail.body_text(0)?.trim_end().to_owned();
                Some(Posted { at, account: account.clone(), chat, text })
            })
        });
        all.collect()
    }
}

impl Mailbox {
    /// Puts a mail into the mailbox whose sender's domain is verified.
    fn receive(&self, domain: &str, mail: &str) {
        let findings = lock(&self.server).as_ref().map(|server| {
            format!("Authentication-Results: {server}; dmarc=pass header.from={domain}\r\n")
        });
        let findings = findings.unwrap_or_default();
        self.inbox.send_modify(|mails| mails.push(format!("{findings}{mail}")));
    }

    /// Answers one IMAP connection; `None` ends it.
    async fn imap(&self, stream: &mut BufReader<TcpStream>) -> Option<()> {
        say(stream, "* OK ready").await?;
        let mut is_sent_open = false;
        // Mails of the inbox that the client knows of: one that came since is told while it waits.
        let mut told = 0;
        loop {
            let line = read_line(stream).await?;
            let (tag, command) = line.split_once(' ')?;
            let words: Vec<&str> = command.split(' ').collect();
            let mails: Vec<String> = if is_sent_open {
                lock(&self.sent).iter().map(|(_, mail)| mail.clone()).collect()
            } else {
                self.inbox.borrow().clone()
            };
            match words.as_slice() {
                ["LOGIN", _] => {
                    say(stream, "+ go on").await?;
                    read_line(stream).await?;
                    say(stream, "+ go on").await?;
                    if read_line(stream).await? != self.secret {
                        say(stream, &format!("{tag} NO [AUTHENTICATIONFAILED] no")).await?;
                        continue;
                    }
                }
                ["CAPABILITY"] => say(stream, "* CAPABILITY IMAP4rev1 IDLE").await?,
                ["SELECT", folder] => {
                    is_sent_open = folder.contains("Sent");
                    let next = match is_sent_open {
                        true => lock(&self.sent).len() + 1,
                        false => self.inbox.borrow().len() + 1,
                    };
                    say(stream, "* OK [UIDVALIDITY 7] ok").await?;
                    say(stream, &format!("* OK [UIDNEXT {next}] ok")).await?;
                }
                ["UID", "SEARCH", "HEADER", _, id] => {
                    let is_there = mails.iter().any(|mail| mail.contains(id.trim_matches('"')));
                    say(stream, if is_there { "* SEARCH 1" } else { "* SEARCH" }).await?;
                }
                ["UID", "SEARCH", "SUBJECT", word] => {
                    let matching = (1..).zip(&mails).filter(|(_, mail)| mail.contains(word));
                    let uids: Vec<String> =
                        matching.map(|(uid, _): (usize, _)| uid.to_string()).collect();
                    say(stream, format!("* SEARCH {}", uids.join(" ")).trim_end()).await?;
                }
                ["UID", "STORE", uid, "+FLAGS.SILENT", flag] => {
                    let flag = flag.trim_matches(['(', ')']).to_owned();
                    lock(&self.flags).push((uid.parse().ok()?, flag));
                }
                ["UID", "SEARCH", ..] => {
                    told = mails.len();
                    let uids: Vec<String> = (1..=told).map(|uid| uid.to_string()).collect();
                    say(stream, format!("* SEARCH {}", uids.join(" ")).trim_end()).await?;
                }
                ["UID", "FETCH", uid, what] => {
                    let mail = mails.get(uid.parse::<usize>().ok()?.checked_sub(1)?)?;
                    let size = mail.len();
                    let answer = match *what {
                        "(RFC822.SIZE)" => format!("* {uid} FETCH (UID {uid} RFC822.SIZE {size})"),
                        _ => format!("* {uid} FETCH (UID {uid} BODY[] {{{size}}}\r\n{mail})"),
                    };
                    say(stream, &answer).await?;
                }
                ["LIST", ..] => say(stream, r#"* LIST (\Sent) "/" Sent"#).await?,
                ["IDLE"] => {
                    say(stream, "+ idling").await?;
                    self.idle(stream, told).await?;
                }
                _ => {}
            }
            say(stream, &format!("{tag} OK done")).await?;
        }
    }

    async fn idle(&self, stream: &mut BufReader<TcpStream>, known: usize) -> Option<()> {
        *lock(&self.is_watched) = true;
        let _waiting = Waiting::begin(self);
        let cut = lock(&self.cuts).clone();
        let mut inbox = self.inbox.subscribe();
        let count = tokio::select! {
            () = cut.cancelled() => return None,
            mails = inbox.wait_for(|mails| mails.len() > known) => mails.ok()?.len(),
            line = read_line(stream) => return line.map(drop),
        };
        say(stream, &format!("* {count} EXISTS")).await?;
        read_line(stream).await.map(drop)
    }

    /// Answers one SMTP connection; `None` ends it.
    async fn smtp(&self, stream: &mut BufReader<TcpStream>) -> Option<()> {
        say(stream, "220 ready").await?;
        let mut is_own = false;
        loop {
            let line = read_line(stream).await?;
            if let Some(recipient) = line.strip_prefix("RCPT TO:") {
                is_own = recipient.contains(&self.address);
            }
            let answer = match line.split(' ').next()? {
                "EHLO" => "250-x\r\n250 AUTH PLAIN",
                "AUTH" => "235 ok",
                "DATA" => {
                    say(stream, "354 go on").await?;
                    let mail = read_mail(stream).await?;
                    if is_own {
                        self.receive("x.example", &mail);
                        say(stream, "250 taken").await?;
                        continue;
                    }
                    let fault = self.faults.take();
                    if let Some(Fault::Status(..500)) = fault {
                        "550 no such person"
                    } else if let Some(Fault::Status(_) | Fault::RateLimited { .. }) = fault {
                        "451 later"
                    } else if fault == Some(Fault::CutBefore) {
                        return None;
                    } else {
                        lock(&self.sent).push((Instant::now(), mail));
                        (fault != Some(Fault::CutAfter)).then_some("250 taken")?
                    }
                }
                "QUIT" => return say(stream, "221 bye").await,
                _ => "250 ok",
            };
            say(stream, answer).await?;
        }
    }
}

/// A connection that waits, until it is dropped.
struct Waiting<'m>(&'m Mailbox);

impl<'m> Waiting<'m> {
    fn begin(mailbox: &'m Mailbox) -> Self {
        lock(&mailbox.connections).0 += 1;
        Self(mailbox)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        lock(&self.0.connections).0 -= 1;
    }
}

async fn read_mail(stream: &mut BufReader<TcpStream>) -> Option<String> {
    let mut mail = String::new();
    loop {
        let line = read_line(stream).await?;
        if line == "." {
            return Some(mail);
        }
        mail.push_str(line.strip_prefix('.').unwrap_or(&line));
        mail.push_str("\r\n");
    }
}

async fn read_line(stream: &mut BufReader<TcpStream>) -> Option<String> {
    let mut line = String::new();
    let read = stream.read_line(&mut line).await.ok()?;
    (read > 0).then(|| line.trim_end_matches(['\r', '\n']).to_owned())
}

async fn say(stream: &mut BufReader<TcpStream>, line: &str) -> Option<()> {
    stream.write_all(format!("{line}\r\n").as_bytes()).await.ok()?;
    stream.flush().await.ok()
}
