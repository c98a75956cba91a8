//! Session key of a message from a channel.

use std::{borrow::Cow, fmt::Write as _};

use holdfast_directory::{AgentCard, Routing};
use holdfast_types::{GroupScope, InvalidKey, PeerKind, SessionKey};
use sha2::{Digest as _, Sha256};

use super::Inbound;

/// Replaces an id that the platform did not send. It never leads to the main session, which is the
/// owner's.
const UNKNOWN: &str = "unknown";

/// Maximum length of a part that is kept when the whole key is too long, in bytes. Three such
/// parts, each byte escaped, fit into a key with the longest agent name.
const LONGEST_PART: usize = 40;

/// Builds the session key according to the agent's scopes.
///
/// With [`GroupScope::GroupUser`] a user has one session in all topics of a group.
pub(super) fn session_key(
    routing: &Routing,
    agent: &AgentCard,
    inbound: &Inbound,
) -> Result<SessionKey, InvalidKey> {
    let channel = inbound.channel();
    let author = inbound.author().map(|id| routing.canonical(&channel, id).unwrap_or(id));
    let whole = Parts {
        account: inbound.account(),
        peer: given(&inbound.peer.id).unwrap_or(UNKNOWN).into(),
        author: author.map(Cow::from),
        thread: inbound.thread.as_deref().and_then(given).map(Cow::from),
        channel: channel.as_str().into(),
    };
    match whole.key(agent, inbound.peer.kind) {
        Err(InvalidKey::TooLong(_)) => whole.short().key(agent, inbound.peer.kind),
        made => made,
    }
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
    fn key(&self, agent: &AgentCard, kind: PeerKind) -> Result<SessionKey, InvalidKey> {
        let Self { channel, account, peer, author, thread } = self;
        let (name, settings) = (&agent.name, &agent.settings);
        if kind == PeerKind::Direct {
            let author = author.as_deref().unwrap_or(UNKNOWN);
            return SessionKey::direct(name, settings.dm_scope, channel, account, author);
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
    fn short(&self) -> Parts<'static> {
        Parts {
            channel: short(&self.channel),
            account: self.account.clone(),
            peer: short(&self.peer),
            author: self.author.as_deref().map(short),
            thread: self.thread.as_deref().map(short),
        }
    }
}

fn short(part: &str) -> Cow<'static, str> {
    if part.len() <= LONGEST_PART {
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

fn given(id: &str) -> Option<&str> {
    Some(id.trim()).filter(|id| !id.is_empty())
}
