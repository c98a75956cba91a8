//! A model that obeys: in the conversation of a script it makes the script's calls, one after the other.
//!
//! Messages name their script, so that many conversations run at once.

use std::time::Duration;

use holdfast_directory::Agent;
use holdfast_session::{Acceptance, Approval, NewMessage};
use holdfast_testkit::{Reply, Request};
use holdfast_types::{Author, Body, DmScope, SessionKey};
use serde_json::Value;
use tokio::time::Instant;

use crate::world::{LONG, World, place};

/// A tool and its input.
pub type PlannedCall = (&'static str, Value);

/// Calls of one conversation.
#[derive(Debug, Clone, Default)]
pub struct Script {
    pub calls: Vec<PlannedCall>,
    /// Calls of the subagent that has the task [`subagent_task`].
    pub subagent_calls: Vec<PlannedCall>,
}

const MARKER: &str = "script-";
const SUBAGENT: &str = "the subagent of ";

/// Name of a script in a message.
fn name(script: usize) -> String {
    format!("{MARKER}{script:04}")
}

/// Task for the subagent of a script.
pub fn subagent_task(script: usize) -> String {
    format!("You are {SUBAGENT}{}.", name(script))
}

/// Has the world's model follow these scripts from now on.
pub fn follow(world: &World, scripts: Vec<Script>) {
    world.model.forget_requests();
    world.model.answer(move |request| {
        let Some((script, is_subagent, step)) = position(request) else {
            return Reply::text("done");
        };
        let script = &scripts[script];
        let calls = if is_subagent { &script.subagent_calls } else { &script.calls };
        match calls.get(step) {
            Some((tool, input)) => Reply::call(call_id(step), *tool, input.to_string()),
            None => Reply::text("done"),
        }
    });
}

/// Id of a call in its conversation.
pub fn call_id(step: usize) -> String {
    format!("call-{step}")
}

/// Script of a request, whether it is the subagent's, and the number of steps that were made.
fn position(request: &Request) -> Option<(usize, bool, usize)> {
    let messages = request.messages();
    let texts = messages.iter().map(|message| match message["role"] == "user" {
        true => message["content"].to_string(),
        false => String::new(),
    });
    let texts: Vec<String> = texts.collect();
    let at = texts.iter().rposition(|text| text.contains(MARKER))?;
    let (before, after) = texts[at].split_once(MARKER)?;
    let script = after.get(..4)?.parse().ok()?;
    let steps = messages[at..].iter().filter(|message| message["role"] == "assistant").count();
    Some((script, before.ends_with(SUBAGENT), steps))
}

/// A conversation of the owner in which the model follows a script.
#[derive(Debug)]
pub struct Conversation {
    pub agent: Agent,
    pub script: usize,
    pub key: SessionKey,
}

impl Conversation {
    /// Direct messages: an agent can have any number of these.
    pub fn direct(agent: &Agent, script: usize) -> Self {
        let (scope, peer) = (DmScope::PerChannelPeer, format!("peer-{script}"));
        let key = SessionKey::direct(&agent.name, scope, "telegram", "", &peer).unwrap();
        Self { agent: agent.clone(), script, key }
    }

    /// The agent's main conversation.
    pub fn main(agent: &Agent, script: usize) -> Self {
        Self { agent: agent.clone(), script, key: SessionKey::main(&agent.name) }
    }

    /// The owner's message that starts the script. The text comes behind the name of the script.
    pub fn message(&self, world: &World, text: &str) -> NewMessage {
        self.other_message(world, &format!("{}: {text}", name(self.script)))
    }

    /// A message of the owner that starts no script.
    pub fn other_message(&self, world: &World, text: &str) -> NewMessage {
        let author = Author { id: "telegram:7".to_owned(), roles: vec!["owner".to_owned()] };
        NewMessage {
            key: self.key.clone(),
            agent: self.agent.id,
            target: Some(place("7")),
            body: Body { author: Some(author), ..Body::text(text) },
            ..world.message("s", "")
        }
    }
}

/// Waits until a person is asked, in the conversation or by its subagents; `None` if the turn ends first.
pub async fn question(world: &World, sent: &Acceptance) -> anyhow::Result<Option<Approval>> {
    let begun = Instant::now();
    loop {
        let asked = world.sessions.approvals().in_family(world.tenant, sent.session, None).await?;
        if let Some(asked) = asked.into_iter().next() {
            return Ok(Some(asked));
        }
        let answer = world.sessions.views().answer(world.tenant, sent.message).await?;
        if answer.outcome.is_some() {
            return Ok(None);
        }
        anyhow::ensure!(begun.elapsed() < LONG, "neither a question nor an end within {LONG:?}");
        tokio::time::sleep(Duration::from_millis(40)).await;
    }
}
