//! Identity of the person that a conversation is with (decision 0035).
//!
//! | conversation | person |
//! |---|---|
//! | the owner's own: main, heartbeat, their direct messages | `owner` |
//! | direct messages of another person | `telegram:42`, as in the session's key; `webhook:shop:42`, separate for each account, where the platform has no ids of its own |
//! | direct messages of an account that is linked (decision 0087) | the first account's, `telegram:42`, on every channel |
//! | a program's session | `api:anna`; `anna/trip` and `anna/work` are both Anna's |
//! | the same, by a key with names of its own | `api:=key_…/anna` |
//! | a session of a person who signed in, also by a program whose user they are, or by a linked account | `person:per_…`, or `owner` if they own the agent |
//! | a group, a topic | `group:telegram:-100`: separate from all others |
//! | a main session in which others write too, a subagent's, a job's | none |
//!
//! Memories and the time zone of a person apply to all their conversations with an agent. The
//! person follows from the session's key and its audience, never from a text.

use holdfast_types::{
    NameSpace, PersonId, SINGLE_REQUEST_PREFIX, SessionKey, SessionKind, has_platform_wide_ids,
    linked_person,
};

use crate::bootstrap::Audience;

/// The agent's owner, on every channel.
pub const OWNER: &str = "owner";

/// Prefix of the names of people who are records of the tenant.
const RECORD_PREFIX: &str = "person:";

/// Returns the person whom a session's key names, whoever has written there; `None` if it names none.
/// [`ConversationAccess`](crate::access::ConversationAccess) decides whose a conversation is.
#[must_use]
pub fn named_by(key: &SessionKey) -> Option<String> {
    of_session(key.kind(), key.as_str(), Audience::Others)
}

/// Returns the person of a session with this audience; `None` if there is no particular one.
pub(crate) fn of_session(kind: SessionKind, key: &str, audience: Audience) -> Option<String> {
    let parts: Vec<String> =
        key.split(':').map(|part| part.replace("%3A", ":").replace("%25", "%")).collect();
    let parts: Vec<&str> = parts.iter().map(String::as_str).collect();
    let is_owner = audience == Audience::Owner;
    match (kind, parts.as_slice()) {
        (SessionKind::Main | SessionKind::Heartbeat | SessionKind::Dm, _) if is_owner => {
            Some(OWNER.to_owned())
        }
        (SessionKind::Dm, ["agent", _, "dm", of, peer]) => {
            Some(linked_person(peer).map_or_else(|| format!("{of}:{peer}"), str::to_owned))
        }
        (SessionKind::Dm, ["agent", _, "dm", of, account, peer]) => {
            Some(linked_person(peer).map_or_else(|| of_account(of, account, peer), str::to_owned))
        }
        (SessionKind::Api, ["agent", _, "api", name]) => match NameSpace::split(name)? {
            (NameSpace::Person(_) | NameSpace::ProgramUser(_), _) if is_owner => {
                Some(OWNER.to_owned())
            }
            (NameSpace::Person(person) | NameSpace::ProgramUser(person), _) => Some(of_id(person)),
            (space @ (NameSpace::Shared | NameSpace::Key(_)), name) => {
                let user = name.split_once('/').map_or(name, |(user, _)| user);
                // A program that names no user gets a temporary name, which is no person.
                let is_somebody = !user.is_empty() && !user.starts_with(SINGLE_REQUEST_PREFIX);
                is_somebody.then(|| format!("api:{}", space.qualify(user)))
            }
        },
        (
            SessionKind::Group | SessionKind::Topic,
            ["agent", _, "group" | "topic", of, group, ..],
        ) => Some(format!("group:{of}:{group}")),
        _ => None,
    }
    // The memory service accepts no longer names, and a cut name would be ambiguous.
    .filter(|user| user.len() <= 256)
}

/// The person who is a record of the tenant and hears of what happens in a session that is on no channel:
/// whom its key names, or who wrote (`author`) where the agent works for its owner or by itself.
#[must_use]
pub fn who_hears_of(key: &SessionKey, author: Option<&str>) -> Option<PersonId> {
    let named = named_by(key).as_deref().and_then(id_of);
    let is_owners = matches!(
        key.kind(),
        SessionKind::Main | SessionKind::Cron | SessionKind::Work | SessionKind::Heartbeat
    );
    named.or_else(|| author.filter(|_| is_owners).and_then(id_of))
}

/// Name of a person who is a record of the tenant.
#[must_use]
pub fn of_id(person: PersonId) -> String {
    format!("{RECORD_PREFIX}{person}")
}

/// Id of a person who is a record of the tenant, from the name that [`of_id`] gives.
#[must_use]
pub fn id_of(person: &str) -> Option<PersonId> {
    person.strip_prefix(RECORD_PREFIX)?.parse().ok()
}

/// Returns the person behind a peer id of a channel account.
///
/// Ids are separate for each account, except on platforms with global ids. A `:` or `%` in the
/// account is escaped, so that its end is unambiguous.
#[must_use]
pub fn of_account(channel: &str, account: &str, peer: &str) -> String {
    if has_platform_wide_ids(channel) {
        return format!("{channel}:{peer}");
    }
    let account = account.replace('%', "%25").replace(':', "%3A");
    format!("{channel}:{account}:{peer}")
}

/// Author id of the person that [`of_account`] names: without the account, which policies do not
/// name.
#[must_use]
pub fn author_id(person: &str) -> String {
    match person.splitn(3, ':').collect::<Vec<_>>().as_slice() {
        [channel, _, peer] if !has_platform_wide_ids(channel) => format!("{channel}:{peer}"),
        _ => person.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_wrote_hears_of_it_only_where_nobody_else_takes_part() {
        let (named, author) = (PersonId::generate(), PersonId::generate());
        let wrote = of_id(author);
        for (key, expected) in [
            (format!("agent:main:api:={named}/trip"), Some(named)),
            ("agent:main:main".to_owned(), Some(author)),
            ("agent:main:cron:a:b".to_owned(), Some(author)),
            ("agent:main:api:anna".to_owned(), None),
            ("agent:main:group:telegram:1".to_owned(), None),
            ("agent:main:dm:telegram:7".to_owned(), None),
        ] {
            let key: SessionKey = key.parse().unwrap();
            assert_eq!(who_hears_of(&key, Some(&wrote)), expected, "{key}");
            assert_eq!(who_hears_of(&key, None), expected.filter(|&one| one == named), "{key}");
        }
        let main = "agent:main:main".parse().unwrap();
        assert_eq!(who_hears_of(&main, Some("telegram:7")), None);
    }

    #[test]
    fn a_conversation_is_with_whom_its_key_says() {
        let (owner, others) = (Audience::Owner, Audience::Others);
        let id = PersonId::generate();
        let (in_program, name) = (format!("agent:main:api:={id}@/anna/trip"), of_id(id));
        let (in_program, name) = (in_program.as_str(), name.as_str());

        for (kind, audience, key, expected) in [
            (SessionKind::Main, owner, "agent:main:main", Some("owner")),
            (SessionKind::Main, others, "agent:main:main", None),
            (SessionKind::Heartbeat, owner, "agent:main:heartbeat", Some("owner")),
            (SessionKind::Dm, owner, "agent:main:dm:telegram:7", Some("owner")),
            (SessionKind::Dm, others, "agent:main:dm:telegram:42", Some("telegram:42")),
            (SessionKind::Dm, others, "agent:main:dm:telegram:bot:42", Some("telegram:42")),
            (SessionKind::Dm, others, "agent:main:dm:webhook:shop:42", Some("webhook:shop:42")),
            (SessionKind::Dm, others, "agent:main:dm:hook:shop%3Aa:1", Some("hook:shop%3Aa:1")),
            (SessionKind::Dm, others, "agent:main:dm:hook:shop:a%3A1", Some("hook:shop:a:1")),
            (SessionKind::Dm, others, "agent:main:dm:any:a%3Ab", Some("any:a:b")),
            (SessionKind::Dm, others, "agent:main:dm:discord:=telegram%3A42", Some("telegram:42")),
            (SessionKind::Dm, others, "agent:main:dm:any:=telegram%3A42", Some("telegram:42")),
            (SessionKind::Dm, others, "agent:main:dm:irc:net:=a%3Ab%3Ac", Some("a:b:c")),
            (SessionKind::Dm, owner, "agent:main:dm:discord:=telegram%3A42", Some("owner")),
            (SessionKind::Dm, others, "agent:main:dm:discord:=owner", Some("discord:=owner")),
            (SessionKind::Dm, others, "agent:main:dm:matrix:bot:@a%3Ab", Some("matrix:@a:b")),
            (SessionKind::Dm, others, "agent:main:dm:irc:net:anna", Some("irc:net:anna")),
            (SessionKind::Api, others, "agent:main:api:anna", Some("api:anna")),
            (SessionKind::Api, others, "agent:main:api:anna/trip", Some("api:anna")),
            (SessionKind::Api, others, "agent:main:api:/trip", None),
            (SessionKind::Api, others, "agent:main:api:=anna", None),
            (SessionKind::Api, others, in_program, Some(name)),
            (SessionKind::Api, owner, in_program, Some("owner")),
            (SessionKind::Api, others, "agent:main:api:=anna/trip", None),
            (SessionKind::Api, others, "agent:main:api:once-019a", None),
            (SessionKind::Group, others, "agent:main:group:telegram:-1", Some("group:telegram:-1")),
            (
                SessionKind::Group,
                others,
                "agent:main:group:telegram:-1:user:42",
                Some("group:telegram:-1"),
            ),
            (
                SessionKind::Topic,
                owner,
                "agent:main:topic:telegram:-1:9",
                Some("group:telegram:-1"),
            ),
            (SessionKind::Subagent, others, "agent:main:subagent:x", None),
            (SessionKind::Cron, others, "agent:main:cron:a:b", None),
            (SessionKind::Global, others, "global", None),
        ] {
            assert_eq!(of_session(kind, key, audience).as_deref(), expected, "{key}");
        }
        let ids = ["telegram:42", "matrix:@a:b.org", "webhook:shop:42", "api:anna"].map(author_id);
        assert_eq!(ids, ["telegram:42", "matrix:@a:b.org", "webhook:42", "api:anna"]);
        let long = format!("agent:main:api:{}", "x".repeat(300));
        assert_eq!(of_session(SessionKind::Api, &long, others), None);
    }
}
