//! Tokens of visitors, and identities that the site signed.
//!
//! A token is `<id>.<time>.<signature>`: the bridge gave the id, or the site's server vouched for
//! it. The signature covers the account, so that a token is of no use for another.

use std::time::Duration;

use hmac::{Hmac, KeyInit as _, Mac as _};
use holdfast_proto::gateway::v1::SenderAssurance;
use holdfast_types::AccountId;
use secrecy::{ExposeSecret as _, SecretString};
use sha2::Sha256;

/// Time for which a token is valid.
const TOKEN_LIFETIME: Duration = Duration::from_secs(180 * 24 * 3600);

/// Difference between the time of a site's signature and now. The page asks when it is first opened, a
/// while after the site made it.
const SIGNATURE_LIFETIME: Duration = Duration::from_secs(3600);

/// Maximum length of a user's id, in bytes.
const MAX_USER_BYTES: usize = 128;

/// Prefix of ids that the bridge gives.
const ANONYMOUS: &str = "visitor:";

/// Prefix of ids that the site's server vouches for.
const USER: &str = "user:";

/// Returns the id of a new visitor.
pub fn new_visitor() -> String {
    format!("{ANONYMOUS}{:032x}", rand::random::<u128>())
}

/// A user that the site's server names, with its signature.
#[derive(Debug)]
pub struct Claim<'a> {
    pub user: &'a str,
    /// Time of the signature in seconds since 1970; without one it is valid for ever.
    pub time: Option<&'a str>,
    pub signature: &'a str,
}

/// Returns the id of a user, if the site's server signed it: `hex(HMAC-SHA-256(secret, user))`, or
/// `user`, a line feed and the time.
pub fn identified(secret: &SecretString, claim: &Claim<'_>, now: u64) -> Option<String> {
    let Claim { user, time, signature } = *claim;
    let signed = match time {
        None => user.to_owned(),
        Some(time) => {
            let signed_at: u64 = time.parse().ok()?;
            if signed_at.abs_diff(now) > SIGNATURE_LIFETIME.as_secs() {
                return None;
            }
            format!("{user}\n{time}")
        }
    };
    let is_id = !user.is_empty()
        && user.len() <= MAX_USER_BYTES
        && user.chars().all(|letter| letter.is_ascii_graphic() && letter != '.');
    (is_id && verify(secret, &signed, signature)).then(|| format!("{USER}{user}"))
}

/// Whether a visitor is this user of the site.
pub fn is_user(visitor: &str, user: &str) -> bool {
    visitor.strip_prefix(USER) == Some(user)
}

/// How sure it is that a visitor is who the id says: the site's server vouches for its users.
pub fn assurance(visitor: &str) -> SenderAssurance {
    if visitor.starts_with(USER) { SenderAssurance::Verified } else { SenderAssurance::Anonymous }
}

/// Returns a token for a visitor, given at this time in seconds since 1970.
pub fn token(secret: &SecretString, account: AccountId, visitor: &str, now: u64) -> String {
    let signature = sign(secret, &format!("{account}\n{visitor}\n{now}"));
    format!("{visitor}.{now}.{signature}")
}

/// Returns whose token it is; `None` if it is none of ours or too old.
pub fn visitor(secret: &SecretString, account: AccountId, token: &str, now: u64) -> Option<String> {
    let (visitor, rest) = token.split_once('.')?;
    let (time, signature) = rest.split_once('.')?;
    let given: u64 = time.parse().ok()?;
    let is_fresh = given <= now && now - given <= TOKEN_LIFETIME.as_secs();
    let signed = format!("{account}\n{visitor}\n{given}");
    (is_fresh && verify(secret, &signed, signature)).then(|| visitor.to_owned())
}

fn mac(secret: &SecretString, text: &str) -> Option<Hmac<Sha256>> {
    let mac = Hmac::<Sha256>::new_from_slice(secret.expose_secret().as_bytes()).ok()?;
    Some(mac.chain_update(text))
}

fn sign(secret: &SecretString, text: &str) -> String {
    let digest = mac(secret, text).map(|mac| mac.finalize().into_bytes());
    digest.iter().flatten().map(|byte| format!("{byte:02x}")).collect()
}

fn verify(secret: &SecretString, text: &str, signature: &str) -> bool {
    let digits =
        |at: usize| signature.get(at..at + 2).and_then(|pair| u8::from_str_radix(pair, 16).ok());
    let bytes: Option<Vec<u8>> = (0..64).step_by(2).map(digits).collect();
    let is_whole = signature.len() == 64;
    match (mac(secret, text), bytes) {
        (Some(mac), Some(bytes)) => is_whole && mac.verify_slice(&bytes).is_ok(),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn secret() -> SecretString {
        "0123456789abcdef".into()
    }

    #[test]
    fn a_token_is_the_visitors_own_for_one_account_and_a_while() {
        let (account, other) = (AccountId::generate(), AccountId::generate());
        let given = token(&secret(), account, "visitor:1", 1000);
        let whose = |account, token: &str, now| visitor(&secret(), account, token, now);

        assert_eq!(whose(account, &given, 1000).as_deref(), Some("visitor:1"));
        assert_eq!(whose(other, &given, 1000), None);
        assert_eq!(whose(account, &given, 1001 + TOKEN_LIFETIME.as_secs()), None);
        assert_eq!(whose(account, &given, 999), None);
        assert_eq!(whose(account, &given.replace("visitor:1", "visitor:2"), 1000), None);
        assert_eq!(visitor(&"another-secret-00".into(), account, &given, 1000), None);
        for token in ["", "a", "a.b", "a.1.zz", &format!("{given}0")] {
            assert_eq!(whose(account, token, 1000), None);
        }
    }

    #[test]
    fn a_user_is_who_the_site_says() {
        let of = |user: &str, time, signed: &str, now| {
            let claim = Claim { user, time, signature: &sign(&secret(), signed) };
            identified(&secret(), &claim, now)
        };
        let timed = Some("1000");

        assert_eq!(of("42", None, "42", 9_000_000).as_deref(), Some("user:42"));
        assert_eq!(of("43", None, "42", 1000), None);
        assert_eq!(of("", None, "", 1000), None);
        assert_eq!(of("a.b", None, "a.b", 1000), None);
        assert_eq!(of("42", timed, "42\n1000", 4600).as_deref(), Some("user:42"));
        assert_eq!(of("42", timed, "42\n1000", 4601), None);
        assert_eq!(of("42", Some("4601"), "42\n1000", 4601), None);
        assert_eq!(of("42", timed, "42", 1000), None);
        assert!(is_user("user:42", "42") && !is_user("visitor:42", "42"));
    }
}
