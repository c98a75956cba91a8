//! What is denied where nobody wrote anything.
//!
//! | list | layer | when | who can lift it |
//! |---|---|---|---|
//! | providers | 4 | the model is the provider's | `also_allow` of a matching `by_provider` |
//! | groups | 7 | a group or a topic | `also_allow` of a matching chat rule |
//! | sandbox | 8 | restricted mode | nobody: isolate instead |
//! | subagents | 9 | a subagent or a job's run | `also_allow` of `subagents` |

/// What a group may not do (spec POL-011; a topic neither, C-42).
pub const GROUP_DENY: &[&str] = &["exec", "write", "edit", "apply_patch", "sessions_spawn", "cron"];

/// What may not run without isolation (spec POL-010).
pub const SANDBOX_DENY: &[&str] = &["exec", "write", "edit", "apply_patch"];

/// What a subagent may not do (spec POL-009, with `message` by C-08).
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
    /// The provider and its models, as `by_provider` writes it.
    pub key: &'static str,
    /// The tools.
    pub deny: &'static [&'static str],
}

/// The lists that hold unless something lifts them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Defaults {
    /// By provider and model.
    pub providers: &'static [ProviderDenial],
    /// In groups and topics.
    pub groups: &'static [&'static str],
    /// Without isolation.
    pub sandbox: &'static [&'static str],
    /// For subagents and the runs of jobs.
    pub subagents: &'static [&'static str],
}

/// Spec POL-012. Google is listed since it was asked for: it denies nothing.
const PROVIDERS: &[ProviderDenial] = &[
    ProviderDenial { key: "ollama", deny: &["image", "canvas"] },
    ProviderDenial { key: "google", deny: &[] },
    ProviderDenial { key: "*/*gpt-3.5*", deny: &["browser", "canvas"] },
];

impl Defaults {
    /// The fixed rules of the older table (S0), as data.
    #[must_use]
    pub const fn shipped() -> Self {
        Self {
            providers: PROVIDERS,
            groups: GROUP_DENY,
            sandbox: SANDBOX_DENY,
            subagents: SUBAGENT_DENY,
        }
    }

    /// The bare engine (S2): only subagents are held back, all else is what the tenant writes.
    #[must_use]
    pub const fn bare() -> Self {
        Self { providers: &[], groups: &[], sandbox: &[], subagents: SUBAGENT_DENY }
    }
}

impl Default for Defaults {
    fn default() -> Self {
        Self::shipped()
    }
}
