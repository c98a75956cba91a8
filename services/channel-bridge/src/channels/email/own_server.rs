//! Names under which the account's own server writes `Authentication-Results`: from the settings,
//! else learned from a test mail.
//!
//! Nothing in the settings tells the names: Gmail's IMAP server is `imap.gmail.com`, and its name in
//! the header is `mx.google.com`. So the bridge sends a mail to the account itself, with a token
//! that nobody else knows, and reads which headers the server has put above those that it was sent
//! with. One of these the bridge writes itself, so a server that writes none is noticed.
//!
//! Until the names are known, mails wait in the mailbox.

use std::time::Duration;

use holdfast_directory::channel::MailAuthentication;
use mail_parser::MessageParser;
use serde::{Deserialize, Serialize};
use tokio::time::{Instant, sleep};
use tracing::warn;

use super::{
    Email,
    authentication::{AuthenticationResults, OwnServers, own_headers, vouches_for},
    imap::{Imap, ImapError},
    judge::raw_headers,
    mailbox::ConnectError,
    sender::author_address,
};
use crate::connection::Disconnected;

/// Name under which the names are stored.
const STATE: &str = "own_server";

/// Time within which the test mail must arrive.
const ARRIVAL_TIMEOUT: Duration = Duration::from_secs(120);

/// Interval between looks for the test mail.
const LOOK_INTERVAL: Duration = Duration::from_secs(2);

/// Time after a failed test before the next one. A check of the account begins one at once.
const TEST_INTERVAL: Duration = Duration::from_secs(3600);

/// Server's name in the header that the test mail is sent with.
const TEST_SERVER: &str = "holdfast-test.invalid";

/// Maximum size of the test mail as it arrives, in bytes.
const MAX_TEST_MAIL_BYTES: usize = 256 * 1024;

/// Names, and the account and server that they were learned for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct LearnedNames {
    address: String,
    imap_host: String,
    names: Vec<Option<String>>,
}

/// A test that failed, and when.
#[derive(Debug, Clone)]
pub(super) struct FailedTest {
    at: Instant,
    reason: String,
}

impl Email {
    /// Returns the names of the account's own server. Learns them if they are neither set nor
    /// stored.
    pub(super) async fn own_servers(&self, imap: &mut Imap) -> Result<OwnServers, Disconnected> {
        let set = self.settings.own_servers();
        if !set.is_empty() || self.settings.authentication == MailAuthentication::Off {
            return Ok(OwnServers(set));
        }
        let stored: Option<LearnedNames> = self.stored(STATE).await?;
        let is_ours = |known: &LearnedNames| {
            known.address == self.settings.address && known.imap_host == self.settings.imap.host
        };
        if let Some(known) = stored.filter(is_ours) {
            return Ok(OwnServers(known.names));
        }
        match self.test(imap).await? {
            Ok(names) => {
                let known = LearnedNames {
                    address: self.settings.address.clone(),
                    imap_host: self.settings.imap.host.clone(),
                    names,
                };
                self.store(STATE, &known).await?;
                Ok(OwnServers(known.names))
            }
            // Senders are then strangers, all of them.
            Err(_) if self.settings.authentication == MailAuthentication::IfPresent => {
                Ok(OwnServers::default())
            }
            Err(reason) => Err(Disconnected::rejected(format!(
                "mails wait unread, since the bridge cannot tell whether their senders are forged: \
                 {reason}. Set `authserv` to the name at the beginning of the header \
                 `Authentication-Results` in a mail that this mailbox received, and check the \
                 account again"
            ))),
        }
    }

    /// Sends a test mail, unless one has failed shortly before, and returns the names or why they
    /// are not known.
    async fn test(
        &self,
        imap: &mut Imap,
    ) -> Result<Result<Vec<Option<String>>, String>, Disconnected> {
        if let Some(failed) = self.failed_test.lock().await.as_ref()
            && failed.at.elapsed() < TEST_INTERVAL
        {
            return Ok(Err(failed.reason.clone()));
        }
        let address = &self.settings.address;
        self.account.report_waiting(format!("waits for the test mail that it sent to {address}"));
        let names = self.learn_names(imap).await?;
        if let Err(reason) = &names {
            warn!(account.id = %self.account.id, "a test mail did not show how its server checks senders; the account's status says why");
            let failed = FailedTest { at: Instant::now(), reason: reason.clone() };
            *self.failed_test.lock().await = Some(failed);
        }
        Ok(names)
    }

    async fn learn_names(
        &self,
        imap: &mut Imap,
    ) -> Result<Result<Vec<Option<String>>, String>, Disconnected> {
        let token = format!("{:032x}", rand::random::<u128>());
        let address = &self.settings.address;
        let mail = self.test_mail(&token, &format!("{TEST_SERVER}; none"));
        let sent = match mail {
            Ok(mail) => self.hand_over(&mail).await,
            Err(reason) => return Ok(Err(reason)),
        };
        match sent {
            Ok(()) => {}
            Err(ConnectError::Unreachable(reason)) => return Err(Disconnected::lost(reason)),
            Err(ConnectError::Rejected(reason)) => {
                return Ok(Err(format!("a test mail to {address} was not sent: {reason}")));
            }
        }
        let Some(mail) = self.wait_for_mail(imap, &token).await? else {
            let folder = &self.settings.mailbox;
            let seconds = ARRIVAL_TIMEOUT.as_secs();
            return Ok(Err(format!(
                "a test mail to {address} did not arrive in `{folder}` within {seconds} s"
            )));
        };
        Ok(names_in(&mail, address))
    }

    /// Waits for the mail with the token in its subject, and marks it as seen.
    async fn wait_for_mail(
        &self,
        imap: &mut Imap,
        token: &str,
    ) -> Result<Option<Vec<u8>>, Disconnected> {
        let lost = |error: ImapError| Disconnected::lost(format!("IMAP: {error}"));
        let until = Instant::now() + ARRIVAL_TIMEOUT;
        while Instant::now() < until {
            let uids = imap.search(&format!("SUBJECT {token}")).await.map_err(lost)?;
            if let Some(uid) = uids.last() {
                let fetched = imap.fetch(*uid, MAX_TEST_MAIL_BYTES).await.map_err(lost)?;
                // A test mail that stays unread harms nobody.
                match imap.mark_seen(*uid).await {
                    Ok(()) | Err(ImapError::Refused(_)) => {}
                    Err(error) => return Err(lost(error)),
                }
                return Ok(fetched.map(|fetched| fetched.content));
            }
            sleep(LOOK_INTERVAL).await;
            imap.command("NOOP").await.map_err(lost)?;
        }
        Ok(None)
    }
}

/// Returns the names in the headers that the server has put above those of the test mail, or why
/// they cannot be told.
fn names_in(mail: &[u8], address: &str) -> Result<Vec<Option<String>>, String> {
    let unreadable = || "the test mail cannot be read as it arrived".to_owned();
    let message = MessageParser::default().parse(mail).ok_or_else(unreadable)?;
    let headers = raw_headers(&message);
    let from = headers.iter().find(|(name, _)| name.eq_ignore_ascii_case("from"));
    if from.and_then(|(_, value)| author_address(value)).as_deref() != Some(address) {
        return Err("the test mail arrived with another sender".to_owned());
    }
    let headers = headers.iter().map(|(name, value)| (*name, &**value));
    let own = own_headers(headers, |server, before| {
        server.as_deref() != Some(TEST_SERVER) && before.iter().all(|known| known.server != *server)
    });
    if own.is_empty() {
        return Err(format!(
            "the server wrote no `Authentication-Results` into a test mail to {address}"
        ));
    }
    let domain = address.rsplit_once('@').map_or("", |(_, domain)| domain);
    if !vouches_for(&own, domain) {
        return Err(format!(
            "the server's `Authentication-Results` in a test mail to {address} has no pass for \
             {domain}"
        ));
    }
    Ok(own.into_iter().map(|header: AuthenticationResults| header.server).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    const PASS: &str =
        "Authentication-Results: mx.google.com; spf=pass smtp.mailfrom=agent@x.example";
    const OWN_TEST: &str = "Authentication-Results: holdfast-test.invalid; none";

    fn names(headers: &[&str]) -> Result<Vec<Option<String>>, String> {
        let mail = format!("{}\r\nSubject: t\r\n\r\nhi\r\n", headers.join("\r\n"));
        names_in(mail.as_bytes(), "agent@x.example")
    }

    #[test]
    fn the_names_above_the_headers_of_the_mail_are_the_servers() {
        let from = "From: Agent <agent@x.example>";
        let some = |name: &str| Some(name.to_owned());

        assert_eq!(
            names(&["Received: by x", PASS, OWN_TEST, from]),
            Ok(vec![some("mx.google.com")])
        );
        let of_microsoft = "Authentication-Results: spf=pass smtp.mailfrom=x.example; dkim=none";
        assert_eq!(names(&[of_microsoft, OWN_TEST, from]), Ok(vec![None]));
        let dmarc = "Authentication-Results: dmarc.icloud.com; dmarc=pass header.from=x.example";
        let spf = "Authentication-Results: spf.icloud.com; spf=pass smtp.mailfrom=x.example";
        assert_eq!(
            names(&[dmarc, "X-Y: z", spf, OWN_TEST, from]),
            Ok(vec![some("dmarc.icloud.com"), some("spf.icloud.com")])
        );
        assert_eq!(names(&[PASS, "Received: by y", dmarc, from]), Ok(vec![some("mx.google.com")]));
        for (headers, reason) in [
            (vec![OWN_TEST, from], "the server wrote no"),
            (vec![from], "the server wrote no"),
            (vec![OWN_TEST, PASS, from], "the server wrote no"),
            (
                vec!["Authentication-Results: mx; spf=pass smtp.mailfrom=evil.net", from],
                "the server's",
            ),
            (vec!["Authentication-Results: mx; none", from], "the server's"),
            (vec![PASS, "From: eve@evil.net"], "the test mail arrived with another"),
        ] {
            let refused = names(&headers).unwrap_err();
            assert!(refused.starts_with(reason), "{refused}");
        }
    }
}
