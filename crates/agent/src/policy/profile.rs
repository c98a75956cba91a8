//! Profiles: predefined allow-lists (spec POL-001).

use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Profile {
    /// Only the session's own status.
    Minimal,
    /// Files, commands, sessions, memory, images.
    Coding,
    /// Messages, and the sessions they belong to.
    Messaging,
    Full,
}

impl Profile {
    /// Returns the entries of the allow-list.
    #[must_use]
    pub const fn allow(self) -> &'static [&'static str] {
        match self {
            Self::Minimal => &["session_status"],
            Self::Coding => {
                &["group:fs", "group:runtime", "group:sessions", "group:memory", "image"]
            }
            Self::Messaging => &[
                "group:messaging",
                "sessions_list",
                "sessions_history",
                "sessions_send",
                "session_status",
            ],
            Self::Full => &["*"],
        }
    }

    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Minimal => "minimal",
            Self::Coding => "coding",
            Self::Messaging => "messaging",
            Self::Full => "full",
        }
    }
}
