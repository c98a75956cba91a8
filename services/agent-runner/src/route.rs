//! Turns whose agent a model chooses (spec RTE-013 to RTE-015, decision 0026).
//!
//! ```text
//! heard ─▶ asked for by its rule? ─┬─ no ─────────────────────────────▶ the session's own agent
//!                                  ├─ chosen before, and that holds ──▶ that one
//!                                  └─ yes ─▶ ask a model ─▶ note ─────▶ whom it chose
//!                                              └─ twice of no use ─▶ note ─▶ the session's own
//! ```
//!
//! The session stays one, with its own agent's key: order, answers and retries are those of every
//! session. Only who thinks in a turn is another one, with its own instructions, files, tools and
//! policy.
//!
//! **What can go wrong.** A runner dies after it has asked: before the note is stored, nothing has
//! happened, and the next one asks; after it, the next one reads it. What the conversation
//! remembers is set after the note, by everybody who finds it.

use std::{sync::Arc, time::Duration};

use holdfast_agent::route::{
    Candidate, MOST_CANDIDATES, ROUTE_OUTPUT_TOKENS, ROUTE_TIMEOUT_SECS, Routed, route_again,
    route_chat, routed,
};
use holdfast_directory::Agent;
use holdfast_llm::{Delta, Request};
use holdfast_types::{
    AgentId, Body, Choice, ChosenBy, Entry, Fault as _, Kind, ModelRoute, RouteEach, StoredFile,
};
use holdfast_workspace::{By, ContentHash, NewMedia};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use crate::{
    agents::{Brief, Found},
    error::Error,
    fail,
    turn::{Turn, thoughts},
};

/// How often a model is asked whose answer cannot be used.
const MOST_TRIES: usize = 2;

/// What came of asking.
enum Asked {
    Chose(Routed),
    /// It is of no use; why.
    Nothing(&'static str),
    /// The turn's user wants something else by now: look what.
    Unwanted,
}

impl Turn<'_> {
    /// Who answers this turn; `None` if something came in meanwhile that is to be looked at first.
    pub(crate) async fn route(&mut self, home: &Arc<Brief>) -> Result<Option<Arc<Brief>>, Error> {
        if let Some(choice) = self.journal.turn().iter().rev().find_map(Choice::of) {
            return self.cast(home, choice).await.map(Some);
        }
        let (kept, first) = (self.settings.routed, self.asks_first());
        let (route, is_own) = match first {
            Some(body) => (body.route.clone(), body.event.is_some()),
            None => (None, true),
        };
        let Some(route) = route else {
            // What the mesh itself says, and a wait that is over, are for whoever was at it.
            return match kept.filter(|_| is_own) {
                Some(agent) => self.keep_to(home, agent).await.map(Some),
                None => Ok(Some(Arc::clone(home))),
            };
        };
        if let (RouteEach::Session, Some(agent)) = (route.each, kept)
            && (route.among.is_empty() || route.among.contains(&agent) || agent == home.agent)
            && self.find(home, agent).await?.is_some()
        {
            return self.keep_to(home, agent).await.map(Some);
        }
        if thoughts(self.journal.turn()) > 0 {
            // It began without a choice, and goes on so.
            return Ok(Some(Arc::clone(home)));
        }
        let Some(choice) = self.choose(home, &route).await? else { return Ok(None) };
        metrics::counter!("holdfast_runner_routed_total", "by" => choice.by.as_str()).increment(1);
        info!(agent.id = %choice.agent, by = choice.by.as_str(), "a turn was given to an agent");
        self.append(vec![choice.entry()]).await?;
        self.give_back().await;
        fail::point("runner.after_route").await;
        self.cast(home, choice).await.map(Some)
    }

    /// The tools that this turn was given by whoever chose its agent.
    pub(crate) fn routed_tools(&self) -> Option<&Vec<String>> {
        self.routed.as_ref().and_then(|choice| choice.tools.as_ref())
    }

    /// Forgets who answered last: the conversation begins anew.
    pub(crate) async fn forget_route(&mut self) -> Result<(), Error> {
        self.remember(None).await
    }

    /// What asked for this turn before anything else did.
    fn asks_first(&self) -> Option<&Body> {
        self.journal.turn().iter().find_map(|entry| match entry {
            Entry::Heard { body, .. } if !body.silent => Some(body),
            Entry::Heard { .. }
            | Entry::Thought { .. }
            | Entry::Called { .. }
            | Entry::Returned { .. }
            | Entry::Noted { .. } => None,
        })
    }

    /// Goes on with whoever answered before.
    async fn keep_to(&mut self, home: &Arc<Brief>, agent: AgentId) -> Result<Arc<Brief>, Error> {
        if agent == home.agent {
            return Ok(Arc::clone(home));
        }
        let Some(brief) = self.find(home, agent).await? else { return Ok(Arc::clone(home)) };
        let choice = Choice {
            name: brief.name.to_string(),
            ..choice(agent, ChosenBy::Kept, "it answered before")
        };
        // Whoever comes next finds the same, if this is not stored.
        self.journal.hear(choice.entry());
        self.cast(home, choice).await
    }

    /// Makes a turn that of whoever was chosen; the session's own agent stands in for one that is
    /// gone, or cannot think.
    async fn cast(&mut self, home: &Arc<Brief>, choice: Choice) -> Result<Arc<Brief>, Error> {
        let lasts = match choice.by {
            ChosenBy::Model | ChosenBy::Kept => Some(choice.agent),
            // The next message has another try.
            ChosenBy::Fallback => None,
        };
        self.remember(lasts).await?;
        let brief = match self.find(home, choice.agent).await? {
            Some(brief) => brief,
            None => Arc::clone(home),
        };
        if brief.agent != home.agent {
            self.bring_files(&brief).await?;
            self.journal.price(Arc::clone(&brief.ledger));
        }
        self.agent = brief.agent;
        if brief.agent == choice.agent && choice.by != ChosenBy::Fallback {
            self.routed = Some(choice);
        }
        Ok(brief)
    }

    async fn remember(&mut self, agent: Option<AgentId>) -> Result<(), Error> {
        if self.settings.routed == agent {
            return Ok(());
        }
        self.settings.routed = agent;
        Ok(self.worker.sessions.set_settings(&self.hold.claim, &self.settings).await?)
    }

    /// An agent as this conversation has it; `None` if it is not there, or its model is not.
    async fn find(&self, home: &Arc<Brief>, agent: AgentId) -> Result<Option<Arc<Brief>>, Error> {
        if agent == home.agent {
            return Ok(Some(Arc::clone(home)));
        }
        let (tenant, model) = (self.hold.claim.tenant, self.settings.model.clone());
        Ok(match self.worker.agents.find(tenant, agent, model).await? {
            // The key was made by the session's own agent: it says who reads along.
            Found::Ready(brief) if brief.dm_scope != home.dm_scope => {
                Some(Arc::new(Brief { dm_scope: home.dm_scope, ..Brief::clone(&brief) }))
            }
            Found::Ready(brief) => Some(brief),
            Found::NoAgent | Found::NoModel => None,
        })
    }

    /// Has a model choose; `None` if something came in meanwhile.
    async fn choose(
        &mut self,
        home: &Arc<Brief>,
        route: &ModelRoute,
    ) -> Result<Option<Choice>, Error> {
        let fallback = |reason: &str| Choice {
            name: home.name.to_string(),
            ..choice(home.agent, ChosenBy::Fallback, reason)
        };
        // Read under the tenant's own rows: no other tenant's agent can be among them.
        let agents = self.worker.directory.agents(self.hold.claim.tenant).await;
        let agents = candidates(agents.map_err(Error::directory)?, home.agent, route);
        if agents.len() < 2 {
            return Ok(Some(fallback("there is nobody to choose among")));
        }
        let asking = match &route.model {
            None => Arc::clone(home),
            model @ Some(_) => {
                let (tenant, agents) = (self.hold.claim.tenant, &self.worker.agents);
                match agents.find(tenant, home.agent, model.clone()).await? {
                    Found::Ready(brief) => brief,
                    Found::NoAgent | Found::NoModel => {
                        return Ok(Some(fallback("the model that chooses cannot be used")));
                    }
                }
            }
        };
        let asked = self.ask_whom(&asking, &agents).await;
        if !matches!(asked, Ok(Asked::Chose(_) | Asked::Nothing(_))) {
            self.give_back().await;
        }
        Ok(match asked? {
            Asked::Unwanted => {
                self.refresh().await?;
                None
            }
            Asked::Nothing(reason) => Some(fallback(reason)),
            Asked::Chose(chosen) => {
                let found = agents.iter().find(|agent| agent.name.as_str() == chosen.agent);
                let Some(agent) = found.map(|agent| agent.id) else {
                    return Ok(Some(fallback("whom the model chose is not there")));
                };
                if self.find(home, agent).await?.is_none() {
                    return Ok(Some(fallback("whom the model chose has no model of its own")));
                }
                let Routed { agent: name, reason, task, complexity, prompt, tools } = chosen;
                let by = ChosenBy::Model;
                Some(Choice { agent, name, by, reason, task, complexity, prompt, tools })
            }
        })
    }

    async fn ask_whom(&mut self, asking: &Brief, agents: &[Agent]) -> Result<Asked, Error> {
        let shown: Vec<Candidate<'_>> = agents
            .iter()
            .map(|agent| Candidate {
                name: agent.name.as_str(),
                description: &agent.description,
                tools: agent.settings.tools.as_deref(),
            })
            .collect();
        let specs = self.tools.registry().specs().into_iter();
        let tools: Vec<String> = specs.map(|spec| spec.name).collect();
        let mut chat = route_chat(&shown, &tools, self.journal.entries(), self.kind);
        let most = Duration::from_secs(ROUTE_TIMEOUT_SECS).min(self.worker.config.model_timeout);
        let until = (Instant::now() + most).min(self.deadline);
        for _ in 0..MOST_TRIES {
            self.before_effect().await?;
            fail::point("runner.before_route").await;
            let mut request = Request {
                max_output: Some(ROUTE_OUTPUT_TOKENS),
                card: Some(Arc::clone(&asking.card)),
                ..Request::new(asking.model_id.clone(), chat.clone(), until)
            };
            if self.reserve(asking, &mut request).await?.is_some() {
                return Ok(Asked::Nothing("a budget is spent"));
            }
            let (began, cancelled) = (Instant::now(), CancellationToken::new());
            let mut pass_over = |_: Delta| {};
            let replied = tokio::select! {
                replied = asking.model.reply(&request, &mut pass_over, &cancelled) => replied,
                unwanted = self.until_unwanted() => {
                    unwanted?;
                    self.charge_read();
                    return Ok(Asked::Unwanted);
                }
            };
            self.clock.model += began.elapsed();
            let reply = match replied {
                Ok(reply) => reply,
                Err(error) => {
                    info!(error = &error as &dyn std::error::Error, "no model chose an agent");
                    return Ok(Asked::Nothing("the model that chooses did not answer"));
                }
            };
            self.journal.charge_reply(&reply.model, &reply.usage);
            match routed(&shown, &tools, &reply.text) {
                Ok(chosen) => return Ok(Asked::Chose(chosen)),
                Err(wrong) => chat = route_again(&chat, &reply.text, &wrong),
            }
        }
        Ok(Asked::Nothing("the answer of the model that chooses could not be used"))
    }

    /// Gives an agent the files that came with this turn's messages: they were kept among those of
    /// the session's own. They have the same names there, however often this is done.
    async fn bring_files(&self, brief: &Brief) -> Result<(), Error> {
        let came = self.journal.turn().iter().filter_map(|entry| match entry {
            Entry::Heard { body, .. } => Some(&body.attachments),
            Entry::Thought { .. }
            | Entry::Called { .. }
            | Entry::Returned { .. }
            | Entry::Noted { .. } => None,
        });
        let files: Vec<&StoredFile> =
            came.flatten().filter_map(|attachment| attachment.file.as_ref()).collect();
        let (tenant, workspaces) = (self.hold.claim.tenant, &self.worker.workspaces);
        let mut new = Vec::with_capacity(files.len());
        for file in files {
            let Ok(hash) = file.hash.parse::<ContentHash>() else { continue };
            if let Some(content) = workspaces.content(tenant, &hash).await? {
                new.push(NewMedia { name: file.name().to_owned(), content });
            }
        }
        if new.is_empty() {
            return Ok(());
        }
        let by = By { run: Some(self.run), ..By::author("holdfast", "came with a message") };
        match workspaces.keep_media(tenant, brief.agent, &by, new).await {
            Ok(_) => Ok(()),
            Err(error) if matches!(error.kind(), Kind::Exhausted | Kind::Invalid) => {
                warn!(agent.id = %brief.agent, "files of a message were not kept: the agent's tree is full");
                Ok(())
            }
            Err(error) => Err(error.into()),
        }
    }
}

/// A choice without a word of a model's.
fn choice(agent: AgentId, by: ChosenBy, reason: &str) -> Choice {
    Choice {
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

/// The agents that a model may choose among: those that are named, or all, and the session's own
/// first.
fn candidates(mut agents: Vec<Agent>, home: AgentId, route: &ModelRoute) -> Vec<Agent> {
    agents.retain(|agent| {
        agent.id == home || route.among.is_empty() || route.among.contains(&agent.id)
    });
    agents.sort_by_key(|agent| agent.id != home);
    agents.truncate(MOST_CANDIDATES);
    agents
}
