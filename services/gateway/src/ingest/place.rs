//! Agent and session that a request addresses.
//!
//! | `session` | result |
//! |---|---|
//! | empty | the agent's main session |
//! | `ses_…` | that session |
//! | a session key, in any documented form | that session; created if it does not exist |
//! | anything else | a session of the agent that the caller has given this name |

use holdfast_directory::{AgentCard, Routing};
use holdfast_types::{MessageId, SessionId, SessionKey, TenantId};

use super::{Ingest, own_session};
use crate::Error;

#[derive(Debug, Clone)]
pub struct Place {
    pub agent: AgentCard,
    pub key: SessionKey,
}

impl Ingest {
    /// Returns the agent with this name or id; the default agent if `name` is empty.
    ///
    /// # Errors
    ///
    /// [`Error::NoAgent`].
    pub async fn agent(&self, tenant: TenantId, name: &str) -> Result<AgentCard, Error> {
        let routing = self.directory.routing(tenant).await?;
        find(&routing, name).cloned()
    }

    pub async fn agents(&self, tenant: TenantId) -> Result<Vec<AgentCard>, Error> {
        Ok(self.directory.routing(tenant).await?.agents().to_vec())
    }

    /// Finds the agent and the session that a request names; either may be empty.
    ///
    /// # Errors
    ///
    /// If there is no such agent or session, or the session belongs to another agent.
    pub async fn place(
        &self,
        tenant: TenantId,
        agent: &str,
        session: &str,
    ) -> Result<Place, Error> {
        if session.starts_with("ses_") {
            return self.place_of(tenant, agent, session.parse()?).await;
        }
        let routing = self.directory.routing(tenant).await?;
        let key = match meant(session)? {
            Meant::Main => {
                let agent = find(&routing, agent)?.clone();
                let key = SessionKey::main(&agent.name);
                return Ok(Place { agent, key });
            }
            Meant::Own => {
                let agent = find(&routing, agent)?.clone();
                let key = own_session(&agent, session)?;
                return Ok(Place { agent, key });
            }
            Meant::Key(key) => key,
        };
        let of = key.agent().map_or(agent, |name| name.as_str());
        let found = find(&routing, of)?;
        same_agent(&routing, found, agent)?;
        Ok(Place { agent: found.clone(), key })
    }

    /// Finds the agent and the session key for a session id.
    ///
    /// # Errors
    ///
    /// If there is no such session, or it belongs to another agent than the named one.
    pub async fn place_of(
        &self,
        tenant: TenantId,
        agent: &str,
        session: SessionId,
    ) -> Result<Place, Error> {
        let view = self.sessions.session(tenant, session).await?;
        let routing = self.directory.routing(tenant).await?;
        let found = routing.agent_or_default(view.agent);
        same_agent(&routing, found, agent)?;
        Ok(Place { agent: found.clone(), key: view.key.parse()? })
    }

    /// Returns the id of an existing session. A syntactically valid id is not looked up.
    ///
    /// # Errors
    ///
    /// If there is no such session.
    pub async fn existing(
        &self,
        tenant: TenantId,
        agent: &str,
        session: &str,
    ) -> Result<SessionId, Error> {
        if session.starts_with("ses_") {
            return Ok(session.parse()?);
        }
        let place = self.place(tenant, agent, session).await?;
        let found = self.sessions.find(tenant, &place.key).await?;
        let missing = || holdfast_session::Error::NotFound {
            what: "session",
            name: place.key.as_str().chars().take(80).collect(),
        };
        Ok(found.ok_or_else(missing)?)
    }

    /// Session that a message belongs to.
    pub async fn session_of(
        &self,
        tenant: TenantId,
        message: MessageId,
    ) -> Result<SessionId, Error> {
        Ok(self.sessions.answer(tenant, message).await?.session)
    }

    pub async fn is_known(&self, tenant: TenantId, key: &SessionKey) -> Result<bool, Error> {
        Ok(self.sessions.find(tenant, key).await?.is_some())
    }
}

/// Kind of a session's name in a request.
#[derive(Debug, PartialEq, Eq)]
enum Meant {
    Main,
    Key(SessionKey),
    Own,
}

fn meant(session: &str) -> Result<Meant, Error> {
    if session.is_empty() {
        return Ok(Meant::Main);
    }
    match session.parse::<SessionKey>() {
        Ok(key) => Ok(Meant::Key(key)),
        // A name that begins with `agent:` is meant as a key, so its error is reported.
        Err(error) if session.starts_with("agent:") => Err(error.into()),
        Err(_) => Ok(Meant::Own),
    }
}

fn find<'r>(routing: &'r Routing, name: &str) -> Result<&'r AgentCard, Error> {
    if name.is_empty() {
        return Ok(routing.default_agent());
    }
    let missing = || Error::NoAgent(name.chars().take(80).collect());
    routing.agent(name).ok_or_else(missing)
}

/// Refuses a request that names another agent than the session's.
fn same_agent(routing: &Routing, of: &AgentCard, named: &str) -> Result<(), Error> {
    if named.is_empty() || find(routing, named)?.id == of.id {
        return Ok(());
    }
    Err(Error::OtherAgent { of: of.name.to_string(), named: named.to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_is_meant_by_nothing_a_key_or_a_name_of_ones_own() {
        assert_eq!(meant("").unwrap(), Meant::Main);
        assert_eq!(meant("global").unwrap(), Meant::Key("global".parse().unwrap()));
        assert_eq!(
            meant("agent:coach:main").unwrap(),
            Meant::Key("agent:coach:main".parse().unwrap())
        );
        assert_eq!(meant("slack:dm:U1").unwrap(), Meant::Key("slack:dm:U1".parse().unwrap()));
        for own in ["anna", "a:b", "日本", "agent"] {
            assert_eq!(meant(own).unwrap(), Meant::Own, "{own}");
        }
        assert!(matches!(meant("agent:coach"), Err(Error::Key(_))));
    }
}
