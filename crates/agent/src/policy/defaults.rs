//! Default denials.
//!
//! | list | layer | applies to | lifted by |
//! |---|---|---|---|
//! | providers | 4 | the provider's models | `also_allow` of a matching `by_provider` |
//! | groups | 7 | a group or a topic | `also_allow` of a matching chat rule |
//! | sandbox | 8 | restricted mode | nothing: isolate instead |
//! | subagents | 9 | a subagent or a job's run | `also_allow` of `subagents` |

/// Tools denied in groups (spec POL-011) and topics (C-42).
pub const GROUP_DENY: &[&str] = &["exec", "write", "edit", "apply_patch", "sessions_spawn", "cron"];

/// Tools denied in restricted mode (spec POL-010).
pub const SANDBOX_DENY: &[&str] = &["exec", "write", "edit", "apply_patch"];

/// Tools denied to subagents (spec POL-009, with `message` by C-08).
pub const SUBAGENT_DENY: &[&str] = &[
    "sessions_list",
    "sessions_history",
    "sessions_send",
    "sessions_spawn",
    "gateway",
    "agents_list",
    "session_status",
    "cron",
    "memory_search",
    "memory_get",
    "message",
];

/// Tools that a provider's models cannot use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProviderDenial {
    /// Provider and models, in the form of `by_provider`.
    pub key: &'static str,
    pub deny: &'static [&'static str],
}

/// Default denials of all layers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Defaults {
    pub providers: &'static [ProviderDenial],
    /// Lists for groups and topics.
    pub groups: &'static [&'static str],
    pub sandbox: &'static [&'static str],
    /// For subagents and job runs.
    pub subagents: &'static [&'static str],
}

/// Spec POL-012 lists Google, without any denied tools.
const PROVIDERS: &[ProviderDenial] = &[
    ProviderDenial { key: "ollama", deny: &["image", "canvas"] },
    ProviderDenial { key: "google", deny: &[] },
    ProviderDenial { key: "*/*gpt-3.5*", deny: &["browser", "canvas"] },
];

impl Defaults {
    /// Returns the rules of the older table (S0).
    #[must_use]
    pub const fn shipped() -> Self {
        Self {
            providers: PROVIDERS,
            groups: GROUP_DENY,
            sandbox: SANDBOX_DENY,
            subagents: SUBAGENT_DENY,
        }
    }
}

impl Default for Defaults {
    fn default() -> Self {
        Self::shipped()
    }
}
