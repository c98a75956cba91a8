//! API keys: credentials that authenticate a request as a tenant.

pub mod console;
pub mod device;

use std::time::Duration;

use holdfast_types::{AgentId, AgentName, KeyId, PersonId, TenantId, TenantRole};
use http::Uri;
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
const MAX_ORIGINS: usize = 20;
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
    /// The only agent that the key talks to.
    pub agent: Option<AgentName>,
    /// Origins of the web pages that use the key; empty: any caller.
    pub origins: Vec<String>,
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
    /// The only agent that the key talks to: it has the scopes `guest` or `chat` only, and ends with
    /// its agent.
    pub agent: Option<AgentId>,
    /// Origins of the web pages that may use the key, as `https://example.com`; empty: any caller.
    pub origins: Vec<String>,
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
    /// The only agent that the key talks to.
    pub agent: Option<AgentName>,
    /// Origins of the web pages that may use the key; empty: any caller.
    pub origins: Vec<String>,
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
        let is_for_talking = |scope: &String| matches!(scope.as_str(), "guest" | "chat");
        if self.agent.is_some() && !self.scopes.iter().all(is_for_talking) {
            return Err(Error::Invalid(
                "a key of one agent has the scopes `guest` or `chat`: other scopes reach all agents"
                    .to_owned(),
            ));
        }
        self.origins = checked_origins(&self.origins)?;
        let given = std::mem::take(&mut self.scopes);
        let known = SCOPES.iter().filter(|scope| given.iter().any(|given| given == *scope));
        self.scopes = known.map(|&scope| scope.to_owned()).collect();
        Ok(self)
    }
}

/// Checks origins, and writes each as browsers do.
fn checked_origins(given: &[String]) -> Result<Vec<String>, Error> {
    if given.len() > MAX_ORIGINS {
        return Err(Error::Invalid(format!("a key has at most {MAX_ORIGINS} origins")));
    }
    let origins = given.iter().map(|origin| checked_origin(origin));
    let mut origins = origins.collect::<Result<Vec<_>, _>>()?;
    origins.sort_unstable();
    origins.dedup();
    Ok(origins)
}

fn checked_origin(given: &str) -> Result<String, Error> {
    let wrong = || {
        let given: String = given.chars().take(80).collect();
        Error::Invalid(format!(
            "`{given}` is not the origin of a page: write it as `https://example.com`, with a port if \
             it is not the usual one, and without a path"
        ))
    };
    let address: Uri = given.trim().parse().map_err(|_| wrong())?;
    let is_bare = address.path() == "/" && address.query().is_none();
    let (Some(scheme), Some(host)) = (address.scheme_str(), address.host()) else {
        return Err(wrong());
    };
    let usual_port = match scheme {
        "http" => 80,
        "https" => 443,
        _ => return Err(wrong()),
    };
    let has_user = address.authority().is_some_and(|authority| authority.as_str().contains('@'));
    if !is_bare || has_user {
        return Err(wrong());
    }
    let host = host.to_ascii_lowercase();
    Ok(match address.port_u16().filter(|port| *port != usual_port) {
        Some(port) => format!("{scheme}://{host}:{port}"),
        None => format!("{scheme}://{host}"),
    })
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
        let (person, agent, origins) = (None, None, Vec::new());
        NewKey { name: name.into(), scopes, lifetime, person, agent, origins }.check()
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

    #[test]
    fn an_origin_is_written_as_browsers_write_it() {
        for (given, origin) in [
            ("https://example.com", Some("https://example.com")),
            (" https://Example.com/ ", Some("https://example.com")),
            ("https://example.com:443", Some("https://example.com")),
            ("http://localhost:8080", Some("http://localhost:8080")),
            ("http://[::1]:8080", Some("http://[::1]:8080")),
            ("example.com", None),
            ("*", None),
            ("", None),
            ("null", None),
            ("https://example.com/chat", None),
            ("https://example.com/?x", None),
            ("https://anna@example.com", None),
            ("ftp://example.com", None),
        ] {
            assert_eq!(checked_origin(given).ok().as_deref(), origin, "{given}");
        }
        let many = vec!["https://example.com".to_owned(); MAX_ORIGINS + 1];
        assert!(checked_origins(&many).is_err());
        assert_eq!(checked_origins(&many[1..]).unwrap(), ["https://example.com"]);
    }

    #[test]
    fn a_key_of_one_agent_only_talks() {
        let agent = Some(AgentId::generate());
        let of_agent = |scopes: &[&str]| {
            let new = new("site", scopes, None).unwrap();
            NewKey { agent, ..new }.check()
        };
        assert!(of_agent(&["guest"]).is_ok());
        assert!(of_agent(&["chat"]).is_ok());
        for scope in ["read", "events", "approve", "admin", "owner", "platform"] {
            assert!(matches!(of_agent(&["chat", scope]), Err(Error::Invalid(_))), "{scope}");
        }
    }
}
