//! The session that a message from a channel belongs to.

use std::{borrow::Cow, fmt::Write as _};

use holdfast_directory::{AgentCard, Routing};
use holdfast_types::{GroupScope, InvalidKey, PeerKind, SessionKey};
use sha2::{Digest as _, Sha256};

use super::Inbound;

/// What stands for an id that the platform did not give. Never the main session: that is the
/// owner's.
const UNKNOWN: &str = "unknown";

/// The longest part that is kept where the whole would be too long, in bytes. Three of them,
/// each byte escaped, fit into a key with the longest agent's name.
const LONGEST_PART: usize = 40;

/// The key of the session, as the agent's scopes have it.
///
/// With [`GroupScope::GroupUser`] a person's session is theirs in all of the group's topics.
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

/// What a key is made of.
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

    /// The same, with a digest in the place of each part that is long.
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
        // Writing to a string cannot fail.
        let _ = write!(hex, "{byte:02x}");
        hex
    });
    hex.into()
}

fn given(id: &str) -> Option<&str> {
    Some(id.trim()).filter(|id| !id.is_empty())
}
