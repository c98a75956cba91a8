//! What is kept for people elsewhere: calendars, mail, notes.
//!
//! | tool | effect | what |
//! |---|---|---|
//! | `calendar` | acts | events of a calendar, by CalDAV |
//! | `email` | acts | drafts a mail, and sends it |
//! | `notion` | acts | pages of Notion |
//!
//! Each works by a connection that its tenant set up for the agent, and is not
//! offered without one. It may go where `web_fetch` may and nowhere else, by the
//! same [guard](crate::web::guard); a secret goes by TLS, unless the operator
//! listed the server. What comes back is marked as from outside: an invitation
//! is written by whoever sent it.

mod caldav;
mod calendar;
mod email;
#[cfg(test)]
mod fake;
mod http;
mod ics;
mod notion;
mod when;

use std::{fmt, future::Future, sync::Arc};

use holdfast_types::{Connected, ConnectionKind};
use secrecy::SecretString;

pub use calendar::Calendar;
pub use email::Email;
pub use notion::Notion;

use crate::{
    Call, Registry, ToolError,
    web::{
        Web,
        guard::{Guard, Lookup, System},
    },
};

/// A connection, open for one call.
#[derive(Debug)]
pub struct Opened {
    /// Its name.
    pub name: String,
    /// What it leads to.
    pub to: Connected,
    /// What is presented there.
    pub secret: Option<SecretString>,
}

/// The connections, as a tool sees them; the runner's own, or a fake.
pub trait Connections: Send + Sync + 'static {
    /// The names of those of a kind that this call may use.
    fn usable(
        &self,
        call: &Call,
        kind: ConnectionKind,
    ) -> impl Future<Output = anyhow::Result<Vec<String>>> + Send;

    /// One of them; `None` if this call may not use it.
    fn open(
        &self,
        call: &Call,
        name: &str,
    ) -> impl Future<Output = anyhow::Result<Option<Opened>>> + Send;
}

/// The connection that is meant, or the only one.
async fn opened<C: Connections>(
    connections: &C,
    call: &Call,
    kind: ConnectionKind,
    named: Option<&str>,
) -> Result<Opened, ToolError> {
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

/// The connections and the way out: what each of the tools stands on.
struct Desk<C> {
    connections: Arc<C>,
    guard: Guard,
}

impl<C> Clone for Desk<C> {
    fn clone(&self) -> Self {
        Self { connections: Arc::clone(&self.connections), guard: self.guard.clone() }
    }
}

impl<C> fmt::Debug for Desk<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Desk").field("guard", &self.guard).finish_non_exhaustive()
    }
}

impl<C> Desk<C> {
    fn new(connections: Arc<C>, web: &Web, lookup: Arc<dyn Lookup>) -> anyhow::Result<Self> {
        Ok(Self { connections, guard: Guard::new(web.allow.clone(), lookup)? })
    }
}

impl Registry {
    /// The same, with the tools that work by connections.
    ///
    /// # Errors
    ///
    /// If this machine has no root certificates.
    pub fn with_connections<C: Connections>(
        self,
        connections: Arc<C>,
        web: &Web,
    ) -> anyhow::Result<Self> {
        self.with_desk(Desk::new(connections, web, Arc::new(System))?)
    }

    fn with_desk<C: Connections>(self, desk: Desk<C>) -> anyhow::Result<Self> {
        Ok(self
            .with(Calendar::new(desk.clone()))
            .with(Email::new(desk.clone()))
            .with(Notion::new(desk)))
    }
}
