//! Ids of people on channels, and the peer in the session keys of linked accounts.
//!
//! A person who has linked several accounts (decision 0087) is known by the name of the first,
//! such as `telegram:42`. In session keys of the linked accounts the peer is `=telegram:42`. The
//! gateway refuses senders whose own id begins with `=`.

/// First character of the peer of a linked account.
const LINKED_PREFIX: char = '=';

/// Longest name of a person to whom accounts can be linked, in bytes: a session key must have room
/// for it.
pub const MAX_LINKED_PERSON_BYTES: usize = 200;

/// Channels on which a person has one id for all accounts of a tenant. On others (`slack`, `irc`,
/// `webhook`) an id counts within one account: a workspace, a network, a sender's own ids.
const PLATFORM_WIDE: [&str; 5] = ["discord", "email", "matrix", "telegram", "whatsapp"];

/// Whether an id of this channel means the same person on every account.
#[must_use]
pub fn has_platform_wide_ids(channel: &str) -> bool {
    PLATFORM_WIDE.contains(&channel)
}

/// Peer in the session keys of accounts that are linked to a person.
#[must_use]
pub fn linked_peer(person: &str) -> String {
    format!("{LINKED_PREFIX}{person}")
}

/// Person to whom the account with this peer is linked; `None` for a peer as its platform names it.
#[must_use]
pub fn linked_person(peer: &str) -> Option<&str> {
    let person = peer.strip_prefix(LINKED_PREFIX)?;
    // `owner` and other words are no accounts.
    let (channel, id) = person.split_once(':')?;
    (!channel.is_empty() && !id.is_empty()).then_some(person)
}

/// Whether an id of a platform could be taken for a linked account.
#[must_use]
pub fn is_reserved_peer(id: &str) -> bool {
    id.trim_start().starts_with(LINKED_PREFIX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_peer_with_the_mark_and_an_account_is_linked() {
        assert_eq!(linked_person(&linked_peer("telegram:42")), Some("telegram:42"));
        for raw in ["42", "telegram:42", "=owner", "=", "=:", "=telegram:", "=:42"] {
            assert_eq!(linked_person(raw), None, "{raw}");
        }
        assert!(is_reserved_peer(" =telegram:42") && !is_reserved_peer("@anna=x:example.org"));
    }
}
