//! Connected accounts at other services: calendars, mail, notes.
//!
//! | tool | effect | purpose |
//! |---|---|---|
//! | `calendar` | acts | events of a calendar, by CalDAV |
//! | `email` | acts | drafts a mail, and sends it |
//! | `notion` | acts | pages of Notion |
//!
//! Each tool needs a connection that the tenant set up for the agent, and is not offered without
//! one. It may reach the same addresses as `web_fetch`, by the same [guard](crate::web::guard);
//! secrets are sent by TLS only, unless the operator listed the server. Results are marked as
//! untrusted: an invitation, for example, is written by its sender.

mod caldav;
mod calendar;
mod email;
mod event_time;
#[cfg(test)]
mod fake;
mod http;
mod ics;
mod notion;

use std::{fmt, future::Future, sync::Arc};

use holdfast_egress::{Guard, Lookup, SystemResolver};
use holdfast_types::{ConnectionKind, ConnectionSettings};
use secrecy::SecretString;

pub use calendar::Calendar;
pub use email::Email;
pub use notion::Notion;

use crate::{Call, Registry, ToolError, web::Web};

/// Connection, opened for one call.
#[derive(Debug)]
pub struct OpenConnection {
    pub name: String,
    pub to: ConnectionSettings,
    /// Credential for the service; `None` if it needs none.
    pub secret: Option<SecretString>,
}

/// Access of the tools to connections; implemented by agent-runner and by a fake.
pub trait Connections: Send + Sync + 'static {
    /// Names of the connections of a kind that this call may use.
    fn usable(
        &self,
        call: &Call,
        kind: ConnectionKind,
    ) -> impl Future<Output = anyhow::Result<Vec<String>>> + Send;

    /// Opens a connection; `None` if this call may not use it.
    fn open(
        &self,
        call: &Call,
        name: &str,
    ) -> impl Future<Output = anyhow::Result<Option<OpenConnection>>> + Send;
}

/// Opens the named connection, or the only one.
async fn open_connection<C: Connections>(
    connections: &C,
    call: &Call,
    kind: ConnectionKind,
    named: Option<&str>,
) -> Result<OpenConnection, ToolError> {
    let tell = |text: String| Err(ToolError::Tell(text));
    let usable = connections.usable(call, kind).await?;
    let list = || usable.join(", ");
    let name = match (named, usable.as_slice()) {
        (_, []) => {
            return tell(format!(
                "no {} connection is set up for this conversation: its owner can add one",
                kind.as_str()
            ));
        }
        (None, [only]) => only,
        (None, _) => {
            return tell(format!("there are several: give `connection`, one of {}", list()));
        }
        (Some(named), _) => match usable.iter().find(|usable| *usable == named.trim()) {
            Some(name) => name,
            None => return tell(format!("there is no such `connection`; there are: {}", list())),
        },
    };
    match connections.open(call, name).await? {
        Some(opened) => Ok(opened),
        None => tell(format!("the connection `{name}` was just removed")),
    }
}

/// Dependencies that the tools of this module share: the connections, and the address guard.
struct ConnectionContext<C> {
    connections: Arc<C>,
    guard: Guard,
}

impl<C> Clone for ConnectionContext<C> {
    fn clone(&self) -> Self {
        Self { connections: Arc::clone(&self.connections), guard: self.guard.clone() }
    }
}

impl<C> fmt::Debug for ConnectionContext<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Desk").field("guard", &self.guard).finish_non_exhaustive()
    }
}

impl<C> ConnectionContext<C> {
    fn new(connections: Arc<C>, web: &Web, lookup: Arc<dyn Lookup>) -> anyhow::Result<Self> {
        Ok(Self { connections, guard: Guard::new(web.allow.clone(), lookup)? })
    }
}

impl Registry {
    /// Adds the tools that use connections.
    ///
    /// # Errors
    ///
    /// If this machine has no root certificates.
    pub fn with_connections<C: Connections>(
        self,
        connections: Arc<C>,
        web: &Web,
    ) -> anyhow::Result<Self> {
        self.with_connection_context(ConnectionContext::new(
            connections,
            web,
            Arc::new(SystemResolver),
        )?)
    }

    fn with_connection_context<C: Connections>(
        self,
        context: ConnectionContext<C>,
    ) -> anyhow::Result<Self> {
        Ok(self
            .with(Calendar::new(context.clone()))
            .with(Email::new(context.clone()))
            .with(Notion::new(context)))
    }
}
