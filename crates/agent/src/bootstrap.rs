//! Bootstrap files: the files that define an agent, and the sessions that see them.
//!
//! | file | loaded in | in the prompt |
//! |---|---|---|
//! | `role.md`, `AGENTS.md`, `TOOLS.md` | every session | every session |
//! | `self.md`, `SOUL.md`, `IDENTITY.md`, `USER.md` | all but subagents and jobs | the same |
//! | `MEMORY.md` | the owner's own sessions | the same, as memory |
//! | `HEARTBEAT.md` | main, heartbeat | heartbeat |
//! | `BOOTSTRAP.md` | the owner's own sessions | main, while it exists |
//!
//! See spec BST-001 to BST-008, C-07 and C-39. Not specified, but decided here: people other than
//! the owner do not get `BOOTSTRAP.md` either, since its ritual defines the agent; API and work
//! sessions are treated as direct conversations, the tenant's global session as a group. A main
//! session is the owner's only if no messages of other people are routed to it.

use holdfast_types::SessionKind;
use serde::{Deserialize, Serialize};

mod trim;

pub use trim::{HEAD_PERCENT, MAX_FILE_CHARS, TAIL_PERCENT, trimmed};

/// Name of a bootstrap file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum BootstrapName {
    /// What the agent is for and what it must not do, by its owner.
    Role,
    /// What the agent says of itself.
    SelfFile,
    Soul,
    /// Name and appearance of the agent.
    Identity,
    /// The user of the agent.
    User,
    Agents,
    Tools,
    Heartbeat,
    /// Long-term notes of the agent.
    Memory,
    /// Ritual of the first run; removed afterwards.
    Bootstrap,
}

impl BootstrapName {
    /// In the order of the prompt.
    pub const ALL: [Self; 10] = [
        Self::Role,
        Self::SelfFile,
        Self::Soul,
        Self::Identity,
        Self::User,
        Self::Agents,
        Self::Tools,
        Self::Heartbeat,
        Self::Memory,
        Self::Bootstrap,
    ];

    /// Path in the agent's workspace.
    #[must_use]
    pub const fn path(self) -> &'static str {
        match self {
            Self::Role => "role.md",
            Self::SelfFile => "self.md",
            Self::Soul => "SOUL.md",
            Self::Identity => "IDENTITY.md",
            Self::User => "USER.md",
            Self::Agents => "AGENTS.md",
            Self::Tools => "TOOLS.md",
            Self::Heartbeat => "HEARTBEAT.md",
            Self::Memory => "MEMORY.md",
            Self::Bootstrap => "BOOTSTRAP.md",
        }
    }

    /// Returns the bootstrap file with this path.
    #[must_use]
    pub fn of(path: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|name| name.path() == path)
    }
}

/// Bootstrap file as it is in the workspace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BootstrapFile {
    pub name: BootstrapName,
    /// `None` if the file does not exist.
    pub content: Option<String>,
}

impl BootstrapFile {
    /// Returns the content without trailing white space; `None` if that is empty.
    pub(crate) fn text(&self) -> Option<&str> {
        self.content.as_deref().map(str::trim_end).filter(|text| !text.is_empty())
    }
}

/// People who can read a session, and with it the rights of its turns.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Audience {
    /// The agent's verified owner and nobody else.
    Owner,
    /// Nobody: the agent works for its owner, in a job or on a piece of work. It has the owner's
    /// files and connections, and neither reads the notes about the owner nor changes instructions.
    Agent,
    /// Other people too, or unknown ones.
    Others,
}

impl Audience {
    /// Whether turns have the owner's files and connections, and reach the owner's conversations.
    #[must_use]
    pub const fn has_owner_rights(self) -> bool {
        match self {
            Self::Owner | Self::Agent => true,
            Self::Others => false,
        }
    }
}

/// Whether a session may see a file at all, in its prompt or through a tool.
#[must_use]
pub const fn may_load(kind: SessionKind, audience: Audience, name: BootstrapName) -> bool {
    let is_private = match kind {
        SessionKind::Main
        | SessionKind::Heartbeat
        | SessionKind::Dm
        | SessionKind::Api
        | SessionKind::Work => matches!(audience, Audience::Owner),
        SessionKind::Group
        | SessionKind::Topic
        | SessionKind::Global
        | SessionKind::Subagent
        | SessionKind::Cron => false,
    };
    match name {
        BootstrapName::Role | BootstrapName::Agents | BootstrapName::Tools => true,
        BootstrapName::SelfFile
        | BootstrapName::Soul
        | BootstrapName::Identity
        | BootstrapName::User => !matches!(kind, SessionKind::Subagent | SessionKind::Cron),
        BootstrapName::Memory | BootstrapName::Bootstrap => is_private,
        BootstrapName::Heartbeat => matches!(kind, SessionKind::Main | SessionKind::Heartbeat),
    }
}

/// Whether a session's prompt contains a file.
#[must_use]
pub const fn is_shown(kind: SessionKind, audience: Audience, name: BootstrapName) -> bool {
    let has_its_place = match name {
        BootstrapName::Heartbeat => matches!(kind, SessionKind::Heartbeat),
        BootstrapName::Bootstrap => matches!(kind, SessionKind::Main),
        BootstrapName::Role
        | BootstrapName::SelfFile
        | BootstrapName::Soul
        | BootstrapName::Identity
        | BootstrapName::User
        | BootstrapName::Agents
        | BootstrapName::Tools
        | BootstrapName::Memory => true,
    };
    has_its_place && may_load(kind, audience, name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn loaded(kind: SessionKind, audience: Audience) -> Vec<&'static str> {
        let may = |name: &BootstrapName| may_load(kind, audience, *name);
        BootstrapName::ALL.into_iter().filter(may).map(BootstrapName::path).collect()
    }

    fn shown(kind: SessionKind, audience: Audience) -> Vec<&'static str> {
        let is_shown = |name: &BootstrapName| is_shown(kind, audience, *name);
        BootstrapName::ALL.into_iter().filter(is_shown).map(BootstrapName::path).collect()
    }

    /// Files that every conversation but those of subagents and jobs loads.
    const COMMON: [&str; 7] =
        ["role.md", "self.md", "SOUL.md", "IDENTITY.md", "USER.md", "AGENTS.md", "TOOLS.md"];

    #[test]
    fn the_owner_s_main_session_and_its_heartbeat_load_all_files() {
        for kind in [SessionKind::Main, SessionKind::Heartbeat] {
            assert_eq!(loaded(kind, Audience::Owner).len(), BootstrapName::ALL.len(), "{kind:?}");
        }
    }

    #[test]
    fn groups_topics_and_the_shared_session_never_load_memory_heartbeat_or_bootstrap() {
        for kind in [SessionKind::Group, SessionKind::Topic, SessionKind::Global] {
            for audience in [Audience::Owner, Audience::Others] {
                assert_eq!(loaded(kind, audience), COMMON, "{kind:?}");
                assert_eq!(shown(kind, audience), COMMON, "{kind:?}");
            }
        }
    }

    #[test]
    fn a_direct_conversation_loads_memory_only_for_the_owner() {
        for kind in [SessionKind::Dm, SessionKind::Api, SessionKind::Work] {
            let owner = [&COMMON[..], &["MEMORY.md", "BOOTSTRAP.md"]].concat();
            assert_eq!(loaded(kind, Audience::Owner), owner, "{kind:?}");
            assert_eq!(loaded(kind, Audience::Agent), COMMON, "{kind:?}");
            assert_eq!(loaded(kind, Audience::Others), COMMON, "{kind:?}");
        }
    }

    #[test]
    fn a_main_session_that_others_are_led_into_tells_them_nothing_private() {
        let more = [&COMMON[..], &["HEARTBEAT.md"]].concat();
        assert_eq!(loaded(SessionKind::Main, Audience::Others), more);
        assert_eq!(shown(SessionKind::Main, Audience::Others), COMMON);
    }

    #[test]
    fn subagents_and_jobs_load_only_role_agents_and_tools() {
        for kind in [SessionKind::Subagent, SessionKind::Cron] {
            let few = ["role.md", "AGENTS.md", "TOOLS.md"];
            for audience in [Audience::Owner, Audience::Agent, Audience::Others] {
                assert_eq!(loaded(kind, audience), few, "{kind:?} {audience:?}");
            }
        }
    }

    #[test]
    fn the_ritual_is_shown_in_the_main_session_and_the_heartbeat_s_list_in_the_heartbeat() {
        let main = [&COMMON[..], &["MEMORY.md", "BOOTSTRAP.md"]].concat();
        assert_eq!(shown(SessionKind::Main, Audience::Owner), main);
        let heartbeat = [&COMMON[..], &["HEARTBEAT.md", "MEMORY.md"]].concat();
        assert_eq!(shown(SessionKind::Heartbeat, Audience::Owner), heartbeat);
        let dm = [&COMMON[..], &["MEMORY.md"]].concat();
        assert_eq!(shown(SessionKind::Dm, Audience::Owner), dm);
    }

    #[test]
    fn a_path_names_its_file_and_nothing_else_does() {
        for name in BootstrapName::ALL {
            assert_eq!(BootstrapName::of(name.path()), Some(name));
        }
        assert_eq!(BootstrapName::of("soul.md"), None);
        assert_eq!(BootstrapName::of("/etc/SOUL.md"), None);
    }
}
