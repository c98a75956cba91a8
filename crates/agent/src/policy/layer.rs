//! The nine layers, and the order in which they are asked.

/// A layer of the policy (spec POL-005), in the order in which they are asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Layer {
    /// The profile, and what is allowed besides.
    Profile,
    /// The profile for a provider or a model, and what is allowed besides.
    ProviderProfile,
    /// What the tenant allows and denies.
    Global,
    /// The same for a provider or a model.
    GlobalProvider,
    /// What the agent is allowed and denied; what its route, its behaviour and the messages name.
    Agent,
    /// The same for a provider or a model.
    AgentProvider,
    /// Where the conversation is held: a group, a channel.
    Chat,
    /// What may run where there is no isolation.
    Sandbox,
    /// What a subagent, or the run of a job, may do.
    Subagent,
}

impl Layer {
    /// All nine, in order.
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

    /// Its number, from 1 to 9.
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

    /// Its name, as metrics and explanations use it.
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

/// The older table of nine fixed rules (spec POL-004), and the layer that each became (C-04).
///
/// The ninth, plugins, is no layer: their tools are in the catalogue before the first is asked.
pub const FIXED_RULES: [(&str, Option<Layer>); 9] = [
    ("profile", Some(Layer::Profile)),
    ("provider", Some(Layer::GlobalProvider)),
    ("model", Some(Layer::GlobalProvider)),
    ("global", Some(Layer::Global)),
    // It has no rules: the types `embedded`, `cli` and `web` deny nothing.
    ("agent type", Some(Layer::Agent)),
    ("group", Some(Layer::Chat)),
    ("sandbox", Some(Layer::Sandbox)),
    ("subagent", Some(Layer::Subagent)),
    ("plugins", None),
];
