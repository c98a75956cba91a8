//! Sessions of the web console, and one-time links that begin one.

use std::time::Duration;

use holdfast_types::{KeyId, TenantId};
use jiff::Timestamp;
use secrecy::SecretString;
use uuid::Uuid;

use super::{SCOPES, device::Approver};
use crate::{ApproverRights, Error};

/// Maximum length of the name that a link gives to its session, in characters.
const MAX_NAME_CHARS: usize = 200;

/// How somebody has signed in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SignInMethod {
    /// With an API key.
    Key,
    /// With a one-time link.
    Link,
    /// At an identity provider.
    Oidc,
}

impl SignInMethod {
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Key => "key",
            Self::Link => "link",
            Self::Oidc => "oidc",
        }
    }

    pub(crate) fn parse(word: &str) -> Result<Self, Error> {
        let all = [Self::Key, Self::Link, Self::Oidc];
        let found = all.into_iter().find(|method| method.as_str() == word);
        found.ok_or_else(|| {
            Error::corrupt("sign-in method", anyhow::anyhow!("`{word}` is not known"))
        })
    }
}

/// Time after which sessions end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ConsoleSessionLimits {
    /// Time without a call.
    pub idle: Duration,
    /// Time since the sign-in.
    pub lifetime: Duration,
    /// Time since the sign-in at an identity provider that gave no refresh token, so that it cannot be
    /// asked again.
    pub unchecked: Duration,
}

/// Rights of a session or a link, and the name of its holder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConsoleRights {
    /// Key or person whose rights it has.
    pub holder: Approver,
    /// Names from [`SCOPES`] that limit it; `None` if nothing does.
    pub scopes: Option<Vec<String>>,
    /// Name for people to read.
    pub name: String,
}

impl ConsoleRights {
    /// Validates scopes and name.
    pub(crate) fn check(&self) -> Result<(), Error> {
        for scope in self.scopes.iter().flatten() {
            if !SCOPES.contains(&scope.as_str()) {
                let scope: String = scope.chars().take(80).collect();
                let known = SCOPES.join(", ");
                return Err(Error::Invalid(format!("`{scope}` is not a scope: use {known}")));
            }
        }
        check_name(&self.name)
    }
}

/// Validates the name of a person or a session.
pub(crate) fn check_name(name: &str) -> Result<(), Error> {
    let length = name.chars().count();
    let is_unfit = name.contains(char::is_control) || name.trim().is_empty();
    if is_unfit || length > MAX_NAME_CHARS {
        return Err(Error::Invalid(format!(
            "a name has 1 to {MAX_NAME_CHARS} characters, none of them a control character, and this \
             one has {length}"
        )));
    }
    Ok(())
}

/// From where a one-time link is: what its session inherits.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LinkOrigin {
    /// When the person proved themselves last; `None`: as the link is used.
    pub signed_in_at: Option<Timestamp>,
    /// Latest end of the session; `None` if only its lifetime limits it.
    pub expires_at: Option<Timestamp>,
    /// Key with which a link for a person was made: the session ends with it too.
    pub via_key: Option<KeyId>,
}

/// A session of the console, without its secret.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConsoleSession {
    pub id: Uuid,
    pub rights: ConsoleRights,
    pub method: SignInMethod,
    pub created_at: Timestamp,
    /// Time of the last call, exact to a few minutes.
    pub used_at: Timestamp,
    pub expires_at: Timestamp,
}

/// A new session, with the token that authenticates its calls.
#[derive(Debug)]
pub struct IssuedConsoleSession {
    pub id: Uuid,
    pub token: SecretString,
    pub expires_at: Timestamp,
}

/// A new one-time link.
#[derive(Debug)]
pub struct IssuedConsoleLink {
    pub token: SecretString,
    pub expires_at: Timestamp,
}

/// A session that has authenticated by its token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConsolePrincipal {
    pub tenant: TenantId,
    pub session: Uuid,
    pub name: String,
    /// Scopes that limit it; `None` if nothing does.
    pub scopes: Option<Vec<String>>,
    /// It may do what its holder may do, and of that what its scopes include.
    pub holder: ApproverRights,
    /// When the identity provider of its person was last asked about them; `None` if it cannot be asked.
    pub checked_at: Option<Timestamp>,
    /// Requests per minute that all callers of the tenant share.
    pub rate: u32,
    /// Calls that the tenant may have open at once in one process, if its plan limits them.
    pub concurrent_calls: Option<u32>,
}

/// Cached lookup of a session; the secret is not verified yet.
#[derive(Debug, Clone)]
pub(crate) struct CachedConsoleSession {
    pub digest: Vec<u8>,
    /// Whether its holder may sign in.
    pub live: bool,
    pub active: bool,
    pub used_at: Timestamp,
    pub expires_at: Timestamp,
    pub who: ConsolePrincipal,
}
