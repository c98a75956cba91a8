//! Session keys: which conversation a message belongs to (spec SES-001 to SES-007, C-01).
//!
//! | kind | canonical key |
//! |---|---|
//! | main | `agent:{agent}:main` |
//! | dm | `agent:{agent}:dm:{channel}:{peer}` |
//! | group | `agent:{agent}:group:{channel}:{group}`, with `:user:{user}` where each has their own |
//! | topic | `agent:{agent}:topic:{channel}:{group}:{thread}` |
//! | subagent | `agent:{agent}:subagent:{id}` |
//! | cron | `agent:{agent}:cron:{job}:{run}` |
//! | heartbeat | `agent:{agent}:heartbeat` |
//! | work | `agent:{agent}:work:{id}` |
//! | api | `agent:{agent}:api:{user}` |
//! | global | `global` |
//!
//! The tenant is no part of a key: it is a column. Agent and channel are
//! lower-cased; a peer's id keeps its case, since platforms have ids that differ
//! in nothing else. A `:` or `%` inside a part is written `%3A` or `%25`.

mod linked;
mod space;

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};

pub use linked::{
    MAX_LINKED_PERSON_BYTES, has_platform_wide_ids, is_reserved_peer, linked_peer, linked_person,
};
pub use space::{NameSpace, SINGLE_REQUEST_PREFIX, is_reserved_name};

use crate::{AgentName, PersonId};

/// Maximum length of a key, in bytes.
const MAX_KEY_BYTES: usize = 512;

/// Name of the conversation of callers who name none.
pub const MAIN_CONVERSATION: &str = "main";

/// End of the key of the session in which an agent looks after itself.
const SELF_IMPROVEMENT: &str = ":work:self-improve";

/// Whether a key is that of a session in which an agent looks after itself.
#[must_use]
pub fn is_self_improvement(key: &str) -> bool {
    key.ends_with(SELF_IMPROVEMENT)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SessionKind {
    Main,
    /// Direct messages of one other person.
    Dm,
    Group,
    /// Topic or thread of a group.
    Topic,
    Subagent,
    /// One run of a job.
    Cron,
    Heartbeat,
    Work,
    /// Session of a program, through an API.
    Api,
    /// The tenant's one session that belongs to no agent.
    Global,
}

impl SessionKind {
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Main => "main",
            Self::Dm => "dm",
            Self::Group => "group",
            Self::Topic => "topic",
            Self::Subagent => "subagent",
            Self::Cron => "cron",
            Self::Heartbeat => "heartbeat",
            Self::Work => "work",
            Self::Api => "api",
            Self::Global => "global",
        }
    }
}

/// Sharing of a session by direct messages (spec SES-006).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DmScope {
    /// All share the agent's main session. Only for an assistant with one owner.
    Main,
    /// One session for each person, on all channels.
    PerPeer,
    /// One session for each person and channel.
    #[default]
    PerChannelPeer,
    /// One session for each person, channel and account. A scope that only a newer version knows
    /// counts as this one, in which the fewest people share.
    #[serde(other)]
    PerAccountChannelPeer,
}

/// Sharing of a session by the members of a group (C-03).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum GroupScope {
    /// All members share one session.
    #[default]
    Group,
    /// Each member has a separate session. A scope that only a newer version knows counts as this
    /// one, in which the fewest people share.
    #[serde(other)]
    GroupUser,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct SessionKey {
    kind: SessionKind,
    agent: Option<AgentName>,
    text: String,
}

/// A text that is not a session key.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidSessionKey {
    #[error(
        "`{0}` is not a session key: write `agent:<agent>:main`, or another of the documented forms"
    )]
    Form(String),
    #[error("a session key of {0} bytes is too long: {MAX_KEY_BYTES} is the most")]
    TooLong(usize),
    #[error("a session key's {0} is empty")]
    Empty(&'static str),
}

impl SessionKey {
    /// Main session of an agent.
    #[must_use]
    pub fn main(agent: &AgentName) -> Self {
        Self::simple(agent, SessionKind::Main)
    }

    /// Heartbeat session of an agent.
    #[must_use]
    pub fn heartbeat(agent: &AgentName) -> Self {
        Self::simple(agent, SessionKind::Heartbeat)
    }

    /// Session of a person's direct messages.
    ///
    /// # Errors
    ///
    /// If a part is empty or the key too long. An empty peer falls back to the main session
    /// instead.
    pub fn direct(
        agent: &AgentName,
        scope: DmScope,
        channel: &str,
        account: &str,
        peer: &str,
    ) -> Result<Self, InvalidSessionKey> {
        if peer.is_empty() {
            return Ok(Self::main(agent));
        }
        let channel = lower_or_unknown(channel);
        match scope {
            DmScope::Main => Ok(Self::main(agent)),
            DmScope::PerPeer => Self::build(agent, SessionKind::Dm, &["any", peer]),
            DmScope::PerChannelPeer => Self::build(agent, SessionKind::Dm, &[&channel, peer]),
            DmScope::PerAccountChannelPeer => {
                Self::build(agent, SessionKind::Dm, &[&channel, &lower_or_unknown(account), peer])
            }
        }
    }

    /// Session of a group, or of one `user` in it.
    ///
    /// # Errors
    ///
    /// If a part is empty or the key too long.
    pub fn group(
        agent: &AgentName,
        channel: &str,
        group: &str,
        user: Option<&str>,
    ) -> Result<Self, InvalidSessionKey> {
        let channel = lower_or_unknown(channel);
        match user {
            None => Self::build(agent, SessionKind::Group, &[&channel, group]),
            Some(user) => Self::build(agent, SessionKind::Group, &[&channel, group, "user", user]),
        }
    }

    /// Session of a topic in a group.
    ///
    /// # Errors
    ///
    /// If a part is empty or the key too long.
    pub fn topic(
        agent: &AgentName,
        channel: &str,
        group: &str,
        thread: &str,
    ) -> Result<Self, InvalidSessionKey> {
        Self::build(agent, SessionKind::Topic, &[&lower_or_unknown(channel), group, thread])
    }

    /// Session that a program names.
    ///
    /// # Errors
    ///
    /// If the name is empty or too long.
    pub fn api(agent: &AgentName, user: &str) -> Result<Self, InvalidSessionKey> {
        Self::build(agent, SessionKind::Api, &[user])
    }

    /// Session in which a person talks who names none.
    ///
    /// # Errors
    ///
    /// If the key is too long.
    pub fn main_of_person(agent: &AgentName, person: PersonId) -> Result<Self, InvalidSessionKey> {
        Self::api(agent, &NameSpace::Person(person).qualify(MAIN_CONVERSATION))
    }

    /// Session of a subagent.
    ///
    /// # Errors
    ///
    /// If the id is empty or too long.
    pub fn subagent(agent: &AgentName, id: &str) -> Result<Self, InvalidSessionKey> {
        Self::build(agent, SessionKind::Subagent, &[id])
    }

    /// Session in which an agent looks after itself.
    #[must_use]
    pub fn self_improvement(agent: &AgentName) -> Self {
        let text = format!("agent:{agent}{SELF_IMPROVEMENT}");
        Self { kind: SessionKind::Work, agent: Some(agent.clone()), text }
    }

    /// Session of one run of a job.
    ///
    /// # Errors
    ///
    /// If a part is empty or the key too long.
    pub fn cron(agent: &AgentName, job: &str, run: &str) -> Result<Self, InvalidSessionKey> {
        Self::build(agent, SessionKind::Cron, &[job, run])
    }

    #[must_use]
    pub const fn kind(&self) -> SessionKind {
        self.kind
    }

    /// `None` for `global`.
    #[must_use]
    pub const fn agent(&self) -> Option<&AgentName> {
        self.agent.as_ref()
    }

    /// Canonical text of the key.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Name that a program gave the session; `None` for other kinds.
    #[must_use]
    pub fn api_name(&self) -> Option<String> {
        let is_api = self.kind == SessionKind::Api;
        self.text.splitn(4, ':').nth(3).filter(|_| is_api).map(unescape)
    }

    /// Name space of a conversation that a program or a person has named; `None` for other kinds,
    /// and for a name that belongs to no known space.
    #[must_use]
    pub fn name_space(&self) -> Option<NameSpace> {
        NameSpace::split(&self.api_name()?).map(|(space, _)| space)
    }

    fn simple(agent: &AgentName, kind: SessionKind) -> Self {
        let text = format!("agent:{agent}:{}", kind.as_str());
        Self { kind, agent: Some(agent.clone()), text }
    }

    fn build(
        agent: &AgentName,
        kind: SessionKind,
        parts: &[&str],
    ) -> Result<Self, InvalidSessionKey> {
        let mut text = format!("agent:{agent}:{}", kind.as_str());
        for part in parts {
            if part.is_empty() {
                return Err(InvalidSessionKey::Empty(kind.as_str()));
            }
            text.push(':');
            escape(part, &mut text);
        }
        if text.len() > MAX_KEY_BYTES {
            return Err(InvalidSessionKey::TooLong(text.len()));
        }
        Ok(Self { kind, agent: Some(agent.clone()), text })
    }
}

impl fmt::Display for SessionKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// Parses every form in the specification's sources; the result is canonical. A form that names no
/// agent is read as one of the agent `main`.
impl FromStr for SessionKey {
    type Err = InvalidSessionKey;

    fn from_str(given: &str) -> Result<Self, InvalidSessionKey> {
        Self::parse_with_default(given, &AgentName::default())
    }
}

impl SessionKey {
    /// Parses a key as [`FromStr`] does; a form that names no agent is read as one of `default`.
    ///
    /// # Errors
    ///
    /// If the text is not a session key.
    pub fn parse_with_default(given: &str, default: &AgentName) -> Result<Self, InvalidSessionKey> {
        if given.len() > MAX_KEY_BYTES {
            return Err(InvalidSessionKey::TooLong(given.len()));
        }
        let wrong = || InvalidSessionKey::Form(given.chars().take(80).collect());
        if given == "global" {
            return Ok(Self { kind: SessionKind::Global, agent: None, text: given.to_owned() });
        }
        let decoded: Vec<String> = given.split(':').map(unescape).collect();
        let parts: Vec<&str> = decoded.iter().map(String::as_str).collect();
        match parts.as_slice() {
            ["agent", agent, rest @ ..] if !agent.is_empty() => {
                Self::parse_agent_key(&AgentName::new(agent), rest).unwrap_or_else(|| Err(wrong()))
            }
            // Personal Agent Hub's keys name no agent: use the default one.
            [channel, "group", group, "user", user] => {
                Self::group(default, channel, group, Some(user))
            }
            [channel, "group", group] => Self::group(default, channel, group, None),
            [channel, "dm", user] => {
                Self::direct(default, DmScope::PerChannelPeer, channel, "", user)
            }
            ["subagent", id] => Self::subagent(default, id),
            _ => Err(wrong()),
        }
    }

    /// Parses the forms that begin with `agent:{agent}:`; `None` for unknown forms.
    fn parse_agent_key(
        agent: &AgentName,
        rest: &[&str],
    ) -> Option<Result<Self, InvalidSessionKey>> {
        use SessionKind as K;
        let is = |part: &str, kind: &str| part.eq_ignore_ascii_case(kind);
        Some(match rest {
            ["main"] => Ok(Self::main(agent)),
            ["heartbeat"] => Ok(Self::heartbeat(agent)),
            ["dm", channel, peer] => Self::build(agent, K::Dm, &[&lower_or_unknown(channel), peer]),
            ["dm", channel, account, peer] => Self::build(
                agent,
                K::Dm,
                &[&lower_or_unknown(channel), &lower_or_unknown(account), peer],
            ),
            ["group", channel, group] => Self::group(agent, channel, group, None),
            ["group", channel, group, "user", user] => {
                Self::group(agent, channel, group, Some(user))
            }
            ["topic", channel, group, thread] => Self::topic(agent, channel, group, thread),
            ["subagent", id] => Self::subagent(agent, id),
            ["cron", job, run] => Self::build(agent, K::Cron, &[job, run]),
            ["work", id] => Self::build(agent, K::Work, &[id]),
            ["api", user] => Self::api(agent, user),
            // PicoClaw's forms.
            [kind, peer] if is(kind, "direct") => {
                Self::direct(agent, DmScope::PerPeer, "", "", peer)
            }
            [channel, kind, peer] if is(kind, "direct") => {
                Self::direct(agent, DmScope::PerChannelPeer, channel, "", peer)
            }
            [channel, account, kind, peer] if is(kind, "direct") => {
                Self::direct(agent, DmScope::PerAccountChannelPeer, channel, account, peer)
            }
            [channel, kind, peer] if is(kind, "group") || is(kind, "channel") => {
                Self::group(agent, channel, peer, None)
            }
            _ => return None,
        })
    }
}

fn lower_or_unknown(part: &str) -> String {
    match part.trim().to_lowercase() {
        part if part.is_empty() => "unknown".to_owned(),
        part => part,
    }
}

fn escape(part: &str, into: &mut String) {
    for c in part.chars() {
        match c {
            ':' => into.push_str("%3A"),
            '%' => into.push_str("%25"),
            c if c.is_control() => into.push('_'),
            c => into.push(c),
        }
    }
}

fn unescape(part: &str) -> String {
    part.replace("%3A", ":").replace("%25", "%")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn agent() -> AgentName {
        AgentName::new("coach")
    }

    #[test]
    fn direct_messages_are_as_separate_as_the_scope_says() {
        let key = |scope| {
            SessionKey::direct(&agent(), scope, "Telegram", "Bot1", "Uabc").unwrap().to_string()
        };

        assert_eq!(key(DmScope::Main), "agent:coach:main");
        assert_eq!(key(DmScope::PerPeer), "agent:coach:dm:any:Uabc");
        assert_eq!(key(DmScope::PerChannelPeer), "agent:coach:dm:telegram:Uabc");
        assert_eq!(key(DmScope::PerAccountChannelPeer), "agent:coach:dm:telegram:bot1:Uabc");
    }

    #[test]
    fn the_forms_of_every_source_are_read() {
        for (given, canonical) in [
            ("agent:Coach:main", "agent:coach:main"),
            ("agent:coach:telegram:direct:7", "agent:coach:dm:telegram:7"),
            ("agent:coach:direct:7", "agent:coach:dm:any:7"),
            ("telegram:dm:7", "agent:main:dm:telegram:7"),
            ("slack:group:G1:user:U1", "agent:main:group:slack:G1:user:U1"),
            ("agent:coach:slack:channel:C1", "agent:coach:group:slack:C1"),
            ("agent:coach:Slack:Channel:C1", "agent:coach:group:slack:C1"),
            ("agent:coach:topic:telegram:-100:5", "agent:coach:topic:telegram:-100:5"),
            ("global", "global"),
        ] {
            assert_eq!(given.parse::<SessionKey>().unwrap().as_str(), canonical, "{given}");
        }
    }

    #[test]
    fn what_is_no_key_is_refused() {
        for given in ["", "agent", "agent::main", "agent:coach", "agent:coach:dm:x", "a:b:c:d:e:f"]
        {
            assert!(given.parse::<SessionKey>().is_err(), "{given}");
        }
        assert!(matches!(
            "x".repeat(600).parse::<SessionKey>(),
            Err(InvalidSessionKey::TooLong(600))
        ));
    }

    proptest! {
        #[test]
        fn a_key_reads_back_whatever_the_peer_is_called(peer in "\\PC{1,80}") {
            let key = SessionKey::direct(&agent(), DmScope::PerChannelPeer, "x", "", &peer).unwrap();

            prop_assert_eq!(key.as_str().parse::<SessionKey>().unwrap(), key);
        }

        #[test]
        fn two_peers_never_share_a_key(a in "[a-zA-Z:%0-9]{1,9}", b in "[a-zA-Z:%0-9]{1,9}") {
            let key = |peer: &str| SessionKey::api(&agent(), peer).unwrap();

            prop_assert_eq!(key(&a) == key(&b), a == b);
        }

        #[test]
        fn no_text_breaks_the_parser(text in ".{0,600}") {
            let _ = text.parse::<SessionKey>();
        }
    }
}
