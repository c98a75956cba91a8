//! Subagents: making them at a tool's word, and announcing how they ended.

use std::{sync::Arc, time::Duration};

use holdfast_agent::subagent::{SubagentOutcome as Told, stats_line, task_label, trigger_message};
use holdfast_bus::{Control, ControlKind};
use holdfast_kit::trace;
use holdfast_session::{Cleanup, NewMessage, NewSubagent, Subagent, SubagentOutcome};
use holdfast_tools::{Call, Spawned, Subagents, Wanted, Which};
use holdfast_types::{
    Body, Entry, Fault as _, Kind, ModelId, QueueMode, SessionId, SessionKey, SessionKind, Source,
};
use sha2::{Digest as _, Sha256};
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use crate::{mesh::Inside, reply::Budget, trouble::Trouble, upkeep::jittered, worker::Worker};

/// The most subagents of one session that may run at once.
const MOST_CHILDREN: i64 = 8;

/// Ends that are announced at once.
const BATCH: i64 = 64;

/// The name of the event by which an agent speaks in another session.
const SAID: &str = "sessions_send";

impl Subagents for Inside {
    async fn spawn(&self, call: &Call, wanted: Wanted) -> anyhow::Result<Result<Spawned, String>> {
        let parent = self.sessions.session(call.tenant, call.session).await?;
        let key: SessionKey = parent.key.parse()?;
        if key.kind() == SessionKind::Subagent {
            return Ok(Err("a subagent has no subagents of its own: do it yourself".to_owned()));
        }
        let own = self.directory.agent_by_id(call.tenant, call.agent).await?;
        let agent = match &wanted.agent {
            None => own,
            Some(name) if *name == own.name.as_str() => own,
            Some(name) if !own.settings.may_spawn(name) => {
                return Ok(Err(format!(
                    "this agent may not give tasks to `{}`: its owner has to allow it",
                    short(name)
                )));
            }
            Some(name) => match self.directory.agent(call.tenant, name).await {
                Ok(agent) => agent,
                Err(error) if error.kind() == Kind::NotFound => {
                    return Ok(Err(format!(
                        "there is no agent `{}`; `agents_list` shows those there are",
                        short(name)
                    )));
                }
                Err(error) => return Err(error.into()),
            },
        };
        if let Some(model) = &wanted.model
            && let Err(error) = model.parse::<ModelId>()
        {
            return Ok(Err(error.to_string()));
        }
        let label = wanted.label.as_deref().unwrap_or(&wanted.task);
        let label = task_label(label);
        let session = SessionKey::subagent(&agent.name, &id(&call.key))?;
        let new = NewSubagent {
            parent: call.session,
            key: session.clone(),
            agent: agent.id,
            label: label.clone(),
            task: wanted.task,
            model: wanted.model,
            cleanup: if wanted.delete { Cleanup::Delete } else { Cleanup::Keep },
            wall: wanted.wall,
            max_steps: wanted.max_steps.and_then(|steps| i32::try_from(steps).ok()),
            max_tokens: wanted.max_tokens.map(i64::from),
            most: MOST_CHILDREN,
            trace: trace::current(),
        };
        match self.sessions.spawn(call.tenant, new).await {
            Ok((child, accepted)) => {
                if accepted.wake.is_some() {
                    self.bus.wake_run(0);
                }
                Ok(Ok(Spawned { session: child, key: session.to_string(), label }))
            }
            Err(error @ holdfast_session::Error::Conflict(_)) => Ok(Err(error.to_string())),
            Err(error) => Err(error.into()),
        }
    }

    async fn say(
        &self,
        call: &Call,
        to: Which,
        text: String,
        deliver: bool,
    ) -> anyhow::Result<Result<(), String>> {
        let unknown = || Ok(Err("there is no such session, or not for you".to_owned()));
        let found = match to {
            Which::Id(id) => Some(id),
            Which::Key(key) => match key.parse::<SessionKey>() {
                Ok(key) => self.sessions.find(call.tenant, &key).await?,
                Err(_) => None,
            },
        };
        let Some(session) = found else { return unknown() };
        if session == call.session {
            return Ok(Err("that is this conversation: say it in your answer".to_owned()));
        }
        let view = match self.sessions.session(call.tenant, session).await {
            Err(error) if error.kind() == Kind::NotFound => return unknown(),
            view => view?,
        };
        if view.parent != Some(call.session) && !self.is_trusted(call)? {
            return unknown();
        }
        let message = NewMessage {
            key: view.key.parse()?,
            agent: view.agent,
            label: None,
            source: Source::Internal(SAID.to_owned()),
            idem_key: call.key.clone(),
            body: Body { event: Some(SAID.to_owned()), ..Body::text(text) },
            target: view.last_target.filter(|_| deliver),
            mode: QueueMode::Steer,
            debounce: Duration::ZERO,
            trace: trace::current(),
        };
        let accepted = match self.sessions.ingest(call.tenant, message).await {
            Err(error) if error.kind() == Kind::Exhausted => return Ok(Err(error.to_string())),
            accepted => accepted?,
        };
        if accepted.wake.is_some() {
            self.bus.wake_run(0);
        }
        Ok(Ok(()))
    }
}

/// What a subagent has used up of what it may, before a step that would use more.
pub(crate) fn spent(task: &Subagent, turn: &[Entry]) -> Option<Budget> {
    let (mut steps, mut tokens) = (0_i32, 0_i64);
    for entry in turn {
        if let Entry::Thought { usage, .. } = entry {
            steps += 1;
            let used = usage.input.saturating_add(usage.output);
            tokens = tokens.saturating_add(i64::try_from(used).unwrap_or(i64::MAX));
        }
    }
    if task.max_steps.is_some_and(|most| steps >= most) {
        Some(Budget::Steps)
    } else if task.max_tokens.is_some_and(|most| tokens >= most) {
        Some(Budget::Tokens)
    } else if task.left.is_zero() {
        Some(Budget::Time)
    } else {
        None
    }
}

/// Announces the ends of subagents to the sessions that asked for them.
pub(crate) async fn announce(worker: Arc<Worker>, stop: CancellationToken) {
    let trouble = Trouble::new("ends of subagents are not announced");
    while !stop.is_cancelled() {
        tokio::select! {
            () = stop.cancelled() => break,
            () = worker.ended.notified() => {}
            () = sleep(jittered(worker.config.sweep)) => {}
        }
        match announce_all(&worker).await {
            Ok(()) => trouble.ends(),
            Err(error) => trouble.begins(&error),
        }
    }
}

async fn announce_all(worker: &Worker) -> Result<(), holdfast_session::Error> {
    for (tenant, session) in worker.sessions.ended_subagents(BATCH).await? {
        let announced = match worker.sessions.announce(tenant, session, words).await {
            // The session that asked is full; it is told later, and others are told now.
            Err(error) if error.kind() == Kind::Exhausted => continue,
            announced => announced?,
        };
        let Some(announced) = announced else { continue };
        if let Some(running) = announced.running {
            tell(worker, session, running, ControlKind::Cancel);
        }
        if let Some(accepted) = announced.accepted {
            metrics::counter!("holdfast_runner_subagents_announced_total").increment(1);
            if accepted.wake.is_some() {
                worker.bus.wake_run(0);
            }
            if let Some(running) = accepted.running {
                tell(worker, accepted.session, running, ControlKind::Input);
            }
        }
    }
    Ok(())
}

fn tell(
    worker: &Worker,
    session: SessionId,
    running: holdfast_session::Running,
    kind: ControlKind,
) {
    worker.bus.control(running.owner, &Control { session, kind, epoch: running.epoch });
}

/// What the session that asked is told.
fn words(ended: &Subagent) -> String {
    let outcome = match ended.outcome {
        Some(SubagentOutcome::Ok) => Told::Ok,
        Some(SubagentOutcome::Error) => Told::Error,
        Some(SubagentOutcome::Timeout) => Told::Timeout,
        Some(SubagentOutcome::Unknown) | None => Told::Unknown,
    };
    let said = if ended.result.is_empty() { &ended.error } else { &ended.result };
    let tokens = u64::try_from(ended.tokens).ok().filter(|tokens| *tokens > 0);
    trigger_message(&ended.label, outcome, Some(said), &stats_line(ended.took, tokens))
}

/// The last part of a subagent's key: the same for the same call, whoever makes it.
fn id(call: &str) -> String {
    let digest = Sha256::digest(call.as_bytes());
    digest[..8].iter().map(|byte| format!("{byte:02x}")).collect()
}

fn short(name: &str) -> &str {
    &name[..name.floor_char_boundary(64)]
}

#[cfg(test)]
mod tests {
    use holdfast_types::Usage;

    use super::*;

    fn task() -> Subagent {
        Subagent {
            session: SessionId::generate(),
            parent: SessionId::generate(),
            label: "count".into(),
            task: "count".into(),
            max_steps: Some(2),
            max_tokens: Some(100),
            left: Duration::from_secs(1),
            outcome: None,
            result: String::new(),
            error: String::new(),
            tokens: 0,
            took: Duration::ZERO,
        }
    }

    fn thought(tokens: u64) -> Entry {
        Entry::Thought {
            text: String::new(),
            calls: Vec::new(),
            usage: Usage { input: tokens, cached: 0, output: 1 },
            model: String::new(),
            carry: None,
        }
    }

    #[test]
    fn what_is_used_up_is_said_and_at_the_limit_not_after_it() {
        let task = task();
        assert_eq!(spent(&task, &[thought(10)]), None);
        assert_eq!(spent(&task, &[thought(10), thought(10)]), Some(Budget::Steps));
        assert_eq!(spent(&task, &[thought(99)]), Some(Budget::Tokens));
        let late = Subagent { left: Duration::ZERO, ..task };
        assert_eq!(spent(&late, &[]), Some(Budget::Time));
    }

    #[test]
    fn a_failure_is_told_as_one_and_an_empty_end_too() {
        let ended = Subagent {
            outcome: Some(SubagentOutcome::Error),
            error: "budget exceeded: steps".into(),
            took: Duration::from_millis(1500),
            ..task()
        };
        let told = words(&ended);
        assert!(told.contains("\"count\" just failed"), "{told}");
        assert!(told.contains("budget exceeded: steps"), "{told}");
        assert!(told.contains("[Stats: duration=1.5s]"), "{told}");
        let silent = Subagent { outcome: Some(SubagentOutcome::Unknown), ..task() };
        assert!(words(&silent).contains("(no output)"));
    }

    #[test]
    fn the_same_call_makes_the_same_subagent() {
        assert_eq!(id("a:b:0:c"), id("a:b:0:c"));
        assert_ne!(id("a:b:0:c"), id("a:b:1:c"));
    }
}
