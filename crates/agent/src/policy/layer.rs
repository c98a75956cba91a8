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
    /// Tools that may run without isolation.
    Sandbox,
    /// Restrictions of subagents and job runs.
    Subagent,
}

impl Layer {
    /// In the order of evaluation.
    pub const ALL: [Self; 9] = [
        Self::Profile,
        Self::ProviderProfile,
        Self::Global,
        Self::GlobalProvider,
        Self::Agent,
        Self::AgentProvider,
        Self::Chat,
        Self::Sandbox,
        Self::Subagent,
    ];

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

/// Older table of nine fixed rules (spec POL-004), with the layer that replaced each (C-04).
///
/// The ninth, plugins, is no layer: their tools are in the catalogue, so all layers apply to them.
pub const FIXED_RULES: [(&str, Option<Layer>); 9] = [
    ("profile", Some(Layer::Profile)),
    ("provider", Some(Layer::GlobalProvider)),
    ("model", Some(Layer::GlobalProvider)),
    ("global", Some(Layer::Global)),
    // Has no rules: the types `embedded`, `cli` and `web` deny nothing.
    ("agent type", Some(Layer::Agent)),
    ("group", Some(Layer::Chat)),
    ("sandbox", Some(Layer::Sandbox)),
    ("subagent", Some(Layer::Subagent)),
    ("plugins", None),
];
