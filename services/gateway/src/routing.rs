//! Who answers a message from a channel, and in which session. Pure: no clock, no I/O.
//!
//! 1. The binding cascade (spec RTE-004): the most specific binding that matches
//!    chooses the agent.
//! 2. Where no binding matches, the rules (RTE-001, C-52): the first that matches
//!    chooses the agent, and may say which tools the turn has.
//! 3. Else the tenant's default agent. It also stands in for an agent that was
//!    deleted (RTE-006).
//!
//! A binding or a rule may leave the choice to a model (RTE-013): it is made by whoever runs the
//! turn, once the message is stored. The agent that is named has the session, and stands in.
//!
//! The session's key is made here of what the platform calls things, and is
//! never taken from the message: nothing that somebody writes, or names
//! themselves, reaches a session that is not theirs (RTE-008).

mod cascade;
mod key;

use std::fmt;

use holdfast_directory::{AgentCard, Routing, Rule};
use holdfast_types::{InvalidKey, ModelRoute, Peer, PeerKind, SessionKey, account_name};

/// What is known of a message from a channel.
#[derive(Debug, Clone)]
pub struct Inbound {
    /// The kind of channel.
    pub channel: String,
    /// The account's name; empty is `default`.
    pub account: String,
    /// The counterpart: whose direct messages, which group.
    pub peer: Peer,
    /// What the counterpart is part of.
    pub parent: Option<Peer>,
    /// The topic or thread.
    pub thread: Option<String>,
    /// The guild, on platforms that have them.
    pub guild: Option<String>,
    /// The team, on platforms that have them.
    pub team: Option<String>,
    /// Who wrote it.
    pub sender: Option<String>,
    /// What they wrote.
    pub text: String,
}

impl Inbound {
    /// The channel as bindings, rules and identities have it.
    fn channel(&self) -> String {
        self.channel.trim().to_lowercase()
    }

    /// The account as bindings have it.
    fn account(&self) -> String {
        account_name(&self.account)
    }

    /// Who wrote it; in direct messages that is who they are held with.
    fn author(&self) -> Option<&str> {
        let direct = (self.peer.kind == PeerKind::Direct).then_some(self.peer.id.as_str());
        let given = [self.sender.as_deref(), direct].into_iter().flatten();
        given.map(str::trim).find(|id| !id.is_empty())
    }
}

/// What chose the agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum MatchedBy {
    /// A binding for the counterpart.
    Peer,
    /// A binding for what the counterpart is part of.
    ParentPeer,
    /// A binding for the guild.
    Guild,
    /// A binding for the team.
    Team,
    /// A binding for the account.
    Account,
    /// A binding for the whole channel.
    Channel,
    /// A rule, by its place; the first is 1.
    Rule(usize),
    /// Nothing did.
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

/// Where a message goes, and why.
#[derive(Debug, Clone)]
pub struct Routed {
    /// Who answers.
    pub agent: AgentCard,
    /// The session.
    pub key: SessionKey,
    /// The agent's main session.
    pub main_key: SessionKey,
    /// What chose the agent.
    pub matched_by: MatchedBy,
    /// The tools that the turn may use, where a rule says so; `None` leaves the agent's own.
    pub tools: Option<Vec<String>>,
    /// That a model says who answers: then the agent stands in where it does not.
    pub by_model: Option<ModelRoute>,
}

/// Says where a message goes.
///
/// # Errors
///
/// If no key can be made of what the message says, which nothing that was tried has done.
pub fn route(routing: &Routing, inbound: &Inbound) -> Result<Routed, InvalidKey> {
    let Chosen { agent, matched_by, tools, by_model } = choose(routing, inbound);
    Ok(Routed {
        key: key::session_key(routing, agent, inbound)?,
        main_key: SessionKey::main(&agent.name),
        agent: agent.clone(),
        matched_by,
        tools,
        by_model,
    })
}

/// What a binding or a rule says.
struct Chosen<'r> {
    agent: &'r AgentCard,
    matched_by: MatchedBy,
    tools: Option<Vec<String>>,
    by_model: Option<ModelRoute>,
}

fn choose<'r>(routing: &'r Routing, inbound: &Inbound) -> Chosen<'r> {
    if let Some((binding, matched_by)) = cascade::find(routing.bindings(), inbound) {
        let agent = routing.agent_or_default(binding.agent);
        return Chosen { agent, matched_by, tools: None, by_model: binding.by_model.clone() };
    }
    let channel = inbound.channel();
    let found = routing.rules().iter().zip(1..).find(|(rule, _)| matches(rule, &channel, inbound));
    match found {
        Some((rule, place)) => {
            let agent = routing.agent_or_default(rule.agent);
            let (tools, by_model) = (rule.tools.clone(), rule.by_model.clone());
            Chosen { agent, matched_by: MatchedBy::Rule(place), tools, by_model }
        }
        None => {
            let agent = routing.default_agent();
            Chosen { agent, matched_by: MatchedBy::Default, tools: None, by_model: None }
        }
    }
}

/// Every key that a rule gives must match; one that gives none takes everything.
fn matches(rule: &Rule, channel: &str, inbound: &Inbound) -> bool {
    rule.channel.as_deref().is_none_or(|wanted| wanted == channel)
        && rule.user_id.as_deref().is_none_or(|wanted| inbound.author() == Some(wanted))
        && rule.pattern.as_ref().is_none_or(|pattern| pattern.is_in(&inbound.text))
}

#[cfg(test)]
mod tests;
