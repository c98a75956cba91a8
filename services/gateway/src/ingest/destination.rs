//! Agent and session that a request addresses.
//!
//! | `session` | result |
//! |---|---|
//! | empty | the agent's main session, for its owners; for others their own conversation `main` |
//! | `ses_…` | that session |
//! | a session key, in any documented form | that session; created if it does not exist |
//! | anything else | a conversation that the caller has given this name, in their name space |
//!
//! A guest may name none: each of their requests begins a conversation.

use std::collections::HashMap;

use holdfast_agent::person;
use holdfast_directory::{Directory, RoutedAgent, Routing};
use holdfast_grpc::Caller;
use holdfast_llm::ModelCard;
use holdfast_session::Sessions;
use holdfast_types::{
    AgentId, AgentName, MAIN_CONVERSATION, MessageId, NameSpace, PersonId, SINGLE_REQUEST_PREFIX,
    SessionId, SessionKey, TenantId, is_reserved_name, linked_person,
};
use uuid::Uuid;

use super::{Ingest, PROGRAMS, clean};
use crate::{
    Error,
    permissions::rights::{self, ConversationRight, NamedSession},
};

#[derive(Debug, Clone)]
pub struct Destination {
    pub agent: RoutedAgent,
    pub key: SessionKey,
}

impl Ingest {
    /// Returns the agent with this name or id; without a name that of the caller's key, or the default
    /// agent.
    ///
    /// # Errors
    ///
    /// [`Error::NoAgent`], or [`Error::AgentOfKey`] if the caller's key is for another agent.
    pub async fn agent(&self, caller: &Caller, name: &str) -> Result<RoutedAgent, Error> {
        let routing = self.directory.routing().get(caller.tenant).await?;
        let found = find_agent(&routing, agent_in_call(caller, name))?;
        rights::check_agent(caller, Some(&found.name))?;
        Ok(found.clone())
    }

    /// Returns the agents that a caller may talk to.
    pub async fn agents(&self, caller: &Caller) -> Result<Vec<RoutedAgent>, Error> {
        let routing = self.directory.routing().get(caller.tenant).await?;
        let is_open = |agent: &&RoutedAgent| rights::check_agent(caller, Some(&agent.name)).is_ok();
        Ok(routing.agents().iter().filter(is_open).cloned().collect())
    }

    /// What is known about the models of a tenant's agents.
    pub async fn model_cards(
        &self,
        tenant: TenantId,
    ) -> Result<HashMap<AgentId, ModelCard>, Error> {
        Ok(self.directory.models().of_agents(tenant).await?)
    }

    /// Session key for a name that a caller gives to a conversation or a user of theirs.
    ///
    /// # Errors
    ///
    /// As [`named_session_key`].
    pub async fn named_key(
        &self,
        caller: &Caller,
        agent: &RoutedAgent,
        name: &str,
    ) -> Result<SessionKey, Error> {
        let routing = self.directory.routing().get(caller.tenant).await?;
        named_session_key(&routing, &agent.name, rights::name_space(caller), name)
    }

    /// Finds the agent and the session that a request names, either of which may be empty, and checks
    /// the caller's right to it.
    ///
    /// # Errors
    ///
    /// If there is no such agent or session, the session belongs to another agent, or the caller has
    /// no right to it.
    pub async fn destination(
        &self,
        caller: &Caller,
        NamedSession { agent, session }: NamedSession<'_>,
        right: ConversationRight,
    ) -> Result<Destination, Error> {
        if session.starts_with("ses_") {
            return self.destination_of_session(caller, agent, session.parse()?, right).await;
        }
        let routing = self.directory.routing().get(caller.tenant).await?;
        let place = named_destination(&routing, caller, agent, session)?;
        rights::check(caller, &place.key, right)?;
        Ok(place)
    }

    /// Finds the agent and the session key for a session id, and checks the caller's right to it.
    ///
    /// # Errors
    ///
    /// As [`destination`](Self::destination).
    pub async fn destination_of_session(
        &self,
        caller: &Caller,
        agent: &str,
        session: SessionId,
        right: ConversationRight,
    ) -> Result<Destination, Error> {
        let view = self.sessions.views().session(caller.tenant, session).await?;
        let key = view.key.parse()?;
        rights::check(caller, &key, right)?;
        let routing = self.directory.routing().get(caller.tenant).await?;
        let found = routing.agent_or_default(view.agent);
        check_same_agent(&routing, found, agent)?;
        Ok(Destination { agent: found.clone(), key })
    }

    /// Checks the caller's right to the conversation of a message.
    ///
    /// # Errors
    ///
    /// If there is no such message, or the caller has no right to its conversation.
    pub async fn check_message(
        &self,
        caller: &Caller,
        message: MessageId,
        right: ConversationRight,
    ) -> Result<(), Error> {
        let session = self.message_status(caller.tenant, message).await?.session;
        self.check_session(caller, session, right).await
    }

    /// Checks the caller's right to a conversation.
    ///
    /// # Errors
    ///
    /// If there is no such session, or the caller has no right to it.
    pub async fn check_session(
        &self,
        caller: &Caller,
        session: SessionId,
        right: ConversationRight,
    ) -> Result<(), Error> {
        rights::check_session(&self.sessions, caller, session, right).await
    }

    /// Returns the id of an existing session to which the caller has the right.
    ///
    /// # Errors
    ///
    /// If there is no such session, or the caller has no right to it.
    pub async fn existing_session(
        &self,
        caller: &Caller,
        named: NamedSession<'_>,
        right: ConversationRight,
    ) -> Result<SessionId, Error> {
        find_session((&self.directory, &self.sessions), caller, named, right).await
    }
}

/// Finds an existing session, and checks the caller's right to it.
///
/// # Errors
///
/// If there is no such session, or the caller has no right to it.
pub async fn find_session(
    (directory, sessions): (&Directory, &Sessions),
    caller: &Caller,
    named: NamedSession<'_>,
    right: ConversationRight,
) -> Result<SessionId, Error> {
    if named.session.starts_with("ses_") {
        let id = named.session.parse()?;
        rights::check_session(sessions, caller, id, right).await?;
        return Ok(id);
    }
    let routing = directory.routing().get(caller.tenant).await?;
    let key = named_key(&routing, caller, named)?;
    // Before the session is looked up: nobody learns of conversations that are not theirs.
    rights::check_root(sessions, caller, &key, right).await?;
    let found = sessions.views().find(caller.tenant, &key).await?;
    let missing = || holdfast_session::Error::NotFound {
        what: "session",
        name: key.as_str().chars().take(80).collect(),
    };
    Ok(found.ok_or_else(missing)?)
}

/// Agent and session key for the name or key of a session, which need not exist. Does not check the
/// caller's right to it.
///
/// # Errors
///
/// If there is no such agent, the key is another agent's, or the name is reserved.
pub fn named_destination(
    routing: &Routing,
    caller: &Caller,
    agent: &str,
    session: &str,
) -> Result<Destination, Error> {
    let space = rights::name_space(caller);
    let (named_agent, agent) = (agent, agent_in_call(caller, agent));
    let key = match parse_session_name(session, default_agent(routing, caller)?)? {
        SessionName::Main => {
            let agent = find_agent(routing, agent)?.clone();
            let key = match rights::reaches_all(caller, ConversationRight::Write) {
                true => SessionKey::main(&agent.name),
                false if rights::is_guest(caller) => single_request_key(routing, &agent, caller)?,
                false => named_session_key(routing, &agent.name, space, MAIN_CONVERSATION)?,
            };
            return Ok(Destination { agent, key });
        }
        SessionName::CallerName => {
            let agent = find_agent(routing, agent)?.clone();
            let key = named_session_key(routing, &agent.name, space, session)?;
            return Ok(Destination { agent, key });
        }
        SessionName::Key(key) => key,
    };
    let of = key.agent().map_or(agent, |name| name.as_str());
    let found = find_agent(routing, of)?;
    check_same_agent(routing, found, named_agent)?;
    Ok(Destination { agent: found.clone(), key })
}

/// Key of a session that a request names. The agent of a key may be deleted: its sessions stay.
///
/// # Errors
///
/// As [`named_destination`].
pub fn named_key(
    routing: &Routing,
    caller: &Caller,
    NamedSession { agent, session }: NamedSession<'_>,
) -> Result<SessionKey, Error> {
    match parse_session_name(session, default_agent(routing, caller)?)? {
        SessionName::Key(key) if agent.is_empty() => Ok(key),
        SessionName::Main | SessionName::Key(_) | SessionName::CallerName => {
            Ok(named_destination(routing, caller, agent, session)?.key)
        }
    }
}

/// Session key for a name given by a caller, in a name space of theirs. A user of programs who is a
/// person of the tenant has that person's conversations with programs.
///
/// # Errors
///
/// If the name is reserved, empty or too long.
pub fn named_session_key(
    routing: &Routing,
    agent: &AgentName,
    space: NameSpace,
    name: &str,
) -> Result<SessionKey, Error> {
    let name = clean(name);
    if is_reserved_name(&name) {
        return Err(Error::ReservedName(name.chars().take(80).collect()));
    }
    let person = match space {
        NameSpace::Shared => {
            person_of_user(routing, name.split_once('/').map_or(&*name, |(user, _)| user))
        }
        NameSpace::Person(_) | NameSpace::ProgramUser(_) | NameSpace::Key(_) => None,
    };
    let space = person.map_or(space, NameSpace::ProgramUser);
    Ok(SessionKey::api(agent, &space.qualify(&name))?)
}

/// The person who a user of the tenant's programs is, if an owner has said so.
pub fn person_of_user(routing: &Routing, user: &str) -> Option<PersonId> {
    routing.canonical(PROGRAMS, "", user).and_then(linked_person).and_then(person::id_of)
}

/// Key of a new session for one request of the caller.
///
/// # Errors
///
/// If the agent's name leaves no room.
fn single_request_key(
    routing: &Routing,
    agent: &RoutedAgent,
    caller: &Caller,
) -> Result<SessionKey, Error> {
    // Random, since whoever knows the name may go on in the conversation.
    let name = format!("{SINGLE_REQUEST_PREFIX}{}", Uuid::now_v7().simple());
    named_session_key(routing, &agent.name, rights::name_space(caller), &name)
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

/// Agent that a call names; without one, that of the caller's key.
pub fn agent_in_call<'a>(caller: &'a Caller, named: &'a str) -> &'a str {
    match (&caller.agent, named) {
        (Some(of_key), "") => of_key.as_str(),
        (Some(_) | None, named) => named,
    }
}

/// Name of the agent of session keys that name none.
fn default_agent<'r>(routing: &'r Routing, caller: &Caller) -> Result<&'r AgentName, Error> {
    Ok(&find_agent(routing, agent_in_call(caller, ""))?.name)
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
