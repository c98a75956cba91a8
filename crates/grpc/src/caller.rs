//! Who is calling, and what they may.

use std::{fmt, str::FromStr};

use holdfast_types::{KeyId, TenantId};
use tonic::{Request, Status};

/// The verified caller; [`AuthLayer`](crate::AuthLayer) puts it in every request it lets through.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Caller {
    /// The tenant in whose name the call is made.
    pub tenant: TenantId,
    /// The API key it was made with, if it was one.
    pub key: Option<KeyId>,
    /// What the caller may.
    pub scopes: Scopes,
    /// What the caller is called, in the audit log: a key's name, a person's, a service's.
    pub name: String,
}

impl Caller {
    /// Goes on only if the caller has a scope.
    ///
    /// # Errors
    ///
    /// If it has not.
    pub fn require(&self, scope: Scope) -> Result<(), Status> {
        if self.scopes.has(scope) {
            return Ok(());
        }
        let (has, scope) = (self.scopes, scope.as_str());
        Err(Status::permission_denied(format!(
            "this needs the scope `{scope}`, and the key has `{has}`: ask for a key that has it"
        )))
    }
}

/// Splits a request into its caller and its message, and names the tenant in the current span.
///
/// # Errors
///
/// If no authentication layer has seen the request. That is a defect in how the
/// server was put together, and refusing is the only safe answer to it.
pub fn caller<T>(request: Request<T>) -> Result<(Caller, T), Status> {
    let (_, mut extensions, message) = request.into_parts();
    let caller = extensions
        .remove::<Caller>()
        .ok_or_else(|| Status::unauthenticated("the caller is not known"))?;
    tracing::Span::current().record("tenant.id", tracing::field::display(caller.tenant));
    Ok((caller, message))
}

/// One thing that a caller may.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Scope {
    /// Speak to agents.
    Chat,
    /// Look at what there is.
    Read,
    /// Change agents, keys, channels, and what else belongs to the tenant.
    Admin,
    /// Make and change tenants.
    Platform,
    /// Act as a service of the mesh; no key has it.
    Service,
    /// Be one of a tenant's nodes, and nothing else; no key has it.
    Node,
}

impl Scope {
    /// All of them.
    pub const ALL: [Self; 6] =
        [Self::Chat, Self::Read, Self::Admin, Self::Platform, Self::Service, Self::Node];

    /// The word that stands for it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Chat => "chat",
            Self::Read => "read",
            Self::Admin => "admin",
            Self::Platform => "platform",
            Self::Service => "service",
            Self::Node => "node",
        }
    }

    const fn bit(self) -> u8 {
        1 << self as u8
    }
}

/// A word that is no scope.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is no scope: there are `chat`, `read`, `admin`, `platform`")]
pub struct InvalidScope(String);

impl FromStr for Scope {
    type Err = InvalidScope;

    fn from_str(word: &str) -> Result<Self, InvalidScope> {
        let found = Self::ALL.into_iter().find(|scope| scope.as_str() == word);
        found.ok_or_else(|| InvalidScope(word.chars().take(40).collect()))
    }
}

/// What a caller may: a set. None implies another.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Scopes(u8);

impl Scopes {
    /// Nothing.
    pub const NONE: Self = Self(0);

    /// Whether the set has a scope.
    #[must_use]
    pub const fn has(self, scope: Scope) -> bool {
        self.0 & scope.bit() != 0
    }

    /// The set and one more.
    #[must_use]
    pub const fn with(self, scope: Scope) -> Self {
        Self(self.0 | scope.bit())
    }

    /// Those in the set.
    pub fn iter(self) -> impl Iterator<Item = Scope> {
        Scope::ALL.into_iter().filter(move |scope| self.has(*scope))
    }
}

impl FromIterator<Scope> for Scopes {
    fn from_iter<I: IntoIterator<Item = Scope>>(scopes: I) -> Self {
        scopes.into_iter().fold(Self::NONE, Self::with)
    }
}

/// Words, separated by commas or spaces.
impl FromStr for Scopes {
    type Err = InvalidScope;

    fn from_str(text: &str) -> Result<Self, InvalidScope> {
        let words = text.split([',', ' ']).filter(|word| !word.is_empty());
        words.map(str::parse).collect()
    }
}

impl fmt::Display for Scopes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (n, scope) in self.iter().enumerate() {
            let comma = if n == 0 { "" } else { "," };
            write!(f, "{comma}{}", scope.as_str())?;
        }
        Ok(())
    }
}

impl fmt::Debug for Scopes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Scopes({self})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scopes_read_back_as_they_were_written() {
        let scopes: Scopes = "read, chat".parse().unwrap();

        assert_eq!(scopes.to_string(), "chat,read");
        assert_eq!(scopes.to_string().parse(), Ok(scopes));
        assert!(scopes.has(Scope::Read) && !scopes.has(Scope::Admin));
        assert_eq!("".parse(), Ok(Scopes::NONE));
        assert!("chat,root".parse::<Scopes>().unwrap_err().to_string().starts_with("`root`"));
    }

    #[test]
    fn a_request_that_nobody_has_authenticated_is_refused() {
        assert_eq!(caller(Request::new(())).unwrap_err().code(), tonic::Code::Unauthenticated);
    }

    #[test]
    fn a_missing_scope_is_named() {
        let caller = Caller {
            tenant: TenantId::generate(),
            key: None,
            scopes: Scopes::NONE.with(Scope::Read),
            name: "test".into(),
        };

        assert!(caller.require(Scope::Read).is_ok());
        assert!(caller.require(Scope::Chat).unwrap_err().message().contains("`chat`"));
    }
}
