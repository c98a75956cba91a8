//! API keys: credentials that authenticate a request as a tenant.

pub mod console;
pub mod device;

use std::time::Duration;

use holdfast_types::{KeyId, PersonId, TenantId, TenantRole};
use jiff::Timestamp;

use crate::Error;

/// Scopes of a key: new conversations alone, conversations, reading, events alone, decisions about
/// tool calls, changes, ownership, operation of the installation.
pub const SCOPES: [&str; 8] =
    ["guest", "chat", "read", "events", APPROVE, "admin", "owner", "platform"];

/// Name of a tenant's first key.
pub(crate) const FIRST_KEY_NAME: &str = "first key";

/// Scopes of a tenant's first key.
pub(crate) const FIRST_KEY_SCOPES: [&str; 5] = ["chat", "read", APPROVE, "admin", "owner"];

/// Scope of a key that decides about tool calls.
const APPROVE: &str = "approve";

const MAX_NAME_CHARS: usize = 100;
/// Ten years; a longer lifetime should be unlimited.
const MAX_LIFETIME: Duration = Duration::from_secs(10 * 366 * 24 * 3600);

/// An API key without its secret.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Key {
    /// Public part of the key.
    pub id: KeyId,
    pub name: String,
    /// Names from [`SCOPES`].
    pub scopes: Vec<String>,
    pub created_at: Timestamp,
    /// Expiry; `None` if the key does not expire.
    pub expires_at: Option<Timestamp>,
    /// Time of revocation; `None` if the key is not revoked.
    pub revoked_at: Option<Timestamp>,
    /// Person whose the key is; `None`: nobody's.
    pub person: Option<PersonId>,
}

impl Key {
    /// Whether the key can be used now, and may decide about tool calls.
    #[must_use]
    pub fn may_approve(&self) -> bool {
        self.revoked_at.is_none()
            && self.expires_at.is_none_or(|at| at > Timestamp::now())
            && self.scopes.iter().any(|scope| scope == APPROVE)
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewKey {
    /// Description of the purpose, 1 to 100 characters.
    pub name: String,
    /// Names from [`SCOPES`].
    pub scopes: Vec<String>,
    /// Time until the expiry; `None` is unlimited.
    pub lifetime: Option<Duration>,
    /// Person whose the key is: it is refused when they are.
    pub person: Option<PersonId>,
}

/// Authenticated caller of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyPrincipal {
    pub tenant: TenantId,
    pub key: KeyId,
    pub name: String,
    /// Names from [`SCOPES`].
    pub scopes: Vec<String>,
    /// Person whose the key is, with their role.
    pub person: Option<(PersonId, TenantRole)>,
    /// Requests per minute that all keys of the tenant share.
    pub rate: u32,
    /// Calls that the tenant may have open at once in one process, if its plan limits them.
    pub concurrent_calls: Option<u32>,
}

impl NewKey {
    /// Validates the key, and sorts and deduplicates its scopes.
    pub(crate) fn check(mut self) -> Result<Self, Error> {
        let length = self.name.chars().count();
        let unfit = self.name.contains(char::is_control);
        if self.name.trim().is_empty() || length > MAX_NAME_CHARS || unfit {
            return Err(Error::Invalid(format!(
                "a key's name has 1 to {MAX_NAME_CHARS} characters, none of them a control \
                 character, and this one has {length}"
            )));
        }
        if let Some(unknown) = self.scopes.iter().find(|scope| !SCOPES.contains(&scope.as_str())) {
            let unknown: String = unknown.chars().take(80).collect();
            return Err(Error::Invalid(format!(
                "`{unknown}` is not a scope: use {}",
                SCOPES.join(", ")
            )));
        }
        if self.scopes.is_empty() {
            return Err(Error::Invalid(format!("a key needs a scope: {}", SCOPES.join(", "))));
        }
        if self.lifetime.is_some_and(|life| life.is_zero() || life > MAX_LIFETIME) {
            return Err(Error::Invalid(
                "a key lives between a second and ten years, or for ever with 0".to_owned(),
            ));
        }
        let given = std::mem::take(&mut self.scopes);
        let known = SCOPES.iter().filter(|scope| given.iter().any(|given| given == *scope));
        self.scopes = known.map(|&scope| scope.to_owned()).collect();
        Ok(self)
    }
}

/// Cached lookup of a key; the secret is not verified yet.
#[derive(Debug, Clone)]
pub(crate) struct CachedKey {
    pub digest: Vec<u8>,
    pub live: bool,
    pub active: bool,
    pub who: KeyPrincipal,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn new(name: &str, scopes: &[&str], lifetime: Option<u64>) -> Result<NewKey, Error> {
        let scopes = scopes.iter().map(|&scope| scope.to_owned()).collect();
        let lifetime = lifetime.map(Duration::from_secs);
        NewKey { name: name.into(), scopes, lifetime, person: None }.check()
    }

    #[test]
    fn scopes_are_kept_once_and_in_order() {
        assert_eq!(new("ci", &["read", "chat", "read"], None).unwrap().scopes, ["chat", "read"]);
    }

    #[test]
    fn what_could_never_work_is_refused() {
        for (name, scopes, life) in [
            ("", &["chat"][..], None),
            (" ", &["chat"], None),
            ("a\0", &["chat"], None),
            (&"x".repeat(101), &["chat"], None),
            ("ci", &[], None),
            ("ci", &["root"], None),
            ("ci", &["chat"], Some(0)),
            ("ci", &["chat"], Some(u64::MAX)),
        ] {
            assert!(matches!(new(name, scopes, life), Err(Error::Invalid(_))), "{name} {scopes:?}");
        }
    }
}
