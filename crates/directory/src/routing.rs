//! What a tenant says about who answers whom. How it is applied is the gateway's affair.

use holdfast_types::{AgentId, ModelId, ModelRoute, Peer, PeerKind, RouteEach, account_name};
use uuid::Uuid;

use crate::{AgentCard, Error, Pattern, agent::check_tools, pattern::compile};

const LONGEST_ID: usize = 256;

/// The most agents that a model chooses among.
const MOST_AMONG: usize = 99;

/// One binding: messages that match go to that agent (spec RTE-004).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Binding {
    /// Its id.
    pub id: Uuid,
    /// The channel, in lower case.
    pub channel: String,
    /// The account: empty is the one called `default`, `*` is any.
    pub account: String,
    /// The counterpart.
    pub peer: Option<Peer>,
    /// The guild, on platforms that have them.
    pub guild: Option<String>,
    /// The team, on platforms that have them.
    pub team: Option<String>,
    /// Who answers. It may have been deleted since: then the default agent does.
    pub agent: AgentId,
    /// That a model says who answers; the agent stands in, and the sessions are its.
    pub by_model: Option<ModelRoute>,
}

/// A binding to make.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NewBinding {
    /// The channel.
    pub channel: String,
    /// The account: empty is the one called `default`, `*` is any.
    pub account: String,
    /// The counterpart.
    pub peer: Option<Peer>,
    /// The guild.
    pub guild: Option<String>,
    /// The team.
    pub team: Option<String>,
    /// The agent's name or id.
    pub agent: String,
    /// That a model says who answers.
    pub by_model: Option<NewModelRoute>,
}

/// That a model says who answers, as it is given.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NewModelRoute {
    /// Names or ids of those who may be chosen, besides the agent; empty is everybody.
    pub among: Vec<String>,
    /// How long a choice holds.
    pub each: RouteEach,
    /// The model that chooses, as `provider:id`; `None` is the agent's.
    pub model: Option<String>,
}

/// One rule: the first that matches takes a message that no binding gave to anybody (RTE-001, C-52).
#[derive(Debug, Clone)]
pub struct Rule {
    /// The channel, in lower case; `None` is any.
    pub channel: Option<String>,
    /// Who wrote it; `None` is anybody.
    pub user_id: Option<String>,
    /// What is searched for in the text; `None` is anything.
    pub pattern: Option<Pattern>,
    /// Who answers. It may have been deleted since: then the default agent does.
    pub agent: AgentId,
    /// The tools that the turn may use; `None` leaves the agent's own.
    pub tools: Option<Vec<String>>,
    /// That a model says who answers; the agent stands in, and the sessions are its.
    pub by_model: Option<ModelRoute>,
    /// It leads nowhere until somebody turns it on.
    pub disabled: bool,
}

/// A rule to set.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NewRule {
    /// The channel; `None` is any.
    pub channel: Option<String>,
    /// Who wrote it; `None` is anybody.
    pub user_id: Option<String>,
    /// A regular expression; `None` is anything.
    pub pattern: Option<String>,
    /// The agent's name or id.
    pub agent: String,
    /// The tools that the turn may use; `None` leaves the agent's own, an empty list allows none.
    pub tools: Option<Vec<String>>,
    /// That a model says who answers.
    pub by_model: Option<NewModelRoute>,
    /// It leads nowhere until somebody turns it on.
    pub disabled: bool,
}

/// That somebody is known by another id on a channel (spec SES-007).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    /// The channel, in lower case; empty is any.
    pub channel: String,
    /// The id there, in the platform's own case.
    pub peer: String,
    /// Who it really is.
    pub canonical: String,
}

/// All that a tenant says about routing, as it was at one moment.
#[derive(Debug, Clone)]
pub struct Routing {
    agents: Vec<AgentCard>,
    default: AgentCard,
    bindings: Vec<Binding>,
    rules: Vec<Rule>,
    identities: Vec<Identity>,
}

impl Routing {
    /// Puts a snapshot together; bindings and rules in the order in which they count.
    ///
    /// # Errors
    ///
    /// If there is no agent at all: then nobody could answer.
    pub fn new(
        agents: Vec<AgentCard>,
        bindings: Vec<Binding>,
        rules: Vec<Rule>,
        identities: Vec<Identity>,
    ) -> Result<Self, Error> {
        // Spec RTE-006: the one that is flagged, else the first.
        let default = agents.iter().find(|agent| agent.is_default).or_else(|| agents.first());
        let Some(default) = default.cloned() else {
            return Err(Error::not_found("agent", "main"));
        };
        let rules = rules.into_iter().filter(|rule| !rule.disabled).collect();
        Ok(Self { agents, default, bindings, rules, identities })
    }

    /// Who answers where nobody else does.
    #[must_use]
    pub const fn default_agent(&self) -> &AgentCard {
        &self.default
    }

    /// The agent of that id; the default agent if there is none any more (spec RTE-006).
    #[must_use]
    pub fn agent_or_default(&self, id: AgentId) -> &AgentCard {
        self.agents.iter().find(|agent| agent.id == id).unwrap_or(&self.default)
    }

    /// The agent of that name or id.
    #[must_use]
    pub fn agent(&self, name_or_id: &str) -> Option<&AgentCard> {
        let wanted = Wanted::parse(name_or_id)?;
        self.agents.iter().find(|agent| match &wanted {
            Wanted::Id(id) => agent.id == *id,
            Wanted::Name(name) => agent.name.as_str() == name,
        })
    }

    /// The agents, in the order in which they were made.
    #[must_use]
    pub fn agents(&self) -> &[AgentCard] {
        &self.agents
    }

    /// The bindings, in the order in which they count.
    #[must_use]
    pub fn bindings(&self) -> &[Binding] {
        &self.bindings
    }

    /// The rules that are on, in order.
    #[must_use]
    pub fn rules(&self) -> &[Rule] {
        &self.rules
    }

    /// Who a peer really is; `None` if nothing is said of it. The channel's own word goes first.
    #[must_use]
    pub fn canonical(&self, channel: &str, peer: &str) -> Option<&str> {
        let find = |channel: &str| {
            let found = self.identities.iter().find(|id| id.channel == channel && id.peer == peer);
            found.map(|identity| identity.canonical.as_str())
        };
        find(channel).or_else(|| find(""))
    }
}

/// What an agent is asked for by.
pub(crate) enum Wanted {
    Id(AgentId),
    Name(String),
}

impl Wanted {
    /// `None` if no agent could have that name.
    pub(crate) fn parse(name_or_id: &str) -> Option<Self> {
        if let Ok(id) = name_or_id.parse() {
            return Some(Self::Id(id));
        }
        let name = name_or_id.trim().to_lowercase();
        // Only a name's own form: otherwise any text without letters would find `main`.
        (holdfast_types::AgentName::new(&name).as_str() == name).then_some(Self::Name(name))
    }
}

impl NewBinding {
    /// Refuses what could never match; puts the rest in the form that is stored.
    pub(crate) fn check(mut self) -> Result<Self, Error> {
        self.channel = channel(&self.channel)?;
        if self.channel.is_empty() {
            return Err(Error::Invalid("a binding needs a `channel`".to_owned()));
        }
        self.account = match self.account.trim() {
            "" => String::new(),
            "*" => "*".to_owned(),
            name => account_name(name),
        };
        if let Some(peer) = &mut self.peer {
            peer.id = id("peer_id", &peer.id)?;
            if peer.id.is_empty() {
                return Err(Error::Invalid("a binding's `peer_kind` needs a `peer_id`".to_owned()));
            }
        }
        self.by_model = self.by_model.map(NewModelRoute::check).transpose()?;
        self.guild = optional("guild", self.guild)?;
        self.team = optional("team", self.team)?;
        Ok(self)
    }

    /// Whether both match the same messages.
    pub(crate) fn is_like(&self, other: &Binding) -> bool {
        self.channel == other.channel
            && self.account == other.account
            && self.peer == other.peer
            && self.guild == other.guild
            && self.team == other.team
    }
}

impl NewRule {
    /// Refuses what could never match; puts the rest in the form that is stored.
    pub(crate) fn check(mut self) -> Result<Self, Error> {
        self.channel = match self.channel {
            Some(name) => Some(channel(&name)?).filter(|name| !name.is_empty()),
            None => None,
        };
        self.user_id = optional("user_id", self.user_id)?;
        self.pattern = self.pattern.filter(|pattern| !pattern.is_empty());
        if let Some(pattern) = &self.pattern {
            compile(pattern)?;
        }
        check_tools(self.tools.as_deref())?;
        self.by_model = self.by_model.map(NewModelRoute::check).transpose()?;
        Ok(self)
    }
}

impl NewModelRoute {
    /// Refuses a model that cannot be one, and a longer list than a model would be shown.
    fn check(mut self) -> Result<Self, Error> {
        if self.among.len() > MOST_AMONG {
            return Err(Error::Invalid(format!(
                "a model chooses among {MOST_AMONG} agents at most, and `among` has {}",
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
    /// Refuses what could never match; puts the rest in the form that is stored.
    pub(crate) fn check(mut self) -> Result<Self, Error> {
        self.channel = channel(&self.channel)?;
        self.peer = id("peer", &self.peer)?;
        self.canonical = id("canonical", &self.canonical)?;
        if self.peer.is_empty() || self.canonical.is_empty() {
            return Err(Error::Invalid("an identity needs a `peer` and a `canonical`".to_owned()));
        }
        Ok(self)
    }
}

/// The word that a binding's `peer_kind` is stored as.
pub(crate) fn peer_kind(word: &str) -> Option<PeerKind> {
    [PeerKind::Direct, PeerKind::Group, PeerKind::Channel]
        .into_iter()
        .find(|kind| kind.as_str() == word)
}

pub(crate) fn channel(text: &str) -> Result<String, Error> {
    Ok(id("channel", text)?.to_lowercase())
}

fn optional(what: &str, text: Option<String>) -> Result<Option<String>, Error> {
    match text {
        Some(text) => Ok(Some(id(what, &text)?).filter(|text| !text.is_empty())),
        None => Ok(None),
    }
}

pub(crate) fn id(what: &str, text: &str) -> Result<String, Error> {
    let text = text.trim();
    if text.len() > LONGEST_ID || text.contains(char::is_control) {
        return Err(Error::Invalid(format!(
            "`{what}` has {LONGEST_ID} bytes at most and no control characters"
        )));
    }
    Ok(text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Settings;

    fn card(name: &str, is_default: bool) -> AgentCard {
        let name = holdfast_types::AgentName::new(name);
        AgentCard { id: AgentId::generate(), name, is_default, settings: Settings::default() }
    }

    fn routing(agents: Vec<AgentCard>) -> Routing {
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
