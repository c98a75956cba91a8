//! Routing: the agent and the session of a message from a channel. Pure: no clock, no I/O.
//!
//! 1. The binding cascade (spec RTE-004): the most specific matching binding chooses the agent.
//! 2. Without a matching binding, the rules (RTE-001, C-52): the first matching rule chooses the
//!    agent, and may limit the turn's tools.
//! 3. Otherwise the tenant's default agent. It also replaces an agent that was deleted (RTE-006).
//!
//! A binding or a rule may leave the choice to a model (RTE-013). The runner makes that choice
//! after the message is stored. The session belongs to the agent that is named here, and that agent
//! answers if the model makes no choice.
//!
//! The session key is built from the platform's ids and never taken from the message's content:
//! nothing that a sender writes, also as their own name, leads to another user's session (RTE-008).

mod cascade;
mod key;

use std::fmt;

use holdfast_directory::{RoutedAgent, Routing, RoutingRule};
use holdfast_types::{
    AgentId, InvalidSessionKey, ModelRoute, Peer, PeerKind, SessionKey, account_name,
};

pub(crate) use key::linked_author;

/// Message from a channel, as far as routing needs it.
#[derive(Debug, Clone)]
pub struct RoutingInput {
    /// Kind of channel, such as `telegram`.
    pub channel: String,
    /// Name of the channel account; empty is `default`.
    pub account: String,
    /// Peer: the user of a direct chat, or the group.
    pub peer: Peer,
    /// Peer that contains this one, such as the group of a topic.
    pub parent: Option<Peer>,
    pub thread: Option<String>,
    /// Only on platforms that have guilds.
    pub guild: Option<String>,
    /// Only on platforms that have teams.
    pub team: Option<String>,
    /// Platform's id of the sender.
    pub sender: Option<String>,
    pub text: String,
}

impl RoutingInput {
    /// Channel in the normal form of bindings, rules and identities.
    fn channel(&self) -> String {
        self.channel.trim().to_lowercase()
    }

    /// Account in the normal form of bindings.
    fn account(&self) -> String {
        account_name(&self.account)
    }

    /// Id of the sender; in a direct chat without one, the id of the peer.
    fn author(&self) -> Option<&str> {
        let direct = (self.peer.kind == PeerKind::Direct).then_some(self.peer.id.as_str());
        let given = [self.sender.as_deref(), direct].into_iter().flatten();
        given.map(str::trim).find(|id| !id.is_empty())
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum MatchedBy {
    /// A binding for the peer.
    Peer,
    /// A binding for the peer's parent.
    ParentPeer,
    Guild,
    Team,
    Account,
    Channel,
    /// Position of the rule in the tenant's list, from 1; disabled rules count.
    Rule(usize),
    /// No binding and no rule matched.
    Default,
}

impl fmt::Display for MatchedBy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Peer => "binding.peer",
            Self::ParentPeer => "binding.peer.parent",
            Self::Guild => "binding.guild",
            Self::Team => "binding.team",
            Self::Account => "binding.account",
            Self::Channel => "binding.channel",
            Self::Rule(place) => return write!(f, "rule.{place}"),
            Self::Default => "default",
        })
    }
}

/// Destination of a message, and the reason.
#[derive(Debug, Clone)]
pub struct RoutingDecision {
    pub agent: RoutedAgent,
    pub key: SessionKey,
    pub main_key: SessionKey,
    pub matched_by: MatchedBy,
    /// Tools that a rule limits the turn to; `None` leaves the agent's own.
    pub tools: Option<Vec<String>>,
    /// Set if a model chooses the agent; `agent` then answers if the model makes no choice.
    pub by_model: Option<ModelRoute>,
    /// Further agents that answer the message, with the session of each.
    pub also: Vec<(RoutedAgent, SessionKey)>,
}

/// Chooses the agent and the session of a message.
///
/// # Errors
///
/// If no session key can be built from the platform's ids. No known input causes it.
pub fn route(
    routing: &Routing,
    inbound: &RoutingInput,
) -> Result<RoutingDecision, InvalidSessionKey> {
    let RoutingChoice { agent, matched_by, tools, by_model, also } = choose(routing, inbound);
    // The default agent stands in for a deleted one only if it is to answer at all.
    let also = also.iter().filter_map(|id| routing.agents().iter().find(|one| one.id == *id));
    let also = also
        .filter(|one| one.id != agent.id)
        .map(|one| Ok((one.clone(), key::session_key(routing, one, inbound)?)));
    Ok(RoutingDecision {
        key: key::session_key(routing, agent, inbound)?,
        main_key: SessionKey::main(&agent.name),
        agent: agent.clone(),
        matched_by,
        tools,
        by_model,
        also: also.collect::<Result<_, InvalidSessionKey>>()?,
    })
}

/// Choice by a binding, a rule or the default.
struct RoutingChoice<'r> {
    agent: &'r RoutedAgent,
    matched_by: MatchedBy,
    tools: Option<Vec<String>>,
    by_model: Option<ModelRoute>,
    also: &'r [AgentId],
}

fn choose<'r>(routing: &'r Routing, inbound: &RoutingInput) -> RoutingChoice<'r> {
    if let Some((binding, matched_by)) = cascade::find_binding(routing.bindings(), inbound) {
        let agent = routing.agent_or_default(binding.agent);
        return RoutingChoice {
            agent,
            matched_by,
            tools: None,
            by_model: binding.by_model.clone(),
            also: &binding.also,
        };
    }
    let channel = inbound.channel();
    let found =
        routing.rules().iter().zip(1..).find(|(rule, _)| rule_matches(rule, &channel, inbound));
    match found {
        Some((rule, place)) => {
            let agent = routing.agent_or_default(rule.agent);
            let (tools, by_model) = (rule.tools.clone(), rule.by_model.clone());
            RoutingChoice { agent, matched_by: MatchedBy::Rule(place), tools, by_model, also: &[] }
        }
        None => {
            let agent = routing.default_agent();
            RoutingChoice {
                agent,
                matched_by: MatchedBy::Default,
                tools: None,
                by_model: None,
                also: &[],
            }
        }
    }
}

/// Whether a rule is enabled and all its conditions match; one without conditions matches everything.
fn rule_matches(rule: &RoutingRule, channel: &str, inbound: &RoutingInput) -> bool {
    !rule.disabled
        && rule.channel.as_deref().is_none_or(|wanted| wanted == channel)
        && rule.user_id.as_deref().is_none_or(|wanted| inbound.author() == Some(wanted))
        && rule.pattern.as_ref().is_none_or(|pattern| pattern.matches(&inbound.text))
}

#[cfg(test)]
mod tests;
