//! Keys of the conversations of people who become one person, or two.

use holdfast_agent::person;
use holdfast_directory::PersonAccount;
use holdfast_session::KeyChanges;
use holdfast_types::{
    AgentId, AgentName, DmScope, NameSpace, PersonId, SessionKey, SessionKind,
    has_platform_wide_ids, linked_peer,
};

/// Keys of an account's direct conversations before and after it is linked, for all agents and
/// scopes. The first account of a person keeps the keys that name it.
#[must_use]
pub fn of_account(
    agents: &[(AgentId, AgentName)],
    account: &PersonAccount,
    person: &str,
    own_name: &str,
) -> KeyChanges {
    let is_first = person == own_name;
    let scopes = [
        (DmScope::PerPeer, false),
        (DmScope::PerChannelPeer, is_first && has_platform_wide_ids(&account.channel)),
        (DmScope::PerAccountChannelPeer, is_first),
    ];
    let peer = linked_peer(person);
    let key = |agent, scope, peer: &str| {
        SessionKey::direct(agent, scope, &account.channel, &account.account, peer).ok()
    };
    let keys = agents.iter().flat_map(|(_, agent)| {
        scopes.iter().filter(|(_, keeps)| !keeps).filter_map(|(scope, _)| {
            let (old, new) = (key(agent, *scope, &account.peer)?, key(agent, *scope, &peer)?);
            Some((old.to_string(), new.to_string()))
        })
    });
    KeyChanges { channel: Some(account.channel.clone()), keys: keys.collect() }
}

/// The changes that undo these.
#[must_use]
pub fn reversed(changes: KeyChanges) -> KeyChanges {
    let keys = changes.keys.into_iter().map(|(old, new)| (new, old)).collect();
    KeyChanges { keys, ..changes }
}

/// Key under which a conversation of one person goes on as one of another.
///
/// `None` if it is not the first one's. `is_taken` says which keys there are: a second conversation
/// of the same name gets the end of its id.
#[must_use]
pub fn for_other_person(
    key: &str,
    id: &str,
    (from, to): (PersonId, PersonId),
    is_taken: impl Fn(&str) -> bool,
) -> Option<String> {
    let parsed: SessionKey = key.parse().ok()?;
    let agent = parsed.agent()?;
    let end = id.get(id.len().saturating_sub(8)..).unwrap_or(id);
    let free = |wanted: String, other: String| if is_taken(&wanted) { other } else { wanted };
    match parsed.kind() {
        SessionKind::Api => {
            let name = parsed.api_name()?;
            let (space, rest) = NameSpace::split(&name)?;
            let space = match space {
                NameSpace::Person(of) if of == from => NameSpace::Person(to),
                NameSpace::ProgramUser(of) if of == from => NameSpace::ProgramUser(to),
                NameSpace::Person(_)
                | NameSpace::ProgramUser(_)
                | NameSpace::Shared
                | NameSpace::Key(_) => return None,
            };
            let named = |name: &str| {
                SessionKey::api(agent, &space.qualify(name)).ok().map(|key| key.to_string())
            };
            Some(free(named(rest)?, named(&format!("{rest}-{end}"))?))
        }
        SessionKind::Dm => {
            let escape = |peer: String| peer.replace('%', "%25").replace(':', "%3A");
            let [of, peer] = [from, to].map(|person| escape(linked_peer(&person::of_id(person))));
            let start = key.strip_suffix(&of)?;
            // Two conversations on one channel: the person goes on in theirs, and reads the other.
            let channel = start.split(':').nth(3).unwrap_or_default();
            let archive = NameSpace::Person(to).qualify(&format!("{channel}-{end}"));
            Some(free(format!("{start}{peer}"), SessionKey::api(agent, &archive).ok()?.to_string()))
        }
        SessionKind::Main
        | SessionKind::Group
        | SessionKind::Topic
        | SessionKind::Heartbeat
        | SessionKind::Subagent
        | SessionKind::Cron
        | SessionKind::Work
        | SessionKind::Global => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn account(channel: &str) -> PersonAccount {
        let (account, peer) = ("default".to_owned(), "7".to_owned());
        PersonAccount { channel: channel.to_owned(), account, peer }
    }

    fn changes(channel: &str, person: &str) -> Vec<(String, String)> {
        let (account, agents) = (account(channel), [(AgentId::generate(), AgentName::default())]);
        let own = person::of_account(&account.channel, &account.account, &account.peer);
        of_account(&agents, &account, person, &own).keys
    }

    #[test]
    fn the_first_account_keeps_its_conversations_and_the_other_gets_keys_that_name_it() {
        let pair =
            |old: &str, new: &str| (format!("agent:main:dm:{old}"), format!("agent:main:dm:{new}"));

        assert_eq!(changes("telegram", "telegram:7"), [pair("any:7", "any:=telegram%3A7")],);
        assert_eq!(
            changes("webhook", "webhook:default:7"),
            [
                pair("any:7", "any:=webhook%3Adefault%3A7"),
                pair("webhook:7", "webhook:=webhook%3Adefault%3A7"),
            ],
        );
        assert_eq!(
            changes("discord", "telegram:7"),
            [
                pair("any:7", "any:=telegram%3A7"),
                pair("discord:7", "discord:=telegram%3A7"),
                pair("discord:default:7", "discord:default:=telegram%3A7"),
            ],
        );
    }

    #[test]
    fn a_conversation_goes_on_as_one_of_another_person() {
        let (from, to) = (PersonId::generate(), PersonId::generate());
        let moved = |key: &str, taken: &str| {
            let id = "ses_00000000000000000000000012345678";
            for_other_person(key, id, (from, to), |wanted| wanted == taken)
        };

        for (key, expected) in [
            (format!("agent:a:api:={from}/trip"), Some(format!("agent:a:api:={to}/trip"))),
            (format!("agent:a:api:={from}@/anna/x"), Some(format!("agent:a:api:={to}@/anna/x"))),
            (
                format!("agent:a:dm:telegram:=person%3A{from}"),
                Some(format!("agent:a:dm:telegram:=person%3A{to}")),
            ),
            (format!("agent:a:api:={to}/trip"), None),
            ("agent:a:api:anna".to_owned(), None),
            ("agent:a:dm:telegram:42".to_owned(), None),
            ("agent:a:main".to_owned(), None),
        ] {
            assert_eq!(moved(&key, ""), expected, "{key}");
        }
        let taken = format!("agent:a:api:={to}/main");
        let other = format!("agent:a:api:={to}/main-12345678");
        assert_eq!(moved(&format!("agent:a:api:={from}/main"), &taken), Some(other));
        let taken = format!("agent:a:dm:telegram:=person%3A{to}");
        let archive = format!("agent:a:api:={to}/telegram-12345678");
        let of_channel = format!("agent:a:dm:telegram:=person%3A{from}");
        assert_eq!(moved(&of_channel, &taken), Some(archive));
    }
}
