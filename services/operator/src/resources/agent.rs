//! The resource `Agent`.

pub(crate) mod work;

use std::collections::BTreeMap;

use holdfast_proto::gateway::v1 as pb;
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use self::work::{BehaviorDocuments, Behaviors, HitPoints};
use super::{DeletionPolicy, Managed, ResourceStatus, gateway_name, non_empty};

/// An agent of a tenant. A field that is absent has the gateway's default.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, CustomResource, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[kube(
    group = "holdfast.dev",
    version = "v1alpha1",
    kind = "Agent",
    plural = "agents",
    namespaced,
    category = "holdfast",
    status = "ResourceStatus",
    doc = "An agent of a tenant.",
    annotation("helm.sh/resource-policy", "keep"),
    printcolumn(name = "Tenant", type_ = "string", json_path = ".spec.tenant"),
    printcolumn(name = "Model", type_ = "string", json_path = ".spec.model"),
    printcolumn(name = "Ready", type_ = "string", json_path = ".status.conditions[?(@.type=='Ready')].status"),
    printcolumn(name = "Reason", type_ = "string", json_path = ".status.conditions[?(@.type=='Ready')].reason"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    validation = Rule::new("has(self.spec.name) || self.metadata.name.matches('^[a-z0-9-]{1,64}$')").message("the name of the resource cannot be that in the gateway: set `spec.name`")
)]
#[x_kube(
    validation = Rule::new("has(self.name) == has(oldSelf.name) && (!has(self.name) || self.name == oldSelf.name)").message("`name` never changes: create another resource"),
    validation = Rule::new("self.tenant == oldSelf.tenant").message("`tenant` never changes: create another resource"),
    validation = Rule::new("!has(self.tools) || !has(self.noTools) || !self.noTools").message("give `tools` or `noTools`, and not both")
)]
pub struct AgentSpec {
    /// Name of the Tenant resource, in the same namespace. It never changes.
    #[schemars(length(min = 1, max = 253))]
    pub tenant: String,
    /// Name of the agent; that of the resource if absent. It never changes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = r"^[a-z0-9_-]{1,64}$"))]
    pub name: Option<String>,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub description: String,
    /// Instructions of the agent, in its prompt.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub instructions: String,
    /// `provider:model` or an alias; the tenant's default if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// Fallback models, tried in order if its own model fails.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 5))]
    pub fallbacks: Vec<String>,
    /// How much its model thinks before it answers, if it can be told; off if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub thinking: Option<Thinking>,
    /// Makes it the tenant's default agent. Absent or false leaves the default as it is.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub default: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue_mode: Option<QueueMode>,
    /// Who shares a conversation with a person.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dm_scope: Option<DmScope>,
    /// Who shares a conversation in a group.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group_scope: Option<GroupScope>,
    /// Milliseconds that queue mode `collect` waits for further messages.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub debounce_ms: Option<u32>,
    /// IANA name, for the date that the agent is told.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time_zone: Option<String>,
    /// Tools that the agent may use; all if absent. Excludes `noTools`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1))]
    pub tools: Option<Vec<String>>,
    /// The agent has no tools. Excludes `tools`.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub no_tools: bool,
    /// Names of other agents that it may run as subagents; `*` is all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub spawns: Vec<String>,
    /// Sets of tools for its subagents, by name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub bundles: BTreeMap<String, Vec<String>>,
    /// Timeout of an approval, in seconds; the runner's default if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub approval_timeout_seconds: Option<u32>,
    /// What its prompt is made of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<AgentKind>,
    /// How often it reacts to messages, on channels with reactions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reactions: Option<Reactions>,
    /// Contents of its prompt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub context: Option<Context>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub heartbeat: Option<Heartbeat>,
    /// Work in steps, by behaviours; the agent has none if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub behaviors: Option<Behaviors>,
    /// The agent's own behaviours: documents in YAML or JSON by their names. Others that it has of
    /// its own are deleted. Absent leaves them as they are.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub behavior_documents: Option<BehaviorDocuments>,
    /// What work costs the agent, and how it recovers; work costs it nothing if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hit_points: Option<HitPoints>,
    #[serde(default, skip_serializing_if = "DeletionPolicy::is_default")]
    pub deletion_policy: DeletionPolicy,
}

/// An enum whose values are written as the gateway writes them.
macro_rules! words {
    ($(#[$doc:meta])* $name:ident { $($value:ident = $word:literal),* $(,)? }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
        pub enum $name {
            $(#[serde(rename = $word)] $value),*
        }

        impl $name {
            const fn as_str(self) -> &'static str {
                match self { $(Self::$value => $word),* }
            }

            fn parse(word: &str) -> Option<Self> {
                match word { $($word => Some(Self::$value),)* _ => None }
            }
        }
    };
}

words!(Thinking { Off = "off", Low = "low", Medium = "medium", High = "high" });
words!(QueueMode {
    Steer = "steer",
    Followup = "followup",
    Collect = "collect",
    Interrupt = "interrupt",
});
words!(DmScope {
    Main = "main",
    PerPeer = "per-peer",
    PerChannelPeer = "per-channel-peer",
    PerAccountChannelPeer = "per-account-channel-peer",
});
words!(GroupScope { Group = "group", GroupUser = "group-user" });
words!(AgentKind { Embedded = "embedded", Simple = "simple" });
words!(Reactions { Off = "off", Minimal = "minimal", Extensive = "extensive" });
words!(PromptStrategy { Full = "full", Lite = "lite", Custom = "custom", None = "none" });
words!(HeartbeatTarget { Main = "main", Last = "last" });

/// Contents of an agent's prompt. An empty list restricts nothing.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Context {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub strategy: Option<PromptStrategy>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub include_tools: Vec<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub exclude_tools: Vec<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub include_skills: Vec<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub exclude_skills: Vec<String>,
    /// Include the long-term notes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub include_memory: Option<bool>,
    /// Include runtime facts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub include_runtime: Option<bool>,
    /// Recommend skills for each message.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub recommend_skills: Option<RecommendSkills>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RecommendSkills {
    /// Model that chooses among several candidates.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// Weights of channel, keywords, history and recency, with sum 100.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 4))]
    pub weights: Vec<u32>,
}

/// Heartbeat of an agent.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Heartbeat {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub enabled: Option<bool>,
    /// Interval: a number and s, m or h.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = r"^[0-9]+[smh]$"))]
    pub every: Option<String>,
    /// `{content}` is replaced by the contents of HEARTBEAT.md.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prompt: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target: Option<HeartbeatTarget>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// Characters beside HEARTBEAT_OK up to which a reply counts as no news.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ack_max_chars: Option<u32>,
    /// `main`, or a session's key; a separate session if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub active_hours: Option<ActiveHours>,
    /// Send the model's reasoning with its reply.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub include_reasoning: bool,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ActiveHours {
    #[schemars(regex(pattern = r"^[0-2][0-9]:[0-5][0-9]$"))]
    pub start: String,
    #[schemars(regex(pattern = r"^[0-2][0-9]:[0-5][0-9]$"))]
    pub end: String,
    /// user, local or an IANA name; user if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time_zone: Option<String>,
}

impl Agent {
    /// Name of the agent in the gateway.
    pub(crate) fn gateway_name(&self) -> String {
        gateway_name(self, self.spec.name.as_deref())
    }
}

impl Managed for Agent {
    fn status(&self) -> Option<&ResourceStatus> {
        self.status.as_ref()
    }

    fn deletion_policy(&self) -> DeletionPolicy {
        self.spec.deletion_policy
    }

    fn tenant(&self) -> Option<&str> {
        Some(&self.spec.tenant)
    }

    fn claim(&self) -> String {
        format!("{}/{}", self.spec.tenant, self.gateway_name())
    }
}

impl AgentSpec {
    /// The gateway's message. `is_default` is whether it is the default agent now.
    pub(crate) fn to_message(&self, id: String, name: String, is_default: bool) -> pb::Agent {
        let word = |word: Option<&'static str>| word.unwrap_or_default().to_owned();
        let bundle = |(name, tools): (&String, &Vec<String>)| pb::Bundle {
            name: name.clone(),
            tools: tools.clone(),
        };
        pb::Agent {
            id,
            name,
            description: self.description.clone(),
            instructions: self.instructions.clone(),
            model: self.model.clone().unwrap_or_default(),
            is_default: self.default || is_default,
            queue_mode: word(self.queue_mode.map(QueueMode::as_str)),
            dm_scope: word(self.dm_scope.map(DmScope::as_str)),
            group_scope: word(self.group_scope.map(GroupScope::as_str)),
            debounce_ms: self.debounce_ms.unwrap_or_default(),
            time_zone: self.time_zone.clone().unwrap_or_default(),
            tools: self.tools.clone().unwrap_or_default(),
            spawns: self.spawns.clone(),
            approval_timeout_s: self.approval_timeout_seconds.unwrap_or_default(),
            fallbacks: self.fallbacks.clone(),
            thinking: word(self.thinking.map(Thinking::as_str)),
            context: self.context.clone().map(Context::into_message),
            bundles: self.bundles.iter().map(bundle).collect(),
            heartbeat: self.heartbeat.clone().map(Heartbeat::into_message),
            no_tools: self.no_tools,
            kind: word(self.kind.map(AgentKind::as_str)),
            reactions: word(self.reactions.map(Reactions::as_str)),
            // No field of the resource (decision 0087): an update keeps it.
            channels: std::collections::HashMap::new(),
            behaviors: self.behaviors.clone().map(Behaviors::into_message),
            hit_points: self.hit_points.clone().map(HitPoints::into_message),
            // No field of the resource (decision 0099): an update keeps it.
            self_improve: None,
            // The gateway tells them.
            state: String::new(),
            did: String::new(),
            version: 0,
            created_at: None,
            updated_at: None,
        }
    }

    /// All that the gateway has of an agent. Without `documents` its own behaviours are not
    /// described.
    pub(crate) fn from_message(
        agent: pb::Agent,
        documents: Option<BehaviorDocuments>,
        tenant: &str,
    ) -> Self {
        let set = |number: u32| Some(number).filter(|number| *number > 0);
        Self {
            tenant: tenant.to_owned(),
            name: Some(agent.name),
            description: agent.description,
            instructions: agent.instructions,
            model: non_empty(agent.model),
            fallbacks: agent.fallbacks,
            thinking: Thinking::parse(&agent.thinking),
            default: agent.is_default,
            queue_mode: QueueMode::parse(&agent.queue_mode),
            dm_scope: DmScope::parse(&agent.dm_scope),
            group_scope: GroupScope::parse(&agent.group_scope),
            debounce_ms: set(agent.debounce_ms),
            time_zone: non_empty(agent.time_zone),
            tools: Some(agent.tools).filter(|tools| !tools.is_empty()),
            no_tools: agent.no_tools,
            spawns: agent.spawns,
            bundles: agent.bundles.into_iter().map(|one| (one.name, one.tools)).collect(),
            approval_timeout_seconds: set(agent.approval_timeout_s),
            kind: AgentKind::parse(&agent.kind),
            reactions: Reactions::parse(&agent.reactions),
            context: agent.context.map(Context::from_message),
            heartbeat: agent.heartbeat.map(Heartbeat::from_message),
            behaviors: agent.behaviors.map(Behaviors::from_message),
            behavior_documents: documents,
            hit_points: agent.hit_points.map(HitPoints::from_message),
            deletion_policy: DeletionPolicy::default(),
        }
    }
}

impl Context {
    fn into_message(self) -> pb::ContextOptions {
        pb::ContextOptions {
            strategy: self.strategy.map_or("", PromptStrategy::as_str).to_owned(),
            include_tools: self.include_tools,
            exclude_tools: self.exclude_tools,
            include_skills: self.include_skills,
            exclude_skills: self.exclude_skills,
            include_memory: self.include_memory,
            include_runtime: self.include_runtime,
            recommend_skills: self.recommend_skills.map(|recommend| pb::RecommendSkills {
                model: recommend.model.unwrap_or_default(),
                weights: recommend.weights,
            }),
        }
    }

    fn from_message(options: pb::ContextOptions) -> Self {
        Self {
            strategy: PromptStrategy::parse(&options.strategy),
            include_tools: options.include_tools,
            exclude_tools: options.exclude_tools,
            include_skills: options.include_skills,
            exclude_skills: options.exclude_skills,
            include_memory: options.include_memory,
            include_runtime: options.include_runtime,
            recommend_skills: options.recommend_skills.map(|recommend| RecommendSkills {
                model: non_empty(recommend.model),
                weights: recommend.weights,
            }),
        }
    }
}

impl Heartbeat {
    fn into_message(self) -> pb::HeartbeatSettings {
        pb::HeartbeatSettings {
            enabled: self.enabled,
            every: self.every.unwrap_or_default(),
            prompt: self.prompt.unwrap_or_default(),
            target: self.target.map_or("", HeartbeatTarget::as_str).to_owned(),
            model: self.model.unwrap_or_default(),
            ack_max_chars: self.ack_max_chars,
            session: self.session.unwrap_or_default(),
            active_hours: self.active_hours.map(|hours| pb::ActiveHours {
                start: hours.start,
                end: hours.end,
                time_zone: hours.time_zone.unwrap_or_default(),
            }),
            include_reasoning: self.include_reasoning,
        }
    }

    fn from_message(settings: pb::HeartbeatSettings) -> Self {
        Self {
            enabled: settings.enabled,
            every: non_empty(settings.every),
            prompt: non_empty(settings.prompt),
            target: HeartbeatTarget::parse(&settings.target),
            model: non_empty(settings.model),
            ack_max_chars: settings.ack_max_chars,
            session: non_empty(settings.session),
            active_hours: settings.active_hours.map(|hours| ActiveHours {
                start: hours.start,
                end: hours.end,
                time_zone: non_empty(hours.time_zone),
            }),
            include_reasoning: settings.include_reasoning,
        }
    }
}
