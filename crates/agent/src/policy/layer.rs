//! The nine policy layers and their order.

/// Layer of the policy (spec POL-005), in the order of evaluation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Layer {
    Profile,
    /// Profile for a provider or a model, and its `also_allow`.
    ProviderProfile,
    Global,
    /// The tenant's lists for a provider or a model.
    GlobalProvider,
    /// The agent's lists, and those of its route, its behaviour and the messages.
    Agent,
    /// The agent's lists for a provider or a model.
    AgentProvider,
    /// Place of the conversation: a group, a channel.
    Chat,
    /// Restrictions of sessions whose commands must be isolated.
    Sandbox,
    /// Restrictions of subagents and job runs.
    Subagent,
}

impl Layer {
    /// From 1 to 9.
    #[must_use]
    pub const fn number(self) -> u8 {
        match self {
            Self::Profile => 1,
            Self::ProviderProfile => 2,
            Self::Global => 3,
            Self::GlobalProvider => 4,
            Self::Agent => 5,
            Self::AgentProvider => 6,
            Self::Chat => 7,
            Self::Sandbox => 8,
            Self::Subagent => 9,
        }
    }

    /// Name in metrics and explanations.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Profile => "profile",
            Self::ProviderProfile => "provider_profile",
            Self::Global => "global",
            Self::GlobalProvider => "global_provider",
            Self::Agent => "agent",
            Self::AgentProvider => "agent_provider",
            Self::Chat => "chat",
            Self::Sandbox => "sandbox",
            Self::Subagent => "subagent",
        }
    }
}
