//! API keys: who holds one speaks for its tenant.

use std::time::Duration;

use holdfast_types::{KeyId, TenantId};
use jiff::Timestamp;

use crate::Error;

/// What a key may be allowed: to converse, to look, to change, to run the platform.
pub const SCOPES: [&str; 4] = ["chat", "read", "admin", "platform"];

/// The scopes of a tenant's first key.
pub(crate) const FIRST: [&str; 3] = ["chat", "read", "admin"];

const LONGEST_NAME: usize = 100;
/// Ten years: whoever asks for more means never.
const LONGEST_LIFE: Duration = Duration::from_secs(10 * 366 * 24 * 3600);

/// A key as people see it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Key {
    /// Its public half.
    pub id: KeyId,
    /// What it is for, in words.
    pub name: String,
    /// What it may do.
    pub scopes: Vec<String>,
    /// When it was made.
    pub created_at: Timestamp,
    /// When it ends by itself.
    pub expires_at: Option<Timestamp>,
    /// When it was ended.
    pub revoked_at: Option<Timestamp>,
}

/// A key to make.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewKey {
    /// What it is for, in words, 1 to 100 characters.
    pub name: String,
    /// What it may do, of [`SCOPES`].
    pub scopes: Vec<String>,
    /// How long it counts; `None` is until it is revoked.
    pub lifetime: Option<Duration>,
}

/// Who a request comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Authenticated {
    /// The tenant that the key speaks for.
    pub tenant: TenantId,
    /// The key.
    pub key: KeyId,
    /// Its name.
    pub name: String,
    /// What it may do.
    pub scopes: Vec<String>,
    /// Requests a minute that all keys of the tenant may make together.
    pub rate: u32,
}

impl NewKey {
    /// Puts the scopes in order, once each.
    pub(crate) fn check(mut self) -> Result<Self, Error> {
        let length = self.name.chars().count();
        let unfit = self.name.contains(char::is_control);
        if self.name.trim().is_empty() || length > LONGEST_NAME || unfit {
            return Err(Error::Invalid(format!(
                "a key's name has 1 to {LONGEST_NAME} characters, none of them a control \
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
        if self.lifetime.is_some_and(|life| life.is_zero() || life > LONGEST_LIFE) {
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

#[cfg(test)]
mod tests {
    use super::*;

    fn new(name: &str, scopes: &[&str], lifetime: Option<u64>) -> Result<NewKey, Error> {
        let scopes = scopes.iter().map(|&scope| scope.to_owned()).collect();
        NewKey { name: name.into(), scopes, lifetime: lifetime.map(Duration::from_secs) }.check()
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
