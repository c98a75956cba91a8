//! The signature of webhooks, in and out.
//!
//! `x-holdfast-signature: v1=<hex of HMAC-SHA-256(secret, timestamp "." body)>`,
//! where the timestamp is that of `x-holdfast-timestamp`, in Unix seconds. It
//! says who wrote the body and when. The body is not parsed before it is known.

use std::{
    fmt::Write as _,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use hmac::{Hmac, KeyInit as _, Mac as _};
use secrecy::{ExposeSecret as _, SecretString};
use sha2::Sha256;

/// The header with the moment.
pub const TIMESTAMP: &str = "x-holdfast-timestamp";

/// The header with the signature.
pub const SIGNATURE: &str = "x-holdfast-signature";

/// The scheme of a signature, in front of it.
const SCHEME: &str = "v1=";

/// Now, in Unix seconds.
#[must_use]
pub fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}

/// The signature of a body at a moment.
#[must_use]
pub fn sign(secret: &SecretString, timestamp: u64, body: &[u8]) -> String {
    let mut signature = SCHEME.to_owned();
    if let Some(mac) = mac(secret, &timestamp.to_string(), body) {
        for byte in mac.finalize().into_bytes() {
            // Writing to a `String` cannot fail.
            let _ = write!(signature, "{byte:02x}");
        }
    }
    signature
}

/// Whether a body was signed with the secret at a moment within `tolerance` of `now`.
///
/// Several signatures may be given, separated by commas, while a secret is changed.
#[must_use]
pub fn verify(
    secret: &SecretString,
    (timestamp, signatures): (&str, &str),
    body: &[u8],
    (now, tolerance): (u64, Duration),
) -> bool {
    // As text it is signed, so as text it must have one form only.
    let is_plain = timestamp.len() <= 12 && timestamp.bytes().all(|b| b.is_ascii_digit());
    let Some(moment) = timestamp.parse::<u64>().ok().filter(|_| is_plain) else { return false };
    if moment.abs_diff(now) > tolerance.as_secs() {
        return false;
    }
    let verifies = |signature: &str| {
        let bytes = signature.trim().strip_prefix(SCHEME).and_then(unhex);
        let mac = mac(secret, timestamp, body);
        // In constant time.
        bytes.zip(mac).is_some_and(|(bytes, mac)| mac.verify_slice(&bytes).is_ok())
    };
    signatures.split(',').take(4).any(verifies)
}

fn mac(secret: &SecretString, timestamp: &str, body: &[u8]) -> Option<Hmac<Sha256>> {
    let mac = Hmac::<Sha256>::new_from_slice(secret.expose_secret().as_bytes()).ok()?;
    Some(mac.chain_update(timestamp).chain_update(".").chain_update(body))
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

    fn verifies(timestamp: &str, signature: &str, body: &[u8]) -> bool {
        verify(&secret(), (timestamp, signature), body, (NOW, TOLERANCE))
    }

    #[test]
    fn a_signature_is_the_documented_one() {
        // printf '1800000000.{}' | openssl dgst -sha256 -hmac 0123456789abcdef
        assert_eq!(
            sign(&secret(), NOW, b"{}"),
            "v1=1313ae9c874eb1a0868ad0b65f841c4243c23fdcfad69a3ada227726fad9960e"
        );
    }

    #[test]
    fn what_was_signed_is_believed_within_the_tolerance() {
        for moment in [NOW, NOW - 300, NOW + 300] {
            let signature = sign(&secret(), moment, b"body");
            assert!(verifies(&moment.to_string(), &signature, b"body"), "{moment}");
        }
        for moment in [NOW - 301, NOW + 301] {
            let signature = sign(&secret(), moment, b"body");
            assert!(!verifies(&moment.to_string(), &signature, b"body"), "{moment}");
        }
    }

    #[test]
    fn what_was_changed_or_signed_by_others_is_not() {
        let (moment, good) = (NOW.to_string(), sign(&secret(), NOW, b"body"));
        let other = sign(&"another secret !".into(), NOW, b"body");

        assert!(!verifies(&moment, &good, b"Body"));
        assert!(!verifies(&(NOW + 1).to_string(), &good, b"body"));
        assert!(!verifies(&moment, &other, b"body"));
        assert!(!verifies(&format!("+{moment}"), &good, b"body"));
        for signature in ["", "v1=", "v1=zz", &good[3..], &good.replace("v1", "v2"), "v1=é"] {
            assert!(!verifies(&moment, signature, b"body"), "{signature}");
        }
        assert!(!verifies("", &good, b"body") && !verifies("now", &good, b"body"));
    }

    #[test]
    fn one_right_signature_of_several_is_enough() {
        let (moment, good) = (NOW.to_string(), sign(&secret(), NOW, b"body"));

        assert!(verifies(&moment, &format!("v1={}, {good}", "0".repeat(64)), b"body"));
    }
}
