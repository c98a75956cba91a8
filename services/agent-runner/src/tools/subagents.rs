//! Subagents: starting them for a tool, and announcing their end.

use std::time::Duration;

use holdfast_agent::{
    bundle::{BUNDLES, bundle, granted_tools},
    subagent::task_label,
};
use holdfast_bus::{Control, ControlKind};
use holdfast_directory::{Agent, AgentSettings};
use holdfast_kit::trace;
use holdfast_session::{
    Cleanup, NewMessage, NewSubagent, Subagent, SubagentAccess, SubagentFilter, SubagentOutcome,
};
use holdfast_tools::{
    Call, SessionRef, StartedSubagent, SubagentRequest, SubagentResult, SubagentSummary, Subagents,
};
use holdfast_types::{
    Body, Fault as _, Kind, QueueMode, SessionId, SessionKey, SessionKind, Source,
};
use sha2::{Digest as _, Sha256};
use tokio::time::{Instant, sleep};

use crate::tools::{mesh::SessionTools, patches, tool_context::ToolContext};

/// Subagents of one session that may run at once.
const MAX_RUNNING_SUBAGENTS: i64 = 8;

/// Default limits on a subagent's thoughts and tokens; every subagent has limits (spec SUB-019).
pub(crate) const DEFAULT_MAX_STEPS: i32 = 100;
pub(crate) const DEFAULT_MAX_TOKENS: i64 = 2_000_000;

/// Interval of checking whether an awaited subagent has ended.
const AWAIT_POLL_INTERVAL: Duration = Duration::from_millis(300);

/// Subagents that a tool lists.
const MAX_LISTED: i64 = 30;

/// Event name of a message from an agent to another session.
const SESSION_MESSAGE_EVENT: &str = "sessions_send";

impl Subagents for SessionTools {
    async fn spawn(
        &self,
        call: &Call,
        wanted: SubagentRequest,
    ) -> anyhow::Result<Result<StartedSubagent, String>> {
        let parent = self.sessions.views().session(call.tenant, call.session).await?;
        let key: SessionKey = parent.key.parse()?;
        if key.kind() == SessionKind::Subagent {
            return Ok(Err("a subagent has no subagents of its own: do it yourself".to_owned()));
        }
        let own = self.directory.agents().by_id(call.tenant, call.agent).await?;
        let agent = match self.requested_agent(call, &own, wanted.agent.as_deref()).await? {
            Ok(agent) => agent,
            Err(reason) => return Ok(Err(reason)),
        };
        if let Some(model) = &wanted.model
            && let Err(error) =
                self.directory.models().check_names(call.tenant, [model.as_str()]).await
        {
            let is_wrong_name = matches!(error.kind(), Kind::Invalid | Kind::NotFound);
            return if is_wrong_name { Ok(Err(error.to_string())) } else { Err(error.into()) };
        }
        let given = match self.resources(call, &own, &wanted)? {
            Ok(given) => given,
            Err(reason) => return Ok(Err(reason)),
        };
        let label = wanted.label.as_deref().unwrap_or(&wanted.task);
        let label = task_label(label);
        let branch = match wanted.patch {
            false => None,
            true => match self.create_copy(call, &label).await? {
                Ok(branch) => Some(branch),
                Err(reason) => return Ok(Err(reason)),
            },
        };
        let given = SubagentAccess { branch, ..given };
        let session = SessionKey::subagent(&agent.name, &key_suffix(&call.key))?;
        let new = NewSubagent {
            parent: call.session,
            key: session.clone(),
            agent: agent.id,
            label: label.clone(),
            task: wanted.task,
            outside: ToolContext::of(call)?.has_read_outside_text,
            model: wanted.model,
            thinking: wanted.thinking,
            cleanup: if wanted.delete { Cleanup::Delete } else { Cleanup::Keep },
            max_duration: wanted.timeout,
            max_steps: wanted
                .max_steps
                .map_or(Some(DEFAULT_MAX_STEPS), |steps| i32::try_from(steps).ok()),
            max_tokens: Some(wanted.max_tokens.map_or(DEFAULT_MAX_TOKENS, i64::from)),
            most: MAX_RUNNING_SUBAGENTS,
            given,
            await_timeout: wanted.wait.then_some(Duration::ZERO),
            place: None,
            trace: trace::current(),
        };
        match self.sessions.subagents().spawn(call.tenant, new).await {
            Ok((child, accepted)) => {
                if accepted.wake.is_some() {
                    self.bus.wake_run(0);
                }
                Ok(Ok(StartedSubagent { session: child, key: session.to_string(), label }))
            }
            Err(error) if is_limit(&error) => Ok(Err(error.to_string())),
            Err(error) => Err(error.into()),
        }
    }

    async fn wait(
        &self,
        call: &Call,
        session: SessionId,
        within: Duration,
    ) -> anyhow::Result<Option<SubagentResult>> {
        let until = Instant::now() + within;
        loop {
            if let Some(child) = self.sessions.subagents().await_end(call.tenant, session).await? {
                let ok = child.outcome == Some(SubagentOutcome::Ok);
                let said = match child.outcome {
                    Some(SubagentOutcome::Timeout) => "its time was over".to_owned(),
                    _ if ok => child.result.clone(),
                    _ => child.error.clone(),
                };
                let patch = match &self.files {
                    Some(files) => {
                        patches::patch_note_for(&files.workspaces, call.tenant, call.agent, &child)
                            .await?
                    }
                    None => None,
                };
                return Ok(Some(SubagentResult { ok, said, patch }));
            }
            if Instant::now() >= until || call.cancelled.is_cancelled() {
                self.sessions.subagents().stop_awaiting(call.tenant, session).await?;
                return Ok(None);
            }
            sleep(AWAIT_POLL_INTERVAL).await;
        }
    }

    async fn list(&self, call: &Call) -> anyhow::Result<Vec<SubagentSummary>> {
        let filter = SubagentFilter { parent: Some(call.session), most: MAX_LISTED, open: false };
        let listed = self.sessions.subagents().list(call.tenant, &filter).await?;
        Ok(listed
            .into_iter()
            .map(|one| SubagentSummary {
                label: one.label,
                session: if one.key.is_empty() { one.session.to_string() } else { one.key },
                status: one.outcome.map_or("running", SubagentOutcome::as_str).to_owned(),
                seconds: one.took.as_secs(),
            })
            .collect())
    }

    async fn stop(&self, call: &Call, which: SessionRef) -> anyhow::Result<Result<(), String>> {
        let Some(found) = self.find_own_subagent(call, which).await? else {
            return Ok(Err("this conversation has no such subagent".to_owned()));
        };
        match self.sessions.subagents().stop(call.tenant, found.session).await {
            Ok(Some(running)) => {
                let (session, epoch) = (found.session, running.epoch);
                let control = Control { session, kind: ControlKind::Cancel, epoch };
                self.bus.control(running.owner, &control);
                Ok(Ok(()))
            }
            Ok(None) => Ok(Ok(())),
            Err(error @ holdfast_session::Error::Conflict(_)) => Ok(Err(error.to_string())),
            Err(error) => Err(error.into()),
        }
    }

    async fn say(
        &self,
        call: &Call,
        to: SessionRef,
        text: String,
        deliver: bool,
    ) -> anyhow::Result<Result<(), String>> {
        let unknown = || Ok(Err("there is no such session, or not for you".to_owned()));
        let found = match to {
            SessionRef::Id(id) => Some(id),
            SessionRef::Key(key) => match key.parse::<SessionKey>() {
                Ok(key) => self.sessions.views().find(call.tenant, &key).await?,
                Err(_) => None,
            },
        };
        let Some(session) = found else { return unknown() };
        if session == call.session {
            return Ok(Err("that is this conversation: say it in your answer".to_owned()));
        }
        let view = match self.sessions.views().session(call.tenant, session).await {
            Err(error) if error.kind() == Kind::NotFound => return unknown(),
            view => view?,
        };
        if view.parent != Some(call.session) && !SessionTools::is_owner_or_agent(call)? {
            return unknown();
        }
        let message = NewMessage {
            key: view.key.parse()?,
            agent: view.agent,
            label: None,
            source: Source::Internal(SESSION_MESSAGE_EVENT.to_owned()),
            idem_key: call.key.clone(),
            body: Body {
                event: Some(SESSION_MESSAGE_EVENT.to_owned()),
                outside: ToolContext::of(call)?.repeats_outside_text(),
                ..Body::text(text)
            },
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

impl SessionTools {
    /// Finds a subagent of the conversation.
    pub(crate) async fn find_own_subagent(
        &self,
        call: &Call,
        which: SessionRef,
    ) -> anyhow::Result<Option<Subagent>> {
        let filter = SubagentFilter { parent: Some(call.session), most: 200, open: false };
        let listed = self.sessions.subagents().list(call.tenant, &filter).await?;
        Ok(listed.into_iter().find(|one| match &which {
            SessionRef::Id(id) => one.session == *id,
            SessionRef::Key(key) => !key.is_empty() && one.key == *key,
        }))
    }

    /// Agent that runs the subagent: the requesting agent, or another to which it may give tasks.
    async fn requested_agent(
        &self,
        call: &Call,
        own: &Agent,
        name: Option<&str>,
    ) -> anyhow::Result<Result<Agent, String>> {
        let Some(name) = name.filter(|name| *name != own.name.as_str()) else {
            return Ok(Ok(own.clone()));
        };
        if !own.settings.may_spawn(name) {
            return Ok(Err(format!(
                "this agent may not give tasks to `{}`: its owner has to allow it",
                truncate(name)
            )));
        }
        match self.directory.agents().get(call.tenant, name).await {
            Ok(agent) => Ok(Ok(agent)),
            Err(error) if error.kind() == Kind::NotFound => Ok(Err(format!(
                "there is no agent `{}`; `agents_list` shows those there are",
                truncate(name)
            ))),
            Err(error) => Err(error.into()),
        }
    }

    /// Resources of a subagent: as requested, within the limits of the requesting turn.
    fn resources(
        &self,
        call: &Call,
        own: &Agent,
        wanted: &SubagentRequest,
    ) -> anyhow::Result<Result<SubagentAccess, String>> {
        let set = match wanted.bundle.as_deref() {
            None => None,
            Some(name) => match bundle_tools(&own.settings, name) {
                Ok(tools) => Some(tools),
                Err(reason) => return Ok(Err(reason)),
            },
        };
        let mut tools = granted_tools(set.as_deref(), wanted.tools.as_deref());
        for list in &ToolContext::of(call)?.narrowed {
            tools = Some(match tools {
                Some(tools) => tools.into_iter().filter(|tool| list.contains(tool)).collect(),
                None => list.clone(),
            });
        }
        Ok(Ok(SubagentAccess {
            bundle: wanted.bundle.clone().unwrap_or_default(),
            tools,
            fs_read: wanted.read.clone(),
            fs_write: wanted.write.clone(),
            branch: None,
            files_of: Some(ToolContext::of(call)?.file_view.space().to_string()),
        }))
    }
}

/// Tools of a bundle: the agent's own, or a built-in one.
pub(crate) fn bundle_tools(settings: &AgentSettings, name: &str) -> Result<Vec<String>, String> {
    if let Some(tools) = settings.bundles.get(name) {
        return Ok(tools.clone());
    }
    let known = |tools: &[&str]| tools.iter().map(|tool| (*tool).to_owned()).collect();
    bundle(name).map(known).ok_or_else(|| {
        let own = settings.bundles.keys().map(String::as_str);
        let all: Vec<&str> = BUNDLES.iter().map(|(name, _)| *name).chain(own).collect();
        format!("there is no bundle `{}`; there are: {}", truncate(name), all.join(", "))
    })
}

/// Whether a subagent was refused because there are as many as there may be.
const fn is_limit(error: &holdfast_session::Error) -> bool {
    matches!(
        error,
        holdfast_session::Error::Conflict(_) | holdfast_session::Error::TooManySessions { .. }
    )
}

/// Last part of a subagent's session key, derived from the call so that a retry gives the same key.
fn key_suffix(call: &str) -> String {
    let digest = Sha256::digest(call.as_bytes());
    digest[..8].iter().map(|byte| format!("{byte:02x}")).collect()
}

fn truncate(name: &str) -> &str {
    &name[..name.floor_char_boundary(64)]
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A running subagent with limits.
    pub(crate) fn task() -> Subagent {
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
            given: SubagentAccess::default(),
            place: None,
            key: String::new(),
            started_at: jiff::Timestamp::UNIX_EPOCH,
        }
    }

    #[test]
    fn an_agent_s_own_set_goes_before_a_shipped_one_and_an_unknown_one_is_refused() {
        let mut settings = AgentSettings::default();
        settings.bundles.insert("read".into(), vec!["read".into()]);

        assert_eq!(bundle_tools(&settings, "read").unwrap(), ["read"]);
        assert_eq!(bundle_tools(&settings, "research").unwrap().len(), 4);
        let told = bundle_tools(&settings, "all").unwrap_err();
        assert!(told.starts_with("there is no bundle `all`; there are: none, read"), "{told}");
    }

    #[test]
    fn the_same_call_makes_the_same_subagent() {
        assert_eq!(key_suffix("a:b:0:c"), key_suffix("a:b:0:c"));
        assert_ne!(key_suffix("a:b:0:c"), key_suffix("a:b:1:c"));
    }
}
