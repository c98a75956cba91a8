//! Routing configuration of a tenant: bindings, rules and identities. The gateway applies it.

pub mod link;
pub mod pattern;

use std::collections::HashMap;

use holdfast_types::{
    AgentId, ModelId, ModelRoute, Peer, PeerKind, PersonId, RouteScope, TenantRole, account_name,
    is_reserved_peer, linked_peer, linked_person,
};
use uuid::Uuid;

use crate::{Error, Pattern, RoutedAgent, agent::check_tools};

const MAX_ID_BYTES: usize = 256;

/// Maximum number of further agents that answer a message.
const MAX_BROADCAST_AGENTS: usize = 8;

/// Maximum number of agents in a model route.
const MAX_ROUTE_AGENTS: usize = 99;

/// A binding: assigns matching messages to an agent (spec RTE-004).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Binding {
    pub id: Uuid,
    /// Channel name, in lower case.
    pub channel: String,
    /// Account name: empty means `default`, `*` matches any.
    pub account: String,
    /// Chat or user; `None` matches any.
    pub peer: Option<Peer>,
    /// Guild, on platforms that have them.
    pub guild: Option<String>,
    /// Team, on platforms that have them.
    pub team: Option<String>,
    /// Agent that answers. If it was deleted, the default agent answers.
    pub agent: AgentId,
    /// Choice of the answering agent by a model. `agent` is the fallback and owns the sessions.
    pub by_model: Option<ModelRoute>,
    /// Further agents that answer each message, in sessions of their own.
    pub also: Vec<AgentId>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NewBinding {
    pub channel: String,
    /// Account name: empty means `default`, `*` matches any.
    pub account: String,
    /// Chat or user; `None` matches any.
    pub peer: Option<Peer>,
    pub guild: Option<String>,
    pub team: Option<String>,
    /// Name or id of the agent.
    pub agent: String,
    /// Choice of the answering agent by a model.
    pub by_model: Option<NewModelRoute>,
    /// Names or ids of further agents that answer each message.
    pub also: Vec<String>,
}

/// Choice of the answering agent by a model, as it is configured.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NewModelRoute {
    /// Names or ids of further agents to choose from; empty allows all.
    pub among: Vec<String>,
    /// How long a choice is kept.
    pub each: RouteScope,
    /// Model that chooses, as `provider:id`; `None` uses the agent's model.
    pub model: Option<String>,
}

/// A rule: the first matching one assigns a message that no binding assigned (RTE-001, C-52).
#[derive(Debug, Clone)]
pub struct RoutingRule {
    /// Channel name, in lower case; `None` matches any.
    pub channel: Option<String>,
    /// Id of the sender; `None` matches any.
    pub user_id: Option<String>,
    /// Pattern in the message text; `None` matches any.
    pub pattern: Option<Pattern>,
    /// Agent that answers. If it was deleted, the default agent answers.
    pub agent: AgentId,
    /// Tools that the turn may use; `None` allows the agent's own.
    pub tools: Option<Vec<String>>,
    /// Choice of the answering agent by a model. `agent` is the fallback and owns the sessions.
    pub by_model: Option<ModelRoute>,
    /// A disabled rule matches nothing until it is enabled.
    pub disabled: bool,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NewRule {
    /// Channel name; `None` matches any.
    pub channel: Option<String>,
    /// Id of the sender; `None` matches any.
    pub user_id: Option<String>,
    /// Regular expression; `None` matches any text.
    pub pattern: Option<String>,
    /// Name or id of the agent.
    pub agent: String,
    /// Tools that the turn may use; `None` allows the agent's own, an empty list none.
    pub tools: Option<Vec<String>>,
    /// Choice of the answering agent by a model.
    pub by_model: Option<NewModelRoute>,
    /// A disabled rule matches nothing until it is enabled.
    pub disabled: bool,
}

/// An identity: assigns a person's account on a channel to a user (spec SES-007).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    /// Channel name, in lower case; empty matches any. `webhook/shop` is one account of a channel.
    pub channel: String,
    /// Id on the channel, in the platform's own case; on the channel `api`, a name that programs give
    /// to a user.
    pub peer: String,
    /// Id of the user. `=telegram:42` is the person of that account, on all channels.
    pub canonical: String,
}

/// Snapshot of a tenant's routing configuration.
#[derive(Debug, Clone)]
pub struct Routing {
    agents: Vec<RoutedAgent>,
    default: RoutedAgent,
    bindings: Vec<Binding>,
    rules: Vec<RoutingRule>,
    /// By peer.
    identities: HashMap<String, Vec<Identity>>,
    /// Roles of people who are known by an identity; not of those who are refused.
    people: HashMap<PersonId, TenantRole>,
}

impl Routing {
    /// Builds a snapshot; bindings and rules are in the order of evaluation.
    ///
    /// # Errors
    ///
    /// [`Error::NotFound`] if there is no agent.
    pub fn new(
        agents: Vec<RoutedAgent>,
        bindings: Vec<Binding>,
        rules: Vec<RoutingRule>,
        identities: Vec<Identity>,
    ) -> Result<Self, Error> {
        // Spec RTE-006: the flagged agent, else the first.
        let default = agents.iter().find(|agent| agent.is_default).or_else(|| agents.first());
        let Some(default) = default.cloned() else {
            return Err(Error::not_found("agent", "main"));
        };
        let mut by_peer: HashMap<String, Vec<Identity>> = HashMap::new();
        for identity in identities {
            by_peer.entry(identity.peer.clone()).or_default().push(identity);
        }
        let people = HashMap::new();
        Ok(Self { agents, default, bindings, rules, identities: by_peer, people })
    }

    /// Adds the roles of the people who are known by an identity.
    #[must_use]
    pub fn with_people(self, people: HashMap<PersonId, TenantRole>) -> Self {
        Self { people, ..self }
    }

    /// Returns the role of a person who is known by an identity; `None` if they are refused.
    #[must_use]
    pub fn role_of(&self, person: PersonId) -> Option<TenantRole> {
        self.people.get(&person).copied()
    }

    /// Returns the agent for messages that no binding and no rule assigns.
    #[must_use]
    pub const fn default_agent(&self) -> &RoutedAgent {
        &self.default
    }

    /// Returns the agent with this id, or the default agent if it was deleted (spec RTE-006).
    #[must_use]
    pub fn agent_or_default(&self, id: AgentId) -> &RoutedAgent {
        self.agents.iter().find(|agent| agent.id == id).unwrap_or(&self.default)
    }

    /// Returns the agent with this name or id.
    #[must_use]
    pub fn agent(&self, name_or_id: &str) -> Option<&RoutedAgent> {
        let wanted = AgentReference::parse(name_or_id)?;
        self.agents.iter().find(|agent| match &wanted {
            AgentReference::Id(id) => agent.id == *id,
            AgentReference::Name(name) => agent.name.as_str() == name,
        })
    }

    /// Returns the agents, in the order of creation.
    #[must_use]
    pub fn agents(&self) -> &[RoutedAgent] {
        &self.agents
    }

    /// Returns the bindings, in the order of evaluation.
    #[must_use]
    pub fn bindings(&self) -> &[Binding] {
        &self.bindings
    }

    /// Returns the rules, also disabled ones, in the order of evaluation.
    #[must_use]
    pub fn rules(&self) -> &[RoutingRule] {
        &self.rules
    }

    /// Returns the user of a person's account on a channel; `None` if no identity is configured.
    /// An identity of the channel account takes precedence over one of the channel, and this over
    /// one for any channel.
    #[must_use]
    pub fn canonical(&self, channel: &str, account: &str, peer: &str) -> Option<&str> {
        let of_peer = self.identities.get(peer)?;
        let find = |matches: &dyn Fn(&str) -> bool| {
            let found = of_peer.iter().find(|identity| matches(&identity.channel));
            found.map(|identity| identity.canonical.as_str())
        };
        find(&|on| on.split_once('/') == Some((channel, account)))
            .or_else(|| find(&|on| on == channel))
            .or_else(|| find(&|on| on.is_empty()))
    }
}

/// Reference to an agent by id or name.
pub(crate) enum AgentReference {
    Id(AgentId),
    Name(String),
}

impl AgentReference {
    /// Returns `None` if no agent can have the name.
    pub(crate) fn parse(name_or_id: &str) -> Option<Self> {
        if let Ok(id) = name_or_id.parse() {
            return Some(Self::Id(id));
        }
        let name = name_or_id.trim().to_lowercase();
        // Only the normalised form counts: otherwise any text without letters would mean `main`.
        (holdfast_types::AgentName::new(&name).as_str() == name).then_some(Self::Name(name))
    }
}

impl NewBinding {
    /// Validates the binding and normalises its fields.
    pub(crate) fn check(mut self) -> Result<Self, Error> {
        self.channel = normalise_channel(&self.channel)?;
        if self.channel.is_empty() {
            return Err(Error::Invalid("a binding needs a `channel`".to_owned()));
        }
        self.account = match self.account.trim() {
            "" => String::new(),
            "*" => "*".to_owned(),
            name => account_name(name),
        };
        if let Some(peer) = &mut self.peer {
            peer.id = normalise_id("peer_id", &peer.id)?;
            if peer.id.is_empty() {
                return Err(Error::Invalid("a binding's `peer_kind` needs a `peer_id`".to_owned()));
            }
        }
        self.by_model = self.by_model.map(NewModelRoute::check).transpose()?;
        if self.also.len() > MAX_BROADCAST_AGENTS {
            return Err(Error::Invalid(format!(
                "a message is given to {MAX_BROADCAST_AGENTS} further agents at most, and `also` has {}",
                self.also.len()
            )));
        }
        if self.by_model.is_some() && !self.also.is_empty() {
            return Err(Error::Invalid(
                "give `by_model` or `also`: a model chooses one agent, and `also` names several"
                    .to_owned(),
            ));
        }
        self.guild = normalise_optional_id("guild", self.guild)?;
        self.team = normalise_optional_id("team", self.team)?;
        Ok(self)
    }

    /// Whether both match the same messages.
    pub(crate) fn matches_same_messages(&self, other: &Binding) -> bool {
        self.channel == other.channel
            && self.account == other.account
            && self.peer == other.peer
            && self.guild == other.guild
            && self.team == other.team
    }
}

impl NewRule {
    /// Validates the rule and normalises its fields.
    pub(crate) fn check(mut self) -> Result<Self, Error> {
        self.channel = match self.channel {
            Some(name) => Some(normalise_channel(&name)?).filter(|name| !name.is_empty()),
            None => None,
        };
        self.user_id = normalise_optional_id("user_id", self.user_id)?;
        self.pattern = self.pattern.filter(|pattern| !pattern.is_empty());
        if let Some(pattern) = &self.pattern {
            pattern::compile(pattern)?;
        }
        check_tools(self.tools.as_deref())?;
        self.by_model = self.by_model.map(NewModelRoute::check).transpose()?;
        Ok(self)
    }
}

impl NewModelRoute {
    /// Checks the model and the number of agents.
    fn check(mut self) -> Result<Self, Error> {
        if self.among.len() > MAX_ROUTE_AGENTS {
            return Err(Error::Invalid(format!(
                "a model chooses among {MAX_ROUTE_AGENTS} agents at most, and `among` has {}",
                self.among.len()
            )));
        }
        self.model = self.model.filter(|model| !model.trim().is_empty());
        if let Some(model) = &self.model {
            model.parse::<ModelId>().map_err(|error| Error::Invalid(error.to_string()))?;
        }
        Ok(self)
    }
}

impl Identity {
    /// `canonical` of the accounts and users who are a person of the tenant.
    pub(crate) fn canonical_of_person(person: PersonId) -> String {
        linked_peer(&format!("person:{person}"))
    }

    /// Validates the identity and normalises its fields.
    pub(crate) fn check(mut self) -> Result<Self, Error> {
        self.channel = normalise_channel(&self.channel)?;
        self.peer = normalise_id("peer", &self.peer)?;
        self.canonical = normalise_id("canonical", &self.canonical)?;
        if self.peer.is_empty() || self.canonical.is_empty() {
            return Err(Error::Invalid("an identity needs a `peer` and a `canonical`".to_owned()));
        }
        if is_reserved_peer(&self.canonical) && linked_person(&self.canonical).is_none() {
            return Err(Error::Invalid(
                "a `canonical` that begins with `=` names an account, as in `=telegram:42`"
                    .to_owned(),
            ));
        }
        Ok(self)
    }
}

pub(crate) fn peer_kind(word: &str) -> Option<PeerKind> {
    [PeerKind::Direct, PeerKind::Group, PeerKind::Channel]
        .into_iter()
        .find(|kind| kind.as_str() == word)
}

pub(crate) fn normalise_channel(text: &str) -> Result<String, Error> {
    Ok(normalise_id("channel", text)?.to_lowercase())
}

fn normalise_optional_id(what: &str, text: Option<String>) -> Result<Option<String>, Error> {
    match text {
        Some(text) => Ok(Some(normalise_id(what, &text)?).filter(|text| !text.is_empty())),
        None => Ok(None),
    }
}

pub(crate) fn normalise_id(what: &str, text: &str) -> Result<String, Error> {
    let text = text.trim();
    if text.len() > MAX_ID_BYTES || text.contains(char::is_control) {
        return Err(Error::Invalid(format!(
            "`{what}` has {MAX_ID_BYTES} bytes at most and no control characters"
        )));
    }
    Ok(text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{AgentSettings, AgentState};

    fn card(name: &str, is_default: bool) -> RoutedAgent {
        let name = holdfast_types::AgentName::new(name);
        RoutedAgent {
            id: AgentId::generate(),
            name,
            is_default,
            settings: AgentSettings::default(),
            state: AgentState::Enabled,
        }
    }

    fn routing(agents: Vec<RoutedAgent>) -> Routing {
        Routing::new(agents, Vec::new(), Vec::new(), Vec::new()).unwrap()
    }

    #[test]
    fn the_default_agent_is_the_flagged_one_else_the_first() {
        assert_eq!(
            routing(vec![card("a", false), card("b", true)]).default_agent().name.as_str(),
            "b"
        );
        assert_eq!(
            routing(vec![card("a", false), card("b", false)]).default_agent().name.as_str(),
            "a"
        );
        assert!(Routing::new(Vec::new(), Vec::new(), Vec::new(), Vec::new()).is_err());
    }

    #[test]
    fn an_agent_is_found_by_its_name_or_id_and_nothing_else_finds_main() {
        let agents = vec![card("main", true), card("study-coach", false)];
        let id = agents[1].id;
        let routing = routing(agents);

        for found in ["study-coach", " Study-Coach", &id.to_string()] {
            assert_eq!(routing.agent(found).unwrap().id, id, "{found}");
        }
        for missing in ["", "语", "study coach", "other", &AgentId::generate().to_string()] {
            assert!(routing.agent(missing).is_none(), "{missing}");
        }
    }

    #[test]
    fn a_binding_is_stored_in_one_form() {
        let binding = NewBinding {
            channel: " Telegram ".into(),
            account: "My Bot".into(),
            guild: Some(" ".into()),
            ..NewBinding::default()
        };

        let binding = binding.check().unwrap();

        assert_eq!((binding.channel.as_str(), binding.account.as_str()), ("telegram", "my-bot"));
        assert_eq!(binding.guild, None);
        assert!(NewBinding::default().check().is_err());
    }

    #[test]
    fn a_model_that_chooses_is_one_and_chooses_among_few_enough() {
        let rule = |route| NewRule { by_model: Some(route), ..NewRule::default() };
        let model = |model: &str| NewModelRoute { model: Some(model.into()), ..Default::default() };
        let among = |count| NewModelRoute { among: vec!["a".into(); count], ..Default::default() };

        assert_eq!(rule(model(" ")).check().unwrap().by_model, Some(NewModelRoute::default()));
        assert!(rule(model("fake:small")).check().is_ok());
        assert!(rule(among(99)).check().is_ok());
        for wrong in [model("gpt-5"), among(100)] {
            assert!(matches!(rule(wrong).check(), Err(Error::Invalid(_))));
        }
    }
}
