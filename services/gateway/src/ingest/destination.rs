//! Agent and session that a request addresses.
//!
//! | `session` | result |
//! |---|---|
//! | empty | the agent's main session |
//! | `ses_…` | that session |
//! | a session key, in any documented form | that session; created if it does not exist |
//! | anything else | a session of the agent that the caller has given this name |

use std::collections::HashMap;

use holdfast_directory::{RoutedAgent, Routing};
use holdfast_llm::ModelCard;
use holdfast_types::{AgentId, AgentName, SessionId, SessionKey, TenantId};

use super::{Ingest, named_session_key};
use crate::Error;

#[derive(Debug, Clone)]
pub struct Destination {
    pub agent: RoutedAgent,
    pub key: SessionKey,
}

impl Ingest {
    /// Returns the agent with this name or id; the default agent if `name` is empty.
    ///
    /// # Errors
    ///
    /// [`Error::NoAgent`].
    pub async fn agent(&self, tenant: TenantId, name: &str) -> Result<RoutedAgent, Error> {
        let routing = self.directory.routing().get(tenant).await?;
        find_agent(&routing, name).cloned()
    }

    pub async fn agents(&self, tenant: TenantId) -> Result<Vec<RoutedAgent>, Error> {
        Ok(self.directory.routing().get(tenant).await?.agents().to_vec())
    }

    /// What is known about the models of a tenant's agents.
    pub async fn model_cards(
        &self,
        tenant: TenantId,
    ) -> Result<HashMap<AgentId, ModelCard>, Error> {
        Ok(self.directory.models().of_agents(tenant).await?)
    }

    /// Finds the agent and the session that a request names; either may be empty.
    ///
    /// # Errors
    ///
    /// If there is no such agent or session, or the session belongs to another agent.
    pub async fn destination(
        &self,
        tenant: TenantId,
        agent: &str,
        session: &str,
    ) -> Result<Destination, Error> {
        if session.starts_with("ses_") {
            return self.destination_of_session(tenant, agent, session.parse()?).await;
        }
        let routing = self.directory.routing().get(tenant).await?;
        named_destination(&routing, agent, session)
    }

    /// Finds the agent and the session key for a session id.
    ///
    /// # Errors
    ///
    /// If there is no such session, or it belongs to another agent than the named one.
    pub async fn destination_of_session(
        &self,
        tenant: TenantId,
        agent: &str,
        session: SessionId,
    ) -> Result<Destination, Error> {
        let view = self.sessions.views().session(tenant, session).await?;
        let routing = self.directory.routing().get(tenant).await?;
        let found = routing.agent_or_default(view.agent);
        check_same_agent(&routing, found, agent)?;
        Ok(Destination { agent: found.clone(), key: view.key.parse()? })
    }

    /// Returns the id of an existing session. A syntactically valid id is not looked up.
    ///
    /// # Errors
    ///
    /// If there is no such session.
    pub async fn existing_session(
        &self,
        tenant: TenantId,
        agent: &str,
        session: &str,
    ) -> Result<SessionId, Error> {
        if session.starts_with("ses_") {
            return Ok(session.parse()?);
        }
        let place = self.destination(tenant, agent, session).await?;
        let found = self.sessions.views().find(tenant, &place.key).await?;
        let missing = || holdfast_session::Error::NotFound {
            what: "session",
            name: place.key.as_str().chars().take(80).collect(),
        };
        Ok(found.ok_or_else(missing)?)
    }
}

/// Agent and session key for the name or key of a session, which need not exist.
///
/// # Errors
///
/// If there is no such agent, or the key is another agent's.
pub fn named_destination(
    routing: &Routing,
    agent: &str,
    session: &str,
) -> Result<Destination, Error> {
    let key = match parse_session_name(session, &routing.default_agent().name)? {
        SessionName::Main => {
            let agent = find_agent(routing, agent)?.clone();
            let key = SessionKey::main(&agent.name);
            return Ok(Destination { agent, key });
        }
        SessionName::CallerName => {
            let agent = find_agent(routing, agent)?.clone();
            let key = named_session_key(&agent, session)?;
            return Ok(Destination { agent, key });
        }
        SessionName::Key(key) => key,
    };
    let of = key.agent().map_or(agent, |name| name.as_str());
    let found = find_agent(routing, of)?;
    check_same_agent(routing, found, agent)?;
    Ok(Destination { agent: found.clone(), key })
}

/// Kind of a session's name in a request.
#[derive(Debug, PartialEq, Eq)]
enum SessionName {
    Main,
    Key(SessionKey),
    CallerName,
}

fn parse_session_name(session: &str, default: &AgentName) -> Result<SessionName, Error> {
    if session.is_empty() {
        return Ok(SessionName::Main);
    }
    match SessionKey::parse_with_default(session, default) {
        Ok(key) => Ok(SessionName::Key(key)),
        // A name that begins with `agent:` is meant as a key, so its error is reported.
        Err(error) if session.starts_with("agent:") => Err(error.into()),
        Err(_) => Ok(SessionName::CallerName),
    }
}

fn find_agent<'r>(routing: &'r Routing, name: &str) -> Result<&'r RoutedAgent, Error> {
    if name.is_empty() {
        return Ok(routing.default_agent());
    }
    let missing = || Error::NoAgent(name.chars().take(80).collect());
    routing.agent(name).ok_or_else(missing)
}

/// Refuses a request that names another agent than the session's.
fn check_same_agent(routing: &Routing, of: &RoutedAgent, named: &str) -> Result<(), Error> {
    if named.is_empty() || find_agent(routing, named)?.id == of.id {
        return Ok(());
    }
    Err(Error::OtherAgent { of: of.name.to_string(), named: named.to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_is_meant_by_nothing_a_key_or_a_name_of_ones_own() {
        let name = |session| parse_session_name(session, &AgentName::default());
        assert_eq!(name("").unwrap(), SessionName::Main);
        assert_eq!(name("global").unwrap(), SessionName::Key("global".parse().unwrap()));
        assert_eq!(
            name("agent:coach:main").unwrap(),
            SessionName::Key("agent:coach:main".parse().unwrap())
        );
        assert_eq!(name("slack:dm:U1").unwrap(), SessionName::Key("slack:dm:U1".parse().unwrap()));
        for own in ["anna", "a:b", "日本", "agent"] {
            assert_eq!(name(own).unwrap(), SessionName::CallerName, "{own}");
        }
        assert!(matches!(name("agent:coach"), Err(Error::Key(_))));
    }
}
