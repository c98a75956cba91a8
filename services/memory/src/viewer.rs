//! Agent and user in whose name a call is made, and what they may see.

use holdfast_proto::memory::v1 as pb;
use holdfast_types::AgentId;
use uuid::Uuid;

use crate::{Error, validation};

/// Stands for all agents of a tenant.
pub const ALL_AGENTS: Uuid = Uuid::nil();

/// Agent and user in whose name a call is made; the calling service vouches for
/// them, and only gateway and agent-runner can call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Viewer {
    /// The agent, or [`ALL_AGENTS`] for none in particular.
    pub agent: Uuid,
    /// The user; empty for none.
    pub user: String,
    /// The conversation is a group: only content marked as safe there is visible.
    pub group: bool,
    pub maintainer: bool,
    /// Sees the content of all agents and users, in lists and for erasure. Never in a search.
    pub everything: bool,
}

impl Viewer {
    /// Parses the caller of a request.
    ///
    /// # Errors
    ///
    /// If it is missing or has an invalid field.
    pub fn read(who: Option<pb::Who>) -> Result<Self, Error> {
        let who = who
            .ok_or_else(|| Error::field("who", "is missing: say in whose name the call is made"))?;
        let agent = agent(&who.agent)?;
        validation::at_most("who.user", &who.user, 256)?;
        let pb::Who { user, group, maintainer, everything, .. } = who;
        Ok(Self { agent, user, group, maintainer, everything })
    }

    /// Returns the agents whose content is visible.
    pub fn agents(&self) -> Vec<Uuid> {
        if self.agent == ALL_AGENTS { vec![ALL_AGENTS] } else { vec![ALL_AGENTS, self.agent] }
    }

    /// Returns the users whose content is visible.
    pub fn users(&self) -> Vec<String> {
        if self.user.is_empty() {
            vec![String::new()]
        } else {
            vec![String::new(), self.user.clone()]
        }
    }
}

/// Parses an agent id; empty means [`ALL_AGENTS`].
pub fn agent(id: &str) -> Result<Uuid, Error> {
    match id {
        "" => Ok(ALL_AGENTS),
        id => Ok(id.parse::<AgentId>()?.as_uuid()),
    }
}

/// Returns the agent's id, empty for [`ALL_AGENTS`].
pub fn agent_text(agent: Uuid) -> String {
    if agent == ALL_AGENTS { String::new() } else { AgentId::from(agent).to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_names_nobody_sees_what_is_nobodys() {
        let who = Viewer::read(Some(pb::Who::default())).unwrap();

        assert_eq!((who.agents(), who.users()), (vec![ALL_AGENTS], vec![String::new()]));
    }

    #[test]
    fn who_names_an_agent_and_a_user_sees_theirs_and_what_is_everybodys() {
        let agent = AgentId::generate();
        let who = pb::Who { agent: agent.to_string(), user: "ann".into(), ..pb::Who::default() };
        let who = Viewer::read(Some(who)).unwrap();

        assert_eq!(who.agents(), [ALL_AGENTS, agent.as_uuid()]);
        assert_eq!(who.users(), ["", "ann"]);
        assert_eq!(agent_text(who.agent), agent.to_string());
    }

    #[test]
    fn what_is_no_agent_is_refused() {
        let bad = |who| Viewer::read(Some(who)).unwrap_err().to_string();

        assert!(bad(pb::Who { agent: "main".into(), ..pb::Who::default() }).contains("`main`"));
        assert!(bad(pb::Who { user: "u".repeat(257), ..pb::Who::default() }).contains("256"));
        assert!(Viewer::read(None).unwrap_err().to_string().contains("`who` is missing"));
    }
}
