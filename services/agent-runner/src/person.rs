//! Whose memory a conversation is about (decision 0035), and what may be done with it.
//!
//! It follows from the session's key and from who reads along, and never from what is written.

use holdfast_agent::{bootstrap::Audience, person::person, policy::Who};
use holdfast_proto::memory::v1 as pb;
use holdfast_types::{AgentId, SessionKind};

/// Who may change the knowledge base for all (C-49).
const MAINTAINER: &str = "kb_maintainer";

/// Whom a conversation is with, as far as memory goes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Person {
    /// Whose memory it is; `None` is nobody's.
    pub(crate) user: Option<String>,
    /// Several people read it.
    pub(crate) is_group: bool,
    /// Speaks for the tenant's knowledge.
    pub(crate) is_maintainer: bool,
    /// Nobody vouches for whoever speaks.
    pub(crate) is_guest: bool,
}

impl Person {
    /// Whoever a conversation with this key is with, `who` speaking in it.
    pub(crate) fn of(kind: SessionKind, key: &str, audience: Audience, who: &Who) -> Self {
        let is_owner = match who.roles.is_empty() {
            true => audience == Audience::Owner,
            false => who.is_owner(),
        };
        let has = |role: &str| who.roles.iter().any(|held| held == role);
        Self {
            user: person(kind, key, audience),
            is_group: matches!(kind, SessionKind::Group | SessionKind::Topic),
            is_maintainer: is_owner || has("admin") || has(MAINTAINER),
            is_guest: has("guest"),
        }
    }

    /// In whose name the memory service is asked.
    pub(crate) fn asking(&self, agent: AgentId) -> pb::Who {
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
            let who = Who { user: None, roles: roles.iter().map(|&role| role.into()).collect() };
            let person = Person::of(SessionKind::Dm, "agent:main:dm:telegram:7", audience, &who);
            (person.is_maintainer, person.is_guest)
        };

        assert_eq!(of(Audience::Owner, &[]), (true, false));
        assert_eq!(of(Audience::Owner, &["member"]), (false, false));
        assert_eq!(of(Audience::Others, &["kb_maintainer", "guest"]), (true, true));
        assert_eq!(of(Audience::Others, &["member", "owner"]), (true, false));
        assert_eq!(of(Audience::Others, &["guest"]), (false, true));
    }
}
