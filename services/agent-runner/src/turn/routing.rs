//! Model routing: turns whose agent is chosen by a model (spec RTE-013 to RTE-015, decision 0026).
//!
//! ```text
//! heard ─▶ does a rule ask for it? ─┬─ no ──────────────────────────────▶ the session's own agent
//!                                   ├─ chosen before, and still valid ──▶ that agent
//!                                   └─ yes ─▶ ask a model ─▶ note ──────▶ the chosen agent
//!                                               └─ fails twice ─▶ note ─▶ the session's own agent
//! ```
//!
//! The session keeps its own agent's key: order, answers and retries are those of every session.
//! Only the turn uses the chosen agent's instructions, files, tools and policy.
//!
//! **What can go wrong.** A runner crashes after asking the model: if the note was not stored yet,
//! the next runner asks again; otherwise it reads the note. The conversation's setting is written
//! after the note, by every runner that finds it.

use std::{sync::Arc, time::Duration};

use holdfast_agent::route::{
    Candidate, MAX_CANDIDATES, ROUTE_OUTPUT_TOKENS, ROUTE_TIMEOUT_SECS, RoutingChoice, parse_route,
    route_chat, route_retry_chat,
};
use holdfast_directory::{Agent, AgentState};
use holdfast_llm::{Delta, Request};
use holdfast_types::{
    AgentChoice, AgentId, Body, ChoiceOrigin, Entry, Fault as _, Kind, ModelRoute, RouteScope,
    StoredFile,
};
use holdfast_workspace::{ChangeAuthor, ContentHash, NewMedia};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use crate::{
    agents::snapshots::{AgentLookup, AgentSnapshot},
    error::Error,
    failpoints,
    turn::{
        budget,
        state::{TurnState, count_thoughts},
        think,
    },
};

/// Requests to the model if its answer is unusable.
const MAX_ATTEMPTS: usize = 2;

/// Outcome of asking the model.
enum RoutingOutcome {
    Chose(RoutingChoice),
    /// The answer is unusable, for this reason.
    Unusable(&'static str),
    /// New input or a cancellation must be handled first.
    Interrupted,
}

impl TurnState<'_> {
    /// Tools that the choice restricts this turn to.
    pub(crate) fn routed_tools(&self) -> Option<&Vec<String>> {
        self.routing_choice.as_ref().and_then(|choice| choice.tools.as_ref())
    }
}

/// Returns the agent of this turn; `None` if new input must be handled first.
pub(crate) async fn route_turn(
    turn: &mut TurnState<'_>,
    home: &Arc<AgentSnapshot>,
) -> Result<Option<Arc<AgentSnapshot>>, Error> {
    if let Some(choice) = turn.journal.turn().iter().rev().find_map(AgentChoice::from_entry) {
        return assign_agent(turn, home, choice).await.map(Some);
    }
    let (kept, first) = (turn.settings.routed, first_message(turn));
    let (route, is_own) = match first {
        Some(body) => (body.route.clone(), body.event.is_some()),
        None => (None, true),
    };
    let Some(route) = route else {
        // Events and ended waits continue with the agent that answered before.
        return match kept.filter(|_| is_own) {
            Some(agent) => continue_with(turn, home, agent).await.map(Some),
            None => Ok(Some(Arc::clone(home))),
        };
    };
    if let (RouteScope::Session, Some(agent)) = (route.each, kept)
        && (route.among.is_empty() || route.among.contains(&agent) || agent == home.agent)
        && find_agent(turn, home, agent).await?.is_some()
    {
        return continue_with(turn, home, agent).await.map(Some);
    }
    if count_thoughts(turn.journal.turn()) > 0 {
        // The turn began without a choice and continues without one.
        return Ok(Some(Arc::clone(home)));
    }
    let Some(choice) = choose_agent(turn, home, &route).await? else { return Ok(None) };
    metrics::counter!("holdfast_runner_routed_total", "by" => choice.by.as_str()).increment(1);
    info!(agent.id = %choice.agent, by = choice.by.as_str(), "a turn was given to an agent");
    turn.append(vec![choice.entry()]).await?;
    budget::release_reservation(turn).await;
    failpoints::point("runner.after_route").await;
    assign_agent(turn, home, choice).await.map(Some)
}

/// Forgets the chosen agent: the conversation was reset.
pub(crate) async fn reset_routing(turn: &mut TurnState<'_>) -> Result<(), Error> {
    set_routed_agent(turn, None).await
}

/// First message of the turn.
fn first_message<'t>(turn: &'t TurnState<'_>) -> Option<&'t Body> {
    turn.journal.turn().iter().find_map(|entry| match entry {
        Entry::Heard { body, .. } if !body.silent => Some(body),
        Entry::Heard { .. }
        | Entry::Thought { .. }
        | Entry::Called { .. }
        | Entry::Returned { .. }
        | Entry::Noted { .. } => None,
    })
}

/// Continues with the agent that answered before.
async fn continue_with(
    turn: &mut TurnState<'_>,
    home: &Arc<AgentSnapshot>,
    agent: AgentId,
) -> Result<Arc<AgentSnapshot>, Error> {
    if agent == home.agent {
        return Ok(Arc::clone(home));
    }
    let Some(snapshot) = find_agent(turn, home, agent).await? else { return Ok(Arc::clone(home)) };
    let choice = AgentChoice {
        name: snapshot.name.to_string(),
        ..default_choice(agent, ChoiceOrigin::Kept, "it answered before")
    };
    // If this is not stored, the next runner makes the same choice.
    turn.journal.add_unstored(choice.entry());
    assign_agent(turn, home, choice).await
}

/// Gives the turn to the chosen agent, or to the session's own if the chosen one is deleted or
/// has no model.
async fn assign_agent(
    turn: &mut TurnState<'_>,
    home: &Arc<AgentSnapshot>,
    choice: AgentChoice,
) -> Result<Arc<AgentSnapshot>, Error> {
    let lasts = match choice.by {
        ChoiceOrigin::Model | ChoiceOrigin::Kept => Some(choice.agent),
        // The next message tries again.
        ChoiceOrigin::Fallback => None,
    };
    set_routed_agent(turn, lasts).await?;
    let snapshot = match find_agent(turn, home, choice.agent).await? {
        Some(snapshot) => snapshot,
        None => Arc::clone(home),
    };
    if snapshot.agent != home.agent {
        copy_files(turn, &snapshot).await?;
        turn.journal.set_budgets(Arc::clone(&snapshot.ledger));
    }
    turn.agent = snapshot.agent;
    if snapshot.agent == choice.agent && choice.by != ChoiceOrigin::Fallback {
        turn.routing_choice = Some(choice);
    }
    Ok(snapshot)
}

async fn set_routed_agent(turn: &mut TurnState<'_>, agent: Option<AgentId>) -> Result<(), Error> {
    if turn.settings.routed == agent {
        return Ok(());
    }
    turn.settings.routed = agent;
    Ok(turn.worker.sessions.settings().set(&turn.lease.claim, &turn.settings).await?)
}

/// Loads an agent for this conversation; `None` if it is disabled, or it or its model is missing.
async fn find_agent(
    turn: &TurnState<'_>,
    home: &Arc<AgentSnapshot>,
    agent: AgentId,
) -> Result<Option<Arc<AgentSnapshot>>, Error> {
    if agent == home.agent {
        return Ok(Some(Arc::clone(home)));
    }
    let (tenant, model) = (turn.lease.claim.tenant, turn.settings.model.clone());
    Ok(match turn.worker.agents.find(tenant, agent, model).await? {
        AgentLookup::Ready(snapshot) if snapshot.state != AgentState::Enabled => None,
        // The session's key was made with the own agent's scope, which decides who reads along.
        AgentLookup::Ready(snapshot) if snapshot.dm_scope != home.dm_scope => {
            Some(Arc::new(AgentSnapshot {
                dm_scope: home.dm_scope,
                ..AgentSnapshot::clone(&snapshot)
            }))
        }
        AgentLookup::Ready(snapshot) => Some(snapshot),
        AgentLookup::NoAgent | AgentLookup::NoModel(_) => None,
    })
}

/// Lets a model choose; `None` if new input must be handled first.
async fn choose_agent(
    turn: &mut TurnState<'_>,
    home: &Arc<AgentSnapshot>,
    route: &ModelRoute,
) -> Result<Option<AgentChoice>, Error> {
    let fallback = |reason: &str| AgentChoice {
        name: home.name.to_string(),
        ..default_choice(home.agent, ChoiceOrigin::Fallback, reason)
    };
    // Read with the tenant's own access: agents of other tenants cannot be candidates.
    let agents = turn.worker.directory.agents().list(turn.lease.claim.tenant).await;
    let agents = candidates(agents.map_err(Error::directory)?, home.agent, route);
    if agents.len() < 2 {
        return Ok(Some(fallback("there is nobody to choose among")));
    }
    let asking = match &route.model {
        None => Arc::clone(home),
        model @ Some(_) => {
            let (tenant, agents) = (turn.lease.claim.tenant, &turn.worker.agents);
            match agents.find(tenant, home.agent, model.clone()).await? {
                AgentLookup::Ready(snapshot) => snapshot,
                AgentLookup::NoAgent | AgentLookup::NoModel(_) => {
                    return Ok(Some(fallback("the model that chooses cannot be used")));
                }
            }
        }
    };
    let asked = ask_routing_model(turn, &asking, &agents).await;
    if !matches!(asked, Ok(RoutingOutcome::Chose(_) | RoutingOutcome::Unusable(_))) {
        budget::release_reservation(turn).await;
    }
    Ok(match asked? {
        RoutingOutcome::Interrupted => {
            turn.reload_inbox().await?;
            None
        }
        RoutingOutcome::Unusable(reason) => Some(fallback(reason)),
        RoutingOutcome::Chose(chosen) => {
            let found = agents.iter().find(|agent| agent.name.as_str() == chosen.agent);
            let Some(agent) = found.map(|agent| agent.id) else {
                return Ok(Some(fallback("whom the model chose is not there")));
            };
            if find_agent(turn, home, agent).await?.is_none() {
                return Ok(Some(fallback("whom the model chose has no model of its own")));
            }
            let RoutingChoice { agent: name, reason, task, complexity, prompt, tools } = chosen;
            let by = ChoiceOrigin::Model;
            Some(AgentChoice { agent, name, by, reason, task, complexity, prompt, tools })
        }
    })
}

async fn ask_routing_model(
    turn: &mut TurnState<'_>,
    asking: &AgentSnapshot,
    agents: &[Agent],
) -> Result<RoutingOutcome, Error> {
    let shown: Vec<Candidate<'_>> = agents
        .iter()
        .map(|agent| Candidate {
            name: agent.name.as_str(),
            description: &agent.description,
            tools: agent.settings.tools.as_deref(),
        })
        .collect();
    let specs = turn.tools.registry().specs().into_iter();
    let tools: Vec<String> = specs.map(|spec| spec.name).collect();
    let mut chat = route_chat(&shown, &tools, turn.journal.entries(), turn.kind);
    let most = Duration::from_secs(ROUTE_TIMEOUT_SECS).min(turn.worker.config.model_timeout);
    let until = (Instant::now() + most).min(turn.deadline);
    for _ in 0..MAX_ATTEMPTS {
        turn.ensure_owned().await?;
        failpoints::point("runner.before_route").await;
        let mut request = Request {
            max_output: Some(ROUTE_OUTPUT_TOKENS),
            card: Some(Arc::clone(&asking.card)),
            ..Request::new(asking.model_id.clone(), chat.clone(), until)
        };
        if budget::reserve(turn, asking, &mut request).await?.is_some() {
            return Ok(RoutingOutcome::Unusable("a budget is spent"));
        }
        let (began, cancelled) = (Instant::now(), CancellationToken::new());
        let mut pass_over = |_: Delta| {};
        let replied = tokio::select! {
            replied = asking.model.reply(&request, &mut pass_over, &cancelled) => replied,
            unwanted = think::until_interrupted(turn) => {
                unwanted?;
                budget::charge_read(turn);
                return Ok(RoutingOutcome::Interrupted);
            }
        };
        turn.timing.model += began.elapsed();
        let reply = match replied {
            Ok(reply) => reply,
            Err(error) => {
                info!(error = &error as &dyn std::error::Error, "no model chose an agent");
                return Ok(RoutingOutcome::Unusable("the model that chooses did not answer"));
            }
        };
        turn.journal.charge_reply(&reply.model, &reply.usage);
        match parse_route(&shown, &tools, &reply.text) {
            Ok(chosen) => return Ok(RoutingOutcome::Chose(chosen)),
            Err(wrong) => chat = route_retry_chat(&chat, &reply.text, &wrong),
        }
    }
    Ok(RoutingOutcome::Unusable("the answer of the model that chooses could not be used"))
}

/// Copies the files of this turn's messages into the chosen agent's workspace; they were stored
/// in the session's own agent's. Repeating it gives the same names.
async fn copy_files(turn: &TurnState<'_>, snapshot: &AgentSnapshot) -> Result<(), Error> {
    let came = turn.journal.turn().iter().filter_map(|entry| match entry {
        Entry::Heard { body, .. } => Some(&body.attachments),
        Entry::Thought { .. }
        | Entry::Called { .. }
        | Entry::Returned { .. }
        | Entry::Noted { .. } => None,
    });
    let files: Vec<&StoredFile> =
        came.flatten().filter_map(|attachment| attachment.file.as_ref()).collect();
    let (tenant, workspaces) = (turn.lease.claim.tenant, &turn.worker.workspaces);
    let mut new = Vec::with_capacity(files.len());
    for file in files {
        let Ok(hash) = file.hash.parse::<ContentHash>() else { continue };
        if let Some(content) = workspaces.content_by_hash(tenant, &hash).await? {
            new.push(NewMedia { name: file.name().to_owned(), content });
        }
    }
    if new.is_empty() {
        return Ok(());
    }
    let by = ChangeAuthor {
        run: Some(turn.run),
        ..ChangeAuthor::new("holdfast", "came with a message").from_outside(true)
    };
    let files = turn.access(snapshot).files;
    match workspaces.store_media(tenant, snapshot.agent, files.folder(), &by, new).await {
        Ok(_) => Ok(()),
        Err(error) if matches!(error.kind(), Kind::Exhausted | Kind::Invalid) => {
            warn!(agent.id = %snapshot.agent, "files of a message were not kept: the agent's tree is full");
            Ok(())
        }
        Err(error) => Err(error.into()),
    }
}

/// A choice that no model made.
fn default_choice(agent: AgentId, by: ChoiceOrigin, reason: &str) -> AgentChoice {
    AgentChoice {
        agent,
        name: String::new(),
        by,
        reason: reason.to_owned(),
        task: String::new(),
        complexity: String::new(),
        prompt: String::new(),
        tools: None,
    }
}

/// Agents that the model may choose among: the enabled ones of the rule, or all; the session's own
/// comes first.
fn candidates(mut agents: Vec<Agent>, home: AgentId, route: &ModelRoute) -> Vec<Agent> {
    agents.retain(|agent| {
        let is_listed = route.among.is_empty() || route.among.contains(&agent.id);
        agent.id == home || (is_listed && agent.state == AgentState::Enabled)
    });
    agents.sort_by_key(|agent| agent.id != home);
    agents.truncate(MAX_CANDIDATES);
    agents
}
