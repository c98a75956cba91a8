//! Verified caller of a request, and its scopes.

use std::{fmt, str::FromStr};

use holdfast_types::{AgentName, KeyId, PersonId, TenantId, TenantRole};
use tonic::{Request, Status};
use uuid::Uuid;

/// Verified caller; [`MeshAuthLayer`](crate::MeshAuthLayer) adds it to every request it accepts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Caller {
    /// Tenant that the caller acts for.
    pub tenant: TenantId,
    pub principal: Principal,
    /// Person whose call it is: the principal, or whose the key is. `None` for a key that is nobody's,
    /// a service or a node.
    pub person: Option<PersonId>,
    /// The only agent that a key talks to; `None`: all agents.
    pub agent: Option<AgentName>,
    /// Through what a person makes the call, where the records name it.
    pub via: Option<Via>,
    /// For people empty, or scopes that limit what their role permits.
    pub scopes: Scopes,
    /// Name of the key, the person, the service or the node.
    pub name: String,
}

/// Holder of the credential of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Principal {
    Key(KeyId),
    Person {
        id: PersonId,
        role: TenantRole,
    },
    /// A service of the mesh.
    Service,
    Node,
}

/// Through what a person makes a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Via {
    /// A session of the web console.
    Session(Uuid),
    /// A paired device.
    Device {
        id: String,
        /// Id of the key or the person that approved it.
        approver: String,
    },
}

impl fmt::Display for Via {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Session(id) => write!(f, "console/{}", id.simple()),
            Self::Device { id, approver } => write!(f, "device/{id}/{approver}"),
        }
    }
}

impl Caller {
    /// Session of the web console in which the call is made.
    #[must_use]
    pub fn session(&self) -> Option<Uuid> {
        match self.via {
            Some(Via::Session(session)) => Some(session),
            Some(Via::Device { .. }) | None => None,
        }
    }

    /// Identity in records: the id of the person, or of a key that is nobody's, or the name of a service
    /// or a node.
    #[must_use]
    pub fn id(&self) -> String {
        if let Some(person) = self.person {
            return person.to_string();
        }
        match self.principal {
            Principal::Key(key) => key.to_string(),
            Principal::Person { id, .. } => id.to_string(),
            Principal::Service | Principal::Node => self.name.clone(),
        }
    }

    /// Checks that the caller has a scope.
    ///
    /// # Errors
    ///
    /// `PERMISSION_DENIED`, with the missing scope.
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

/// Splits a request into its caller and its message, and records `tenant.id` in the current span.
///
/// # Errors
///
/// `UNAUTHENTICATED` if the request passed no authentication layer. That is a defect in how the
/// server was built, and refusing is the only safe reaction.
pub fn caller<T>(request: Request<T>) -> Result<(Caller, T), Status> {
    let (_, mut extensions, message) = request.into_parts();
    let caller = extensions
        .remove::<Caller>()
        .ok_or_else(|| Status::unauthenticated("the caller is not known"))?;
    tracing::Span::current().record("tenant.id", tracing::field::display(caller.tenant));
    Ok((caller, message))
}

/// One permission of a caller. No scope implies another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Scope {
    Chat,
    /// Read the tenant's settings and conversations.
    Read,
    /// Decide whether a tool call that waits for an approval is made.
    Approve,
    /// Run the tenant's installation: change agents, channels, schedules and files.
    Admin,
    /// Create and change tenants, as an operator.
    Platform,
    /// Act as a service of the mesh. No key may have it.
    Service,
    /// Be one of a tenant's nodes, and nothing else. No key may have it.
    Node,
    /// Read the tenant's events, without what was said.
    Events,
    /// Own the tenant's agents: change keys, people, policies, providers and budgets, and reach
    /// every conversation.
    Owner,
    /// Begin conversations of its own and nothing else: for a key that is published.
    Guest,
}

impl Scope {
    pub const ALL: [Self; 10] = [
        Self::Chat,
        Self::Read,
        Self::Approve,
        Self::Admin,
        Self::Platform,
        Self::Service,
        Self::Node,
        Self::Events,
        Self::Owner,
        Self::Guest,
    ];

    /// Textual form, as stored with a key.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Chat => "chat",
            Self::Read => "read",
            Self::Approve => "approve",
            Self::Admin => "admin",
            Self::Platform => "platform",
            Self::Service => "service",
            Self::Node => "node",
            Self::Events => "events",
            Self::Owner => "owner",
            Self::Guest => "guest",
        }
    }

    const fn bit(self) -> u16 {
        1 << self as u8
    }
}

/// Error for a word that names no scope.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{0}` is no scope: there are `guest`, `chat`, `read`, `events`, `approve`, `admin`, `owner`, \
     `platform`"
)]
pub struct InvalidScope(String);

impl FromStr for Scope {
    type Err = InvalidScope;

    fn from_str(word: &str) -> Result<Self, InvalidScope> {
        let found = Self::ALL.into_iter().find(|scope| scope.as_str() == word);
        found.ok_or_else(|| InvalidScope(word.chars().take(40).collect()))
    }
}

#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Scopes(u16);

impl Scopes {
    pub const EMPTY: Self = Self(0);

    #[must_use]
    pub const fn has(self, scope: Scope) -> bool {
        self.0 & scope.bit() != 0
    }

    /// Returns the set with one scope added.
    #[must_use]
    pub const fn with(self, scope: Scope) -> Self {
        Self(self.0 | scope.bit())
    }

    /// Scopes of the set, in the order of [`Scope::ALL`].
    pub fn iter(self) -> impl Iterator<Item = Scope> {
        Scope::ALL.into_iter().filter(move |scope| self.has(*scope))
    }
}

impl FromIterator<Scope> for Scopes {
    fn from_iter<I: IntoIterator<Item = Scope>>(scopes: I) -> Self {
        scopes.into_iter().fold(Self::EMPTY, Self::with)
    }
}

/// Parses scopes separated by commas or spaces.
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
        assert_eq!("".parse(), Ok(Scopes::EMPTY));
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
            principal: Principal::Service,
            person: None,
            agent: None,
            via: None,
            scopes: Scopes::EMPTY.with(Scope::Read),
            name: "test".into(),
        };

        assert!(caller.require(Scope::Read).is_ok());
        assert!(caller.require(Scope::Chat).unwrap_err().message().contains("`chat`"));
    }
}
