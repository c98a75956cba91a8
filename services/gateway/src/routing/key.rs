//! Session key of a message from a channel.

use std::{borrow::Cow, fmt::Write as _};

use holdfast_agent::person;
use holdfast_directory::{RoutedAgent, Routing};
use holdfast_types::{
    DmScope, GroupScope, InvalidSessionKey, PeerKind, SessionKey, TenantRole,
    UNVERIFIED_PEER_PREFIX, has_platform_wide_ids, linked_person,
};
use sha2::{Digest as _, Sha256};

use super::RoutingInput;

/// Replaces an id that the platform did not send. It never leads to the main session, which is the
/// owner's.
const UNKNOWN_ID: &str = "unknown";

/// Maximum length of a part that is kept when the whole key is too long, in bytes. Three such
/// parts, each byte escaped, fit into a key with the longest agent name.
const MAX_PART_BYTES: usize = 40;

/// Builds the session key according to the agent's scopes.
///
/// With [`GroupScope::GroupUser`] a user has one session in all topics of a group.
pub(super) fn session_key(
    routing: &Routing,
    agent: &RoutedAgent,
    inbound: &RoutingInput,
) -> Result<SessionKey, InvalidSessionKey> {
    let (channel, account) = (inbound.channel(), inbound.account());
    let author = inbound.author().map(|id| {
        let canonical = routing.canonical(&channel, &account, id);
        canonical
            .filter(|canonical| {
                !is_own_name(canonical, agent, inbound.peer.kind, (&channel, &account, id))
            })
            .unwrap_or(id)
    });
    let whole = Parts {
        account: account.clone(),
        peer: non_empty(&inbound.peer.id).unwrap_or(UNKNOWN_ID).into(),
        author: author.map(Cow::from),
        thread: inbound.thread.as_deref().and_then(non_empty).map(Cow::from),
        channel: channel.as_str().into(),
    };
    match whole.key(agent, inbound.peer.kind) {
        Err(InvalidSessionKey::TooLong(_)) => whole.shortened().key(agent, inbound.peer.kind),
        made => made,
    }
}

/// Whether the key already names the person to whom this account is linked: the account is the
/// person's first. Its conversation keeps its key.
fn is_own_name(
    canonical: &str,
    agent: &RoutedAgent,
    kind: PeerKind,
    (channel, account, id): (&str, &str, &str),
) -> bool {
    let names_account = match (kind, agent.settings.dm_scope) {
        (PeerKind::Direct, DmScope::PerPeer) => false,
        (PeerKind::Direct, DmScope::PerAccountChannelPeer) => true,
        (PeerKind::Direct, DmScope::Main | DmScope::PerChannelPeer)
        | (PeerKind::Group | PeerKind::Channel, _) => has_platform_wide_ids(channel),
    };
    names_account
        && linked_person(canonical)
            .is_some_and(|person| person == person::of_account(channel, account, id))
}

/// The person to whom a sender's account is linked: their id as an author, and their role in the tenant
/// if they are a record of it who is not refused.
pub(crate) fn linked_author(
    routing: &Routing,
    inbound: &RoutingInput,
) -> Option<(String, Option<TenantRole>)> {
    let (channel, account) = (inbound.channel(), inbound.account());
    let person = linked_person(routing.canonical(&channel, &account, inbound.author()?)?)?;
    let role = person::id_of(person).and_then(|id| routing.role_of(id));
    Some((person::author_id(person), role))
}

/// Parts of a session key.
struct Parts<'a> {
    channel: Cow<'a, str>,
    account: String,
    peer: Cow<'a, str>,
    author: Option<Cow<'a, str>>,
    thread: Option<Cow<'a, str>>,
}

impl Parts<'_> {
    fn key(&self, agent: &RoutedAgent, kind: PeerKind) -> Result<SessionKey, InvalidSessionKey> {
        let Self { channel, account, peer, author, thread } = self;
        let (name, settings) = (&agent.name, &agent.settings);
        if kind == PeerKind::Direct {
            let author = author.as_deref().unwrap_or(UNKNOWN_ID);
            // The main session is the owner's, and such a sender may be anybody.
            let scope = match settings.dm_scope {
                DmScope::Main if author.starts_with(UNVERIFIED_PEER_PREFIX) => {
                    DmScope::PerChannelPeer
                }
                scope => scope,
            };
            return SessionKey::direct(name, scope, channel, account, author);
        }
        match (settings.group_scope, author, thread) {
            (GroupScope::GroupUser, Some(author), _) => {
                SessionKey::group(name, channel, peer, Some(author))
            }
            (_, _, Some(thread)) => SessionKey::topic(name, channel, peer, thread),
            (_, _, None) => SessionKey::group(name, channel, peer, None),
        }
    }

    /// Replaces each long part by a digest.
    fn shortened(&self) -> Parts<'static> {
        Parts {
            channel: shorten(&self.channel),
            account: self.account.clone(),
            peer: shorten(&self.peer),
            author: self.author.as_deref().map(shorten),
            thread: self.thread.as_deref().map(shorten),
        }
    }
}

fn shorten(part: &str) -> Cow<'static, str> {
    if part.len() <= MAX_PART_BYTES {
        return part.to_owned().into();
    }
    let digest = Sha256::digest(part);
    let hex = digest.iter().take(16).fold("sha256-".to_owned(), |mut hex, byte| {
        // Writing to a `String` cannot fail.
        let _ = write!(hex, "{byte:02x}");
        hex
    });
    hex.into()
}

fn non_empty(id: &str) -> Option<&str> {
    Some(id.trim()).filter(|id| !id.is_empty())
}
