//! Signatures of requests that cost something or reveal what only their sender may read.
//!
//! A request has the header `Holdfast-Signature`: `1.<time>.<nonce>.<HMAC-SHA-256>`, with the time in
//! milliseconds since 1970, and nonce and HMAC in base64url. The HMAC is over these, the subject with
//! the installation's prefix, the address of replies and the payload. A recorded request therefore
//! serves for no other receiver, and nobody else gets its answer. Each process accepts a request
//! once, within [`MAX_AGE`].
//!
//! The key is one that gateways and runners can read and no other service can. A person with the
//! login of another service, or of an operator, to NATS can ask nothing.
//!
//! ## What can go wrong
//!
//! What a process accepted is forgotten when it ends, and others of its queue group never saw it.
//! Within [`MAX_AGE`] a recorded request can be repeated there, with its answer to the first sender.

use std::{
    fmt,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use async_nats::Message;
use base64::{Engine as _, prelude::BASE64_URL_SAFE_NO_PAD};
use hmac::{Hmac, KeyInit as _, Mac as _};
use holdfast_kit::{Nonce, RefusedMessage, SeenMessages};
use sha2::Sha256;
use tokio::{sync::SetOnce, time::timeout};
use tracing::{debug, warn};

use crate::Error;

/// Header with the signature.
pub(crate) const SIGNATURE_HEADER: &str = "Holdfast-Signature";

/// Form of the header's value.
const VERSION: &str = "1";

/// Time in which a request is accepted, before and after it was signed: clocks may differ by that.
const MAX_AGE: Duration = Duration::from_secs(30);

/// Interval at which refused requests are logged as a warning.
const WARNING_INTERVAL: Duration = Duration::from_secs(60);

type Key = Hmac<Sha256>;

/// The parts of a request that its signature covers.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SignedParts<'a> {
    /// With the installation's prefix.
    pub subject: &'a str,
    /// Address of replies.
    pub reply: &'a str,
    pub payload: &'a [u8],
}

/// Reason why a request is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum RefusedRequest {
    #[error("it is not signed: update the service that sent it")]
    Unsigned,
    /// Signed with another key, for another receiver, or changed.
    #[error(
        "its signature is wrong: have gateways and runners the same database and key-encryption key?"
    )]
    Forged,
    #[error(
        "it was signed {} s {}, and {} s are accepted: set the clocks of both machines",
        skew_ms / 1_000,
        if *is_ahead { "ahead of this machine's clock" } else { "ago" },
        MAX_AGE.as_secs()
    )]
    Expired { skew_ms: u64, is_ahead: bool },
    #[error("it was received before")]
    Repeated,
    /// Too many requests are remembered to accept another one.
    #[error("too many requests arrived within {} s", MAX_AGE.as_secs())]
    TooMany,
}

impl RefusedRequest {
    /// Label of the metric.
    const fn label(self) -> &'static str {
        match self {
            Self::Unsigned => "unsigned",
            Self::Forged => "forged",
            Self::Expired { .. } => "expired",
            Self::Repeated => "repeated",
            Self::TooMany => "too_many",
        }
    }
}

/// Keys of requests: the one that signs, and during a rotation another one that is accepted.
pub struct RequestKeys(Vec<Key>);

impl RequestKeys {
    /// The first one signs.
    pub fn new(keys: impl IntoIterator<Item = [u8; 32]>) -> Self {
        let keys = keys.into_iter().map(|key| {
            // HMAC's block size is larger than the key.
            let mut block = [0; 64];
            block[..32].copy_from_slice(&key);
            Key::new(&block.into())
        });
        Self(keys.collect())
    }

    /// Returns the value of the header; `None` without a key.
    pub(crate) fn sign(&self, parts: SignedParts<'_>) -> Option<String> {
        self.sign_at(parts, now_ms())
    }

    fn sign_at(&self, parts: SignedParts<'_>, now_ms: u64) -> Option<String> {
        let nonce = BASE64_URL_SAFE_NO_PAD.encode(rand::random::<Nonce>());
        let claim = format!("{VERSION}.{now_ms}.{nonce}");
        let mac = mac(self.0.first()?, &claim, parts).finalize().into_bytes();
        Some(format!("{claim}.{}", BASE64_URL_SAFE_NO_PAD.encode(mac)))
    }

    /// Returns the time and the nonce of a header that was signed for these parts.
    fn verify(&self, header: &str, parts: SignedParts<'_>) -> Option<(u64, Nonce)> {
        let (claim, signature) = header.rsplit_once('.')?;
        let signature = BASE64_URL_SAFE_NO_PAD.decode(signature).ok()?;
        // The comparison takes constant time.
        let is_signed =
            self.0.iter().any(|key| mac(key, claim, parts).verify_slice(&signature).is_ok());
        if !is_signed {
            return None;
        }
        let (version, rest) = claim.split_once('.')?;
        let (issued, nonce) = rest.split_once('.')?;
        let nonce = BASE64_URL_SAFE_NO_PAD.decode(nonce).ok()?;
        (version == VERSION).then_some((issued.parse().ok()?, nonce.try_into().ok()?))
    }
}

impl fmt::Debug for RequestKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("RequestKeys")
    }
}

/// HMAC over a claim and a request. Neither a claim nor a subject contains a line break.
fn mac(key: &Key, claim: &str, parts: SignedParts<'_>) -> Key {
    let SignedParts { subject, reply, payload } = parts;
    key.clone()
        .chain_update(claim)
        .chain_update("\n")
        .chain_update(subject)
        .chain_update("\n")
        .chain_update(reply)
        .chain_update("\n")
        .chain_update(payload)
}

/// Keys of this process, and the requests that it accepted.
#[derive(Default)]
pub(crate) struct Signatures {
    keys: SetOnce<RequestKeys>,
    seen: Mutex<SeenMessages>,
    /// Time of the last warning about a refused request, in milliseconds since 1970.
    warned_at_ms: AtomicU64,
}

impl Signatures {
    /// Sets the keys, unless they are set.
    pub(crate) fn set_keys(&self, keys: RequestKeys) {
        // Keys that are set stay: both are those of the installation.
        drop(self.keys.set(keys));
    }

    /// Returns the keys once they are known.
    pub(crate) async fn keys(&self) -> &RequestKeys {
        self.keys.wait().await
    }

    /// Returns the keys if they are known before the time limit.
    ///
    /// # Errors
    ///
    /// [`Error::NoRequestKeys`] if they are not.
    pub(crate) async fn keys_within(&self, limit: Duration) -> Result<&RequestKeys, Error> {
        timeout(limit, self.keys()).await.map_err(|_| Error::NoRequestKeys)
    }

    /// Whether a request is signed and new. Counts and logs those that are not.
    pub(crate) fn accept(&self, keys: &RequestKeys, message: &Message) -> bool {
        let Some(reply) = &message.reply else { return false };
        let headers = message.headers.as_ref();
        let header = headers.and_then(|headers| headers.get(SIGNATURE_HEADER));
        let subject = message.subject.as_str();
        let parts = SignedParts { subject, reply: reply.as_str(), payload: &message.payload };
        let now = now_ms();
        let checked = self.check(keys, header.map(|header| header.as_str()), parts, now);
        if let Err(refused) = checked {
            self.log_refused(subject, refused, now);
        }
        checked.is_ok()
    }

    fn check(
        &self,
        keys: &RequestKeys,
        header: Option<&str>,
        parts: SignedParts<'_>,
        now: u64,
    ) -> Result<(), RefusedRequest> {
        use RefusedRequest::{Expired, Forged, Repeated, TooMany, Unsigned};

        let header = header.ok_or(Unsigned)?;
        let (issued, nonce) = keys.verify(header, parts).ok_or(Forged)?;
        let (skew_ms, max_age) = (issued.abs_diff(now), milliseconds(MAX_AGE));
        if skew_ms > max_age {
            return Err(Expired { skew_ms, is_ahead: issued > now });
        }
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        seen.record(issued, nonce, now.saturating_sub(max_age)).map_err(|refused| match refused {
            RefusedMessage::Seen => Repeated,
            RefusedMessage::Full => TooMany,
        })
    }

    fn log_refused(&self, subject: &str, refused: RefusedRequest, now: u64) {
        metrics::counter!("holdfast_bus_refused_total", "reason" => refused.label()).increment(1);
        let last = self.warned_at_ms.load(Ordering::Relaxed);
        let is_due = now.abs_diff(last) >= milliseconds(WARNING_INTERVAL)
            && self
                .warned_at_ms
                .compare_exchange(last, now, Ordering::Relaxed, Ordering::Relaxed)
                .is_ok();
        match is_due {
            true => warn!(subject, reason = %refused, "a request on nats is refused"),
            false => debug!(subject, reason = %refused, "a request on nats is refused"),
        }
    }
}

fn milliseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

fn now_ms() -> u64 {
    milliseconds(SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::{
        RefusedRequest::{Expired, Forged, Repeated, Unsigned},
        *,
    };

    const NOW: u64 = 1_800_000_000_000;
    const REQUEST: SignedParts<'_> =
        SignedParts { subject: "job.1.2", reply: "_INBOX.runner.1", payload: b"write" };

    fn keys(byte: u8) -> RequestKeys {
        RequestKeys::new([[byte; 32]])
    }

    fn check(header: &str, parts: SignedParts<'_>, now: u64) -> Result<(), RefusedRequest> {
        Signatures::default().check(&keys(1), Some(header), parts, now)
    }

    #[test]
    fn a_request_is_accepted_once() {
        let signatures = Signatures::default();
        let first = keys(1).sign_at(REQUEST, NOW).unwrap();
        let second = keys(1).sign_at(REQUEST, NOW).unwrap();
        let check = |header| signatures.check(&keys(1), Some(header), REQUEST, NOW);

        assert_eq!(check(&first), Ok(()));
        assert_eq!(check(&first), Err(Repeated));
        assert_eq!(check(&second), Ok(()));
    }

    #[test]
    fn a_request_without_a_signature_or_with_that_of_another_key_is_refused() {
        let signatures = Signatures::default();
        let theirs = keys(2).sign_at(REQUEST, NOW).unwrap();

        assert_eq!(signatures.check(&keys(1), None, REQUEST, NOW), Err(Unsigned));
        assert_eq!(check(&theirs, REQUEST, NOW), Err(Forged));
        for malformed in ["", ".", "1.2", "1.x.y.z", &theirs[1..]] {
            assert_eq!(check(malformed, REQUEST, NOW), Err(Forged), "{malformed}");
        }
    }

    #[test]
    fn a_signature_serves_for_no_other_receiver_answer_or_content() {
        let header = keys(1).sign_at(REQUEST, NOW).unwrap();
        let changed = header.replacen(&NOW.to_string(), &(NOW + 1).to_string(), 1);

        for parts in [
            SignedParts { subject: "job.1.3", ..REQUEST },
            SignedParts { subject: "ask.model", ..REQUEST },
            SignedParts { reply: "_INBOX.stranger.1", ..REQUEST },
            SignedParts { payload: b"Write", ..REQUEST },
        ] {
            assert_eq!(check(&header, parts, NOW), Err(Forged), "{parts:?}");
        }
        assert_eq!(check(&changed, REQUEST, NOW), Err(Forged));
    }

    #[test]
    fn a_request_expires_and_may_be_ahead_of_the_clock_by_as_much() {
        let header = keys(1).sign_at(REQUEST, NOW).unwrap();
        let age = milliseconds(MAX_AGE);

        for now in [NOW - age, NOW + age] {
            assert_eq!(check(&header, REQUEST, now), Ok(()));
        }
        let skew_ms = age + 1;
        let late = check(&header, REQUEST, NOW + skew_ms);
        let early = check(&header, REQUEST, NOW - skew_ms);
        assert_eq!(late, Err(Expired { skew_ms, is_ahead: false }));
        assert_eq!(early, Err(Expired { skew_ms, is_ahead: true }));
    }

    #[test]
    fn both_keys_of_a_rotation_are_accepted_and_the_first_one_signs() {
        let rotating = RequestKeys::new([[2; 32], [1; 32]]);
        let old = keys(1).sign_at(REQUEST, NOW).unwrap();
        let new = rotating.sign_at(REQUEST, NOW).unwrap();

        assert!(rotating.verify(&old, REQUEST).is_some());
        assert!(keys(2).verify(&new, REQUEST).is_some());
        assert!(keys(1).verify(&new, REQUEST).is_none());
    }
}
