//! Accounts at outside services that a tenant's agents use.

use std::fmt;

use holdfast_types::{AgentId, Connected, UsedBy};
use jiff::Timestamp;
use secrecy::{ExposeSecret as _, SecretString};

use crate::{Error, tenant::check_name};

const LONGEST_SECRET: usize = 8_000;

/// A connection as people see it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Connection {
    /// Its name, unique in the tenant.
    pub name: String,
    /// What it leads to.
    pub to: Connected,
    /// The agent that uses it; `None` is every agent.
    pub agent: Option<AgentId>,
    /// In whose conversations it is used.
    pub used_by: UsedBy,
    /// Whether a secret is stored.
    pub has_secret: bool,
    /// When it last changed.
    pub updated_at: Timestamp,
}

/// A connection to set up.
#[derive(Clone)]
pub struct NewConnection {
    /// Its name.
    pub name: String,
    /// What it leads to.
    pub to: Connected,
    /// The agent that uses it, by name or id; `None` is every agent.
    pub agent: Option<String>,
    /// In whose conversations it is used.
    pub used_by: UsedBy,
    /// The password or token; `None` keeps the one that is stored.
    pub secret: Option<SecretString>,
}

impl fmt::Debug for NewConnection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NewConnection").field("name", &self.name).finish_non_exhaustive()
    }
}

impl NewConnection {
    /// Refuses what could never work.
    pub(crate) fn check(&self) -> Result<(), Error> {
        check_name("connection", &self.name)?;
        let secret = self.secret.as_ref().map(SecretString::expose_secret).unwrap_or_default();
        if secret.len() > LONGEST_SECRET || secret.contains(char::is_control) {
            return Err(Error::Invalid(format!(
                "a connection's secret has {LONGEST_SECRET} bytes at most, and no line's end in it"
            )));
        }
        Ok(())
    }
}
