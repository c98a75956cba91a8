//! Memory subject: the user whose memory a conversation reads and writes, and their rights
//! (decision 0035).

use holdfast_agent::access::ConversationAccess;
use holdfast_proto::memory::v1 as pb;
use holdfast_types::AgentId;

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
    pub(crate) fn of(access: &ConversationAccess) -> Self {
        Self {
            user: access.person.clone(),
            is_group: access.is_group(),
            is_maintainer: access.is_owner
                || access.has_role("admin")
                || access.has_role(MAINTAINER_ROLE),
            is_guest: access.has_role("guest"),
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
    use holdfast_agent::{access::SessionFacts, policy::TurnAuthors};
    use holdfast_types::{DmScope, SessionKind};

    use super::*;

    #[test]
    fn a_maintainer_has_the_role_or_owns_the_agent() {
        let of = |roles: &[&str]| {
            let roles = roles.iter().map(|&role| role.into()).collect();
            let now = TurnAuthors { user: None, roles };
            let (key, dm_scope) = ("agent:main:main", DmScope::default());
            let session = SessionFacts { kind: SessionKind::Main, key, dm_scope };
            let access = ConversationAccess::decide(&session, now.clone(), &now);
            let subject = MemorySubject::of(&access);
            (subject.is_maintainer, subject.is_guest)
        };

        assert_eq!(of(&[]), (true, false));
        assert_eq!(of(&["member"]), (false, false));
        assert_eq!(of(&["kb_maintainer", "guest"]), (true, true));
        assert_eq!(of(&["member", "owner"]), (true, false));
        assert_eq!(of(&["guest"]), (false, true));
    }
}
