//! Memory subject: the user whose memory a conversation reads and writes, and their rights
//! (decision 0035).
//!
//! Derived from the session's key and its audience, never from the text of messages.

use holdfast_agent::{bootstrap::Audience, person::person, policy::TurnAuthors};
use holdfast_proto::memory::v1 as pb;
use holdfast_types::{AgentId, SessionKind};

/// Role that may change the knowledge base for all users (C-49).
const MAINTAINER_ROLE: &str = "kb_maintainer";

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct MemorySubject {
    /// User whose memory it is; `None` if it belongs to no single user.
    pub(crate) user: Option<String>,
    pub(crate) is_group: bool,
    /// May change the tenant's knowledge base.
    pub(crate) is_maintainer: bool,
    /// The user is not a known member.
    pub(crate) is_guest: bool,
}

impl MemorySubject {
    /// Derives the subject from a session and the roles of its participants.
    pub(crate) fn for_session(
        kind: SessionKind,
        key: &str,
        audience: Audience,
        who: &TurnAuthors,
    ) -> Self {
        let is_owner = match who.roles.is_empty() {
            true => audience == Audience::Owner,
            false => who.is_owner(),
        };
        let has = |role: &str| who.roles.iter().any(|held| held == role);
        Self {
            user: person(kind, key, audience),
            is_group: matches!(kind, SessionKind::Group | SessionKind::Topic),
            is_maintainer: is_owner || has("admin") || has(MAINTAINER_ROLE),
            is_guest: has("guest"),
        }
    }

    /// Subject for requests to the memory service.
    pub(crate) fn to_proto(&self, agent: AgentId) -> pb::Who {
        pb::Who {
            agent: agent.to_string(),
            user: self.user.clone().unwrap_or_default(),
            group: self.is_group,
            maintainer: self.is_maintainer,
            everything: false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_maintainer_has_the_role_or_owns_the_agent() {
        let of = |audience, roles: &[&str]| {
            let who =
                TurnAuthors { user: None, roles: roles.iter().map(|&role| role.into()).collect() };
            let person = MemorySubject::for_session(
                SessionKind::Dm,
                "agent:main:dm:telegram:7",
                audience,
                &who,
            );
            (person.is_maintainer, person.is_guest)
        };

        assert_eq!(of(Audience::Owner, &[]), (true, false));
        assert_eq!(of(Audience::Owner, &["member"]), (false, false));
        assert_eq!(of(Audience::Others, &["kb_maintainer", "guest"]), (true, true));
        assert_eq!(of(Audience::Others, &["member", "owner"]), (true, false));
        assert_eq!(of(Audience::Others, &["guest"]), (false, true));
    }
}
