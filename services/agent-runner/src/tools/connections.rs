//! Connections of a turn: which may be used, and access to their secrets.
//!
//! A connection is used only in the conversations it is meant for, whatever the model was told: its
//! owner's calendar is not available when a stranger speaks with the same agent. The usable
//! connections are determined at each step; a tool's request is checked against them.

use holdfast_agent::{bootstrap::Audience, person};
use holdfast_directory::{Connection, Directory};
use holdfast_tools::{AllowedTools, Call, Connections, OpenConnection};
use holdfast_types::{ConnectionKind, ConnectionScope, Fault as _, Kind, SessionKey, SessionKind};

use crate::tools::tool_context::ToolContext;

/// Access to connections for the sessions that run here.
#[derive(Debug)]
pub(crate) struct SessionConnections {
    directory: Directory,
}

impl SessionConnections {
    pub(crate) const fn new(directory: Directory) -> Self {
        Self { directory }
    }

    /// Usable connections of the call's turn.
    fn usable_in_call(call: &Call) -> anyhow::Result<&[(String, ConnectionKind)]> {
        Ok(&ToolContext::of(call)?.connections)
    }
}

impl Connections for SessionConnections {
    async fn usable(&self, call: &Call, kind: ConnectionKind) -> anyhow::Result<Vec<String>> {
        let usable = Self::usable_in_call(call)?.iter().filter(|(_, of)| *of == kind);
        Ok(usable.map(|(name, _)| name.clone()).collect())
    }

    async fn open(&self, call: &Call, name: &str) -> anyhow::Result<Option<OpenConnection>> {
        if !Self::usable_in_call(call)?.iter().any(|(usable, _)| usable == name) {
            return Ok(None);
        }
        match self.directory.connections().open(call.tenant, name).await {
            // The connection may have been given to another agent since the step began.
            Ok((open, _)) if open.agent.is_some_and(|agent| agent != call.agent) => Ok(None),
            Ok((open, secret)) => Ok(Some(OpenConnection { name: open.name, to: open.to, secret })),
            Err(error) if error.kind() == Kind::NotFound => Ok(None),
            Err(error) => Err(error.into()),
        }
    }
}

/// Connections of an agent that are meant for this conversation.
pub(crate) fn usable_connections(
    connections: &[Connection],
    kind: SessionKind,
    audience: Audience,
    key: &str,
) -> Vec<(String, ConnectionKind)> {
    let usable =
        connections.iter().filter(|connection| is_for(&connection.used_by, kind, audience, key));
    usable.map(|connection| (connection.name.clone(), connection.to.kind())).collect()
}

/// Whether a connection is meant for this conversation.
pub(crate) fn is_for(
    used_by: &ConnectionScope,
    kind: SessionKind,
    audience: Audience,
    key: &str,
) -> bool {
    match used_by {
        ConnectionScope::Everyone => true,
        ConnectionScope::Owner => audience.has_owner_rights(),
        ConnectionScope::Person(person) => is_session_of(kind, key, person),
    }
}

/// Removes tools that need a connection if there is no usable one.
pub(crate) fn without_unconnected_tools(
    allowed: AllowedTools,
    usable: &[(String, ConnectionKind)],
) -> AllowedTools {
    let kinds: Vec<ConnectionKind> = usable.iter().map(|(_, kind)| *kind).collect();
    AllowedTools::matching(move |tool| {
        let is_there = ConnectionKind::of_tool(tool).is_none_or(|kind| kinds.contains(&kind));
        is_there && allowed.allows(tool)
    })
}

/// Whether the session belongs to this person: its key ends with their identity.
fn is_session_of(kind: SessionKind, key: &str, person: &str) -> bool {
    let Ok(key) = key.parse::<SessionKey>() else { return false };
    let is_of_person = || person::named_by(&key).as_deref() == Some(person);
    match kind {
        SessionKind::Dm => is_of_person(),
        SessionKind::Api if person::id_of(person).is_some() => is_of_person(),
        // A branch `anna/trip` is another conversation, and the connection is not for it.
        SessionKind::Api => key.api_name().is_some_and(|user| person == format!("api:{user}")),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use holdfast_types::{ConnectionSettings, Notion};
    use jiff::Timestamp;

    use super::*;

    fn connection(name: &str, used_by: &str) -> Connection {
        Connection {
            name: name.to_owned(),
            to: ConnectionSettings::Notion(Notion::default()),
            agent: None,
            used_by: used_by.parse().unwrap(),
            has_secret: true,
            updated_at: Timestamp::UNIX_EPOCH,
        }
    }

    #[test]
    fn a_connection_is_there_for_those_whom_it_is_for() {
        let all = ["owner", "everyone", "telegram:42", "api:anna", "any:a:b", "shop:one:1"];
        let all = all.map(|used_by| connection(used_by.split(':').next().unwrap(), used_by));
        let names = |kind, audience, key: &str| {
            let usable = usable_connections(&all, kind, audience, key).into_iter();
            usable.map(|(name, _)| name).collect::<Vec<String>>().join(" ")
        };
        let (owner, others) = (Audience::Owner, Audience::Others);

        for (kind, audience, key, expected) in [
            (SessionKind::Main, owner, "agent:main:main", "owner everyone"),
            (SessionKind::Main, others, "agent:main:main", "everyone"),
            (SessionKind::Cron, Audience::Agent, "agent:main:cron:a:b", "owner everyone"),
            (SessionKind::Cron, others, "agent:main:cron:a:b", "everyone"),
            (SessionKind::Dm, others, "agent:main:dm:telegram:42", "everyone telegram"),
            (SessionKind::Dm, owner, "agent:main:dm:telegram:7", "owner everyone"),
            (SessionKind::Dm, others, "agent:main:dm:telegram:bot:42", "everyone telegram"),
            (SessionKind::Dm, others, "agent:main:dm:shop:one:1", "everyone shop"),
            (SessionKind::Dm, others, "agent:main:dm:shop:two:1", "everyone"),
            (SessionKind::Dm, others, "agent:main:dm:telegram:421", "everyone"),
            (SessionKind::Dm, others, "agent:main:dm:discord:42", "everyone"),
            (SessionKind::Dm, others, "agent:main:dm:any:a%3Ab", "everyone any"),
            (SessionKind::Group, others, "agent:main:group:telegram:42", "everyone"),
            (SessionKind::Group, others, "agent:main:group:telegram:7:user:42", "everyone"),
            (SessionKind::Api, others, "agent:main:api:anna", "everyone api"),
            (SessionKind::Api, others, "agent:main:api:ben", "everyone"),
            (SessionKind::Subagent, others, "agent:main:subagent:x", "everyone"),
        ] {
            assert_eq!(names(kind, audience, key), expected, "{key}");
        }
    }

    #[test]
    fn a_tool_without_a_connection_is_not_there() {
        let usable = vec![("notes".to_owned(), ConnectionKind::Notion)];

        let allowed =
            without_unconnected_tools(AllowedTools::only(["notion", "calendar", "read"]), &usable);

        let tools = ["notion", "calendar", "email", "read", "write"];
        let there: Vec<&str> = tools.into_iter().filter(|tool| allowed.allows(tool)).collect();
        assert_eq!(there, ["notion", "read"]);
    }
}
