//! Rights to conversations: which of them a caller reaches, and for what.
//!
//! `permissions.rs` decides which methods a caller may call; this module decides on which
//! conversations. Both read the caller's credentials only.
//!
//! | conversation | read | write | control |
//! |---|---|---|---|
//! | the caller's own | yes | yes | yes |
//! | another person's | `read` | no | `admin` |
//! | any other: of an agent, a channel, a program's user | `read` | `owner` | `admin` |
//!
//! To read is to see what was said. To write is to send messages, branch and change the label. To
//! control is to cancel, pause, resume and delete. The words are the scopes of keys; roles of people
//! include the same (`permissions.rs`).
//!
//! A person's own conversations are those that they have named, and the direct messages of their
//! linked accounts. Those of a key are its users', and conversations for one request. A guest's are
//! only the latter.

use holdfast_agent::person;
use holdfast_grpc::{Caller, Principal, Scope};
use holdfast_session::Sessions;
use holdfast_types::{
    AgentName, NameSpace, PersonId, SINGLE_REQUEST_PREFIX, SessionId, SessionKey, SessionKind,
    TenantRole,
};

use crate::{
    Error,
    permissions::{self, Permission},
};

/// What a caller wants to do with a conversation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ConversationRight {
    Read,
    Write,
    Control,
}

impl ConversationRight {
    /// Permission that includes the right to conversations that are not the caller's own.
    pub const fn permission(self) -> Permission {
        match self {
            Self::Read => Permission::Read,
            Self::Write => Permission::Own,
            Self::Control => Permission::Manage,
        }
    }

    /// Scopes and roles that include the right to conversations of others, for an error.
    const fn hint(self) -> &'static str {
        match self {
            Self::Read => {
                "to read those of others a key needs the scope `read`, and a person the role \
                 `viewer`, `operator` or `owner`"
            }
            Self::Write => {
                "name one of your own, or leave `session` out. An owner writes in those of agents \
                 and of programs' users; nobody in another person's"
            }
            Self::Control => {
                "to stop or delete those of others a key needs the scope `admin`, and a person the \
                 role `operator` or `owner`"
            }
        }
    }
}

/// Whom a conversation belongs to, as far as its key tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Holder {
    Person(PersonId),
    /// A person who is a user of programs, which may write for them.
    ProgramUser(PersonId),
    /// The users of a key, or of all keys that share their names.
    Program(NameSpace),
    /// An agent, the mesh, or people on a channel.
    Other,
}

impl Holder {
    fn of(key: &SessionKey) -> Self {
        match key.name_space() {
            Some(NameSpace::Person(person)) => return Self::Person(person),
            Some(NameSpace::ProgramUser(person)) => return Self::ProgramUser(person),
            Some(space @ (NameSpace::Shared | NameSpace::Key(_))) => return Self::Program(space),
            None => {}
        }
        let linked = (key.kind() == SessionKind::Dm).then(|| person::named_by(key)).flatten();
        match linked.as_deref().and_then(person::id_of) {
            Some(person) => Self::Person(person),
            None => Self::Other,
        }
    }
}

/// Name space in which a caller names conversations and users: a person their own. The keys of owners,
/// and those that are nobody's, are programs' and speak for many.
pub fn name_space(caller: &Caller) -> NameSpace {
    match (caller.principal, caller.person) {
        (Principal::Person { id, .. }, _) => NameSpace::Person(id),
        (Principal::Key(_), Some(person)) if !caller.scopes.has(Scope::Owner) => {
            NameSpace::Person(person)
        }
        (Principal::Key(key), None) if is_guest(caller) => NameSpace::Key(key),
        (Principal::Key(_) | Principal::Service | Principal::Node, _) => NameSpace::Shared,
    }
}

/// Whether a caller may begin conversations and do nothing else.
pub fn is_guest(caller: &Caller) -> bool {
    match caller.principal {
        Principal::Person { role, .. } => role == TenantRole::Guest,
        Principal::Key(_) => !caller.scopes.has(Scope::Chat) && caller.scopes.has(Scope::Guest),
        Principal::Service | Principal::Node => false,
    }
}

/// Checks that a caller may do something with the conversation that has this key.
///
/// # Errors
///
/// [`Error::OthersConversation`].
pub fn check(caller: &Caller, key: &SessionKey, right: ConversationRight) -> Result<(), Error> {
    check_agent(caller, key.agent())?;
    let holder = Holder::of(key);
    if is_own(caller, key, holder) {
        return Ok(());
    }
    let is_persons = matches!(holder, Holder::Person(_)) && right == ConversationRight::Write;
    if !is_persons && reaches_all(caller, right) {
        return Ok(());
    }
    Err(Error::OthersConversation(right.hint()))
}

/// Checks that a key of one agent names no other.
///
/// # Errors
///
/// [`Error::AgentOfKey`].
pub fn check_agent(caller: &Caller, named: Option<&AgentName>) -> Result<(), Error> {
    match &caller.agent {
        Some(agent) if named != Some(agent) => Err(Error::AgentOfKey(agent.to_string())),
        Some(_) | None => Ok(()),
    }
}

/// Whether a caller has a right to all conversations of the tenant. Nobody writes in those of another
/// person who signed in.
pub fn reaches_all(caller: &Caller, right: ConversationRight) -> bool {
    permissions::require(caller, right.permission()).is_ok()
}

/// Person whose conversations alone a caller reads; `None` if they read all.
pub fn reads_only_own(caller: &Caller) -> Option<PersonId> {
    caller.person.filter(|_| !reaches_all(caller, ConversationRight::Read))
}

/// Whether reminders and memories that are kept under this name are the caller's own: as the person, or
/// as a program that speaks for the user.
pub fn is_own_user(caller: &Caller, user: &str) -> bool {
    match caller.principal {
        _ if caller.person.is_some_and(|person| person::of_id(person) == user) => true,
        Principal::Key(_) => {
            let space = user.strip_prefix("api:").and_then(NameSpace::split);
            space.is_some_and(|(space, _)| space == name_space(caller))
        }
        Principal::Person { .. } | Principal::Service | Principal::Node => false,
    }
}

fn is_own(caller: &Caller, key: &SessionKey, holder: Holder) -> bool {
    let is_program_of =
        |space| matches!(caller.principal, Principal::Key(_)) && name_space(caller) == space;
    let is_in_own_space = match holder {
        Holder::Person(person) => caller.person == Some(person),
        Holder::ProgramUser(person) => {
            caller.person == Some(person) || is_program_of(NameSpace::Shared)
        }
        Holder::Program(space) => is_program_of(space),
        Holder::Other => false,
    };
    is_in_own_space && (!is_guest(caller) || is_for_one_request(key))
}

/// Whether a conversation was made for one request. Its name is not to be guessed.
pub fn is_for_one_request(key: &SessionKey) -> bool {
    let name = key.api_name().unwrap_or_default();
    NameSpace::split(&name).is_some_and(|(_, name)| name.starts_with(SINGLE_REQUEST_PREFIX))
}

/// Session of a request: its agent (empty: that of the key, or the default one) and its id, key or
/// the name that the caller gave it.
#[derive(Debug, Clone, Copy)]
pub struct NamedSession<'a> {
    pub agent: &'a str,
    pub session: &'a str,
}

/// Checks a caller's right to the session with this id.
///
/// # Errors
///
/// If there is no such session, or the caller has no right to it.
pub async fn check_session(
    sessions: &Sessions,
    caller: &Caller,
    session: SessionId,
    right: ConversationRight,
) -> Result<(), Error> {
    if right != ConversationRight::Write && reaches_all(caller, right) {
        return Ok(());
    }
    // A subagent works for the conversation that asked for it.
    let root = sessions.root_of(caller.tenant, session).await?;
    let view = sessions.views().session(caller.tenant, root).await?;
    check(caller, &view.key.parse()?, right)
}

/// As [`check`]; a subagent's conversation belongs to whoever asked for it.
///
/// # Errors
///
/// [`Error::OthersConversation`], or if the session cannot be read now.
pub async fn check_root(
    sessions: &Sessions,
    caller: &Caller,
    key: &SessionKey,
    right: ConversationRight,
) -> Result<(), Error> {
    if key.kind() == SessionKind::Subagent
        && let Some(session) = sessions.views().find(caller.tenant, key).await?
    {
        return check_session(sessions, caller, session, right).await;
    }
    check(caller, key, right)
}

#[cfg(test)]
mod tests {
    use holdfast_grpc::Scopes;
    use holdfast_types::{AgentName, DmScope, KeyId, TenantId, linked_peer};

    use super::*;
    use ConversationRight::{Control, Read, Write};

    fn key(scopes: &[Scope]) -> Caller {
        caller(Principal::Key(KeyId::generate()), scopes)
    }

    fn person(role: TenantRole) -> Caller {
        caller(Principal::Person { id: PersonId::generate(), role }, &[])
    }

    fn caller(principal: Principal, scopes: &[Scope]) -> Caller {
        let scopes: Scopes = scopes.iter().copied().collect();
        let person = match principal {
            Principal::Person { id, .. } => Some(id),
            Principal::Key(_) | Principal::Service | Principal::Node => None,
        };
        let (tenant, name) = (TenantId::generate(), String::new());
        Caller { tenant, principal, person, agent: None, via: None, scopes, name }
    }

    fn named_by(caller: &Caller, name: &str) -> SessionKey {
        SessionKey::api(&AgentName::new("main"), &name_space(caller).qualify(name)).unwrap()
    }

    fn rights(caller: &Caller, key: &SessionKey) -> Vec<ConversationRight> {
        let all = [Read, Write, Control].into_iter();
        all.filter(|right| check(caller, key, *right).is_ok()).collect()
    }

    #[test]
    fn people_reach_their_own_conversations_and_what_their_role_includes() {
        let other = person(TenantRole::Member);
        let (others, main) = (named_by(&other, "trip"), "agent:main:main".parse().unwrap());
        let group = "agent:main:group:telegram:-1".parse().unwrap();
        let shared = "agent:main:api:anna".parse().unwrap();

        for (role, of_person, of_others) in [
            (TenantRole::Guest, &[][..], &[][..]),
            (TenantRole::Viewer, &[Read], &[Read]),
            (TenantRole::Member, &[], &[]),
            (TenantRole::Approver, &[], &[]),
            (TenantRole::Operator, &[Read, Control], &[Read, Control]),
            (TenantRole::Owner, &[Read, Control], &[Read, Write, Control]),
        ] {
            let caller = person(role);
            let own = named_by(&caller, "trip");
            let all = [Read, Write, Control];
            let expected: &[_] = if role == TenantRole::Guest { &[] } else { &all };
            assert_eq!(rights(&caller, &own), expected, "{role}");
            assert_eq!(rights(&caller, &others), of_person, "{role}");
            for key in [&main, &group, &shared] {
                assert_eq!(rights(&caller, key), of_others, "{role} {key}");
            }
        }
    }

    #[test]
    fn the_direct_messages_of_a_linked_account_are_the_person_s() {
        let caller = person(TenantRole::Member);
        let Principal::Person { id, .. } = caller.principal else { panic!("a person") };
        let dm = |peer: &str| {
            let agent = AgentName::new("main");
            SessionKey::direct(&agent, DmScope::PerChannelPeer, "telegram", "", peer).unwrap()
        };

        let own = dm(&linked_peer(&holdfast_agent::person::of_id(id)));
        assert_eq!(rights(&caller, &own), [Read, Write, Control]);
        assert_eq!(rights(&caller, &dm("42")), []);
        assert_eq!(rights(&person(TenantRole::Member), &own), []);
    }

    #[test]
    fn a_key_reaches_its_users_and_a_guest_s_only_what_was_made_for_one_request() {
        let (program, guest) = (key(&[Scope::Chat]), key(&[Scope::Guest]));
        let shared = named_by(&program, "anna");
        let (named, once) = (named_by(&guest, "anna"), named_by(&guest, "once-1"));

        assert_eq!(rights(&program, &shared), [Read, Write, Control]);
        assert_eq!(rights(&program, &"agent:main:main".parse().unwrap()), []);
        assert_eq!(rights(&program, &once), []);
        assert_eq!(rights(&guest, &once), [Read, Write, Control]);
        assert_eq!(rights(&guest, &named), []);
        assert_eq!(rights(&guest, &shared), []);
        assert_eq!(rights(&key(&[Scope::Guest]), &once), []);
        assert_eq!(rights(&person(TenantRole::Member), &shared), []);
    }
}
