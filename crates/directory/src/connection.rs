//! Connections: accounts at other services that a tenant's agents use.

use std::fmt;

use holdfast_types::{AgentId, ConnectionScope, ConnectionSettings};
use jiff::Timestamp;
use secrecy::{ExposeSecret as _, SecretString};

use crate::{Error, tenant::check_name};

const MAX_SECRET_BYTES: usize = 8_000;

/// A connection without its secret.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Connection {
    /// Name, unique in the tenant.
    pub name: String,
    pub to: ConnectionSettings,
    /// Agent that uses the connection; `None` allows all agents.
    pub agent: Option<AgentId>,
    /// Conversations in which the connection may be used.
    pub used_by: ConnectionScope,
    pub has_secret: bool,
    pub updated_at: Timestamp,
}

/// A connection to create, or the new values of one.
#[derive(Clone)]
pub struct NewConnection {
    pub name: String,
    pub to: ConnectionSettings,
    /// Name or id of the agent that uses the connection; `None` allows all agents.
    pub agent: Option<String>,
    /// Conversations in which the connection may be used.
    pub used_by: ConnectionScope,
    /// Password or token; `None` keeps the stored one.
    pub secret: Option<SecretString>,
}

impl fmt::Debug for NewConnection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NewConnection").field("name", &self.name).finish_non_exhaustive()
    }
}

impl NewConnection {
    /// Checks the name and the form of the secret.
    pub(crate) fn check(&self) -> Result<(), Error> {
        check_name("connection", &self.name)?;
        let secret = self.secret.as_ref().map(SecretString::expose_secret).unwrap_or_default();
        if secret.len() > MAX_SECRET_BYTES || secret.contains(char::is_control) {
            return Err(Error::Invalid(format!(
                "a connection's secret has {MAX_SECRET_BYTES} bytes at most, and no line's end in it"
            )));
        }
        Ok(())
    }
}
