//! Signatures of webhooks, inbound and outbound.
//!
//! `x-holdfast-signature: <version>=<hex of HMAC-SHA-256(secret, signed)>`, where the time is that
//! of `x-holdfast-timestamp`, in Unix seconds:
//!
//! | version | signed | proves |
//! |---|---|---|
//! | `v2` | time, line feed, idempotency key (empty without the header), line feed, body | who wrote it, when, and under which key |
//! | `v1` | time, full stop, body | the same, but for the key |
//!
//! No header holds a line feed, so no bytes can be moved between the parts of `v2`; and since the
//! time consists of digits, a signature of one version is never valid for the other. The body is
//! parsed only after verification.

use std::{
    fmt::Write as _,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use hmac::{Hmac, KeyInit as _, Mac as _};
use secrecy::{ExposeSecret as _, SecretString};
use sha2::Sha256;

pub const TIMESTAMP_HEADER: &str = "x-holdfast-timestamp";

pub const SIGNATURE_HEADER: &str = "x-holdfast-signature";

/// Maximum number of signatures of one request that are checked.
const MAX_SIGNATURES: usize = 4;

/// Version of the signature, which defines what it covers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Version {
    /// Covers the time and the body.
    V1,
    /// Covers the idempotency key, too.
    V2,
}

/// Signed parts of a request.
#[derive(Debug, Clone, Copy)]
pub struct SignedParts<'a> {
    /// Time, as it is written in the header.
    pub timestamp: &'a str,
    /// Idempotency key; empty if there is none.
    pub key: &'a str,
    pub body: &'a [u8],
}

impl Version {
    const ALL: [Self; 2] = [Self::V2, Self::V1];

    const fn prefix(self) -> &'static str {
        match self {
            Self::V1 => "v1=",
            Self::V2 => "v2=",
        }
    }
}

/// Current time, in Unix seconds.
#[must_use]
pub fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}

/// Signs a request with this version.
#[must_use]
pub fn sign(secret: &SecretString, version: Version, signed: SignedParts<'_>) -> String {
    let mut signature = version.prefix().to_owned();
    if let Some(mac) = mac(secret, version, signed) {
        for byte in mac.finalize().into_bytes() {
            // Writing to a `String` cannot fail.
            let _ = write!(signature, "{byte:02x}");
        }
    }
    signature
}

/// Returns the version of the valid signature that covers most, or `None`. A signature is valid if
/// it was made with the secret at a time within `tolerance` of `now`.
///
/// Several signatures may be given, separated by commas, while a secret is changed.
#[must_use]
pub fn verify(
    secret: &SecretString,
    signatures: &str,
    signed: SignedParts<'_>,
    (now, tolerance): (u64, Duration),
) -> Option<Version> {
    if !is_within(signed.timestamp, (now, tolerance)) {
        return None;
    }
    let verifies = |version: &Version| {
        signatures_of(signatures, *version).any(|bytes| {
            let mac = mac(secret, *version, signed);
            // In constant time.
            mac.is_some_and(|mac| mac.verify_slice(&bytes).is_ok())
        })
    };
    Version::ALL.into_iter().find(verifies)
}

/// Whether headers have the form of a signature that was made now. The body must be read to verify
/// it.
#[must_use]
pub fn is_plausible(signatures: &str, timestamp: &str, within: (u64, Duration)) -> bool {
    let has_signature = |version| signatures_of(signatures, version).next().is_some();
    is_within(timestamp, within) && Version::ALL.into_iter().any(has_signature)
}

fn is_within(timestamp: &str, (now, tolerance): (u64, Duration)) -> bool {
    // The timestamp is signed as text, so only one notation per time is accepted.
    let is_plain = timestamp.len() <= 12 && timestamp.bytes().all(|b| b.is_ascii_digit());
    let moment = timestamp.parse::<u64>().ok().filter(|_| is_plain);
    moment.is_some_and(|moment| moment.abs_diff(now) <= tolerance.as_secs())
}

fn signatures_of(signatures: &str, version: Version) -> impl Iterator<Item = Vec<u8>> {
    let signatures = signatures.split(',').take(MAX_SIGNATURES);
    signatures.filter_map(move |it| it.trim().strip_prefix(version.prefix()).and_then(unhex))
}

fn mac(secret: &SecretString, version: Version, signed: SignedParts<'_>) -> Option<Hmac<Sha256>> {
    let mac = Hmac::<Sha256>::new_from_slice(secret.expose_secret().as_bytes()).ok()?;
    let mac = mac.chain_update(signed.timestamp);
    let mac = match version {
        Version::V1 => mac.chain_update("."),
        Version::V2 => mac.chain_update("\n").chain_update(signed.key).chain_update("\n"),
    };
    Some(mac.chain_update(signed.body))
}

fn unhex(text: &str) -> Option<Vec<u8>> {
    if text.len() != 64 || !text.is_ascii() {
        return None;
    }
    (0..64).step_by(2).map(|at| u8::from_str_radix(&text[at..at + 2], 16).ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: u64 = 1_800_000_000;
    const TOLERANCE: Duration = Duration::from_secs(300);

    fn secret() -> SecretString {
        "0123456789abcdef".into()
    }

    fn signed<'a>(timestamp: &'a str, key: &'a str, body: &'a [u8]) -> SignedParts<'a> {
        SignedParts { timestamp, key, body }
    }

    fn verifies(signatures: &str, signed: SignedParts<'_>) -> Option<Version> {
        verify(&secret(), signatures, signed, (NOW, TOLERANCE))
    }

    #[test]
    fn a_signature_is_the_documented_one() {
        let signed = signed("1800000000", "message-1", b"{}");

        // printf '1800000000.{}' | openssl dgst -sha256 -hmac 0123456789abcdef
        assert_eq!(
            sign(&secret(), Version::V1, signed),
            "v1=1313ae9c874eb1a0868ad0b65f841c4243c23fdcfad69a3ada227726fad9960e"
        );
        // printf '1800000000\nmessage-1\n{}' | openssl dgst -sha256 -hmac 0123456789abcdef
        assert_eq!(
            sign(&secret(), Version::V2, signed),
            "v2=f05f1ca70f7920f1ff3408b240f55df4eca03a5529428ede51d7c8b0456b758d"
        );
    }

    #[test]
    fn what_was_signed_is_believed_within_the_tolerance() {
        for version in Version::ALL {
            for (moment, is_believed) in [
                (NOW, true),
                (NOW - 300, true),
                (NOW + 300, true),
                (NOW - 301, false),
                (NOW + 301, false),
            ] {
                let moment = moment.to_string();
                let signed = signed(&moment, "k", b"body");
                let signature = sign(&secret(), version, signed);

                let expected = is_believed.then_some(version);
                assert_eq!(verifies(&signature, signed), expected, "{version:?} {moment}");
            }
        }
    }

    #[test]
    fn what_was_changed_or_signed_by_others_is_not() {
        let (now, later) = (NOW.to_string(), (NOW + 1).to_string());
        let same = signed(&now, "k", b"body");
        for version in Version::ALL {
            let good = sign(&secret(), version, same);
            let other = sign(&"another secret !".into(), version, same);

            assert_eq!(verifies(&good, signed(&now, "k", b"Body")), None);
            assert_eq!(verifies(&good, signed(&later, "k", b"body")), None);
            assert_eq!(verifies(&good, signed(&format!("+{now}"), "k", b"body")), None);
            assert_eq!(verifies(&good, signed("", "k", b"body")), None);
            assert_eq!(verifies(&good, signed("now", "k", b"body")), None);
            let swapped = match version {
                Version::V1 => good.replace("v1", "v2"),
                Version::V2 => good.replace("v2", "v1"),
            };
            for signature in ["", "v1=", "v2=", "v2=zz", &good[3..], &swapped, &other, "v2=é"] {
                assert_eq!(verifies(signature, same), None, "{signature}");
            }
        }
    }

    #[test]
    fn only_the_second_version_covers_the_key() {
        let now = NOW.to_string();
        let (first, second) = (signed(&now, "k1", b"body"), signed(&now, "k2", b"body"));
        let v2 = sign(&secret(), Version::V2, first);

        assert_eq!(verifies(&v2, first), Some(Version::V2));
        assert_eq!(verifies(&v2, second), None);
        assert_eq!(verifies(&v2, signed(&now, "", b"body")), None);
        // Bytes cannot be moved between the key and the body.
        assert_eq!(verifies(&v2, signed(&now, "k", b"1body")), None);
        let v1 = sign(&secret(), Version::V1, first);
        assert_eq!(verifies(&v1, second), Some(Version::V1));
        assert_eq!(verifies(&format!("{v1},{v2}"), first), Some(Version::V2));
    }

    #[test]
    fn one_right_signature_of_several_is_enough() {
        let now = NOW.to_string();
        let signed = signed(&now, "k", b"body");
        let good = sign(&secret(), Version::V2, signed);

        let several = format!("v2={}, {good}", "0".repeat(64));
        assert_eq!(verifies(&several, signed), Some(Version::V2));
    }
}
