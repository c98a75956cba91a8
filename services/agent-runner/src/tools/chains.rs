//! Chains: predefined sequences of subagents (spec RTE-016).
//!
//! ```text
//! /chain, chain_run ─▶ run stored ─▶ stage 0 ─▶ … ─▶ last stage ─▶ the requester is told
//!                                     └ each end of a subagent: what is next? ┘
//! ```
//!
//! No runner owns a chain. The runner that sees a subagent end determines the next stage, starts
//! it, and only then records that the end was processed. Each action is idempotent, so any runner
//! can crash at any moment.

use std::time::Duration;

use holdfast_agent::{
    chain::{NextAction, StepResult, next_in_chain, tasks},
    file_view::FileSpace,
    subagent::{SubagentOutcome as Told, stats_line, trigger_message},
};
use holdfast_bus::{Bus, Control, ControlKind};
use holdfast_directory::Directory;
use holdfast_session::{
    ChainPosition, ChainRun, Cleanup, NewChainRun, NewSubagent, Sessions, Subagent, SubagentAccess,
    SubagentOutcome,
};
use holdfast_tools::{Call, Chains};
use holdfast_types::{AgentId, Fault as _, Kind, ModelId, RunId, SessionId, SessionKey, TenantId};
use sha2::{Digest as _, Sha256};

use crate::tools::{
    mesh::SessionTools,
    subagents::{DEFAULT_MAX_STEPS, DEFAULT_MAX_TOKENS, bundle_tools},
    tool_context::ToolContext,
};

/// Subagents of one session that may run at once when a chain starts more.
const MAX_RUNNING_SUBAGENTS: i64 = 24;

/// Time limit of a step that sets none, in seconds (spec SUB-010).
const DEFAULT_STEP_SECONDS: u32 = 3_600;

/// Limit on a chain's input, in characters.
const MAX_INPUT_CHARS: usize = 20_000;

/// Limit on a step's task, in characters.
const MAX_TASK_CHARS: usize = 90_000;

#[derive(Debug, Clone, Copy)]
pub(crate) struct ChainRunner<'m> {
    pub(crate) sessions: &'m Sessions,
    pub(crate) directory: &'m Directory,
    pub(crate) bus: &'m Bus,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct ChainRequester<'a> {
    pub(crate) tenant: TenantId,
    pub(crate) session: SessionId,
    pub(crate) agent: AgentId,
    /// Idempotency key of the request.
    pub(crate) idempotency_key: &'a str,
    /// Files that the requester sees.
    pub(crate) files: &'a FileSpace,
}

/// Outcome of starting a stage.
#[derive(Debug, Clone, PartialEq, Eq)]
enum StageStart {
    Started,
    /// Too many subagents run; try again later.
    Later,
    /// The stage cannot start; the reason.
    Impossible(String),
}

impl Chains for SessionTools {
    async fn chain(
        &self,
        call: &Call,
        name: Option<String>,
        input: String,
    ) -> anyhow::Result<Result<String, String>> {
        let mesh =
            ChainRunner { sessions: &self.sessions, directory: &self.directory, bus: &self.bus };
        let Some(name) = name else { return Ok(Ok(mesh.list(call.tenant).await?)) };
        let asker = ChainRequester {
            tenant: call.tenant,
            session: call.session,
            agent: call.agent,
            idempotency_key: &call.key,
            files: ToolContext::of(call)?.file_view.space(),
        };
        mesh.start(asker, name.trim(), &input).await
    }
}

impl ChainRunner<'_> {
    /// Lists the chains, one per line.
    pub(crate) async fn list(&self, tenant: TenantId) -> anyhow::Result<String> {
        let chains = self.directory.chains().list(tenant).await?;
        let lines: Vec<String> =
            chains.iter().map(|one| format!("{}: {}", one.name, one.chain.description)).collect();
        Ok(lines.join("\n"))
    }

    /// Starts a chain. Returns a text for the model: a confirmation or the reason why not.
    pub(crate) async fn start(
        &self,
        asker: ChainRequester<'_>,
        name: &str,
        input: &str,
    ) -> anyhow::Result<Result<String, String>> {
        let input = input.trim();
        match input.chars().count() {
            0 => return Ok(Err("`input` is empty: say what is asked of the chain".to_owned())),
            got if got > MAX_INPUT_CHARS => {
                return Ok(Err(format!(
                    "what is asked of a chain has {MAX_INPUT_CHARS} characters at most, and this \
                     {got}: put what is long in a file"
                )));
            }
            _ => {}
        }
        let view = self.sessions.views().session(asker.tenant, asker.session).await?;
        if view.parent.is_some() {
            return Ok(Err("a subagent begins no chains: do it yourself".to_owned()));
        }
        let chain = match self.directory.chains().get(asker.tenant, name).await {
            Ok(found) => found.chain,
            Err(error) if error.kind() == Kind::NotFound => {
                let shown: String = name.chars().take(64).collect();
                let all = self.list(asker.tenant).await?;
                return Ok(Err(format!("there is no chain `{shown}`; there are:\n{all}")));
            }
            Err(error) => return Err(error.into()),
        };
        let new = NewChainRun {
            run: run_id(asker.idempotency_key),
            session: asker.session,
            name: name.to_owned(),
            chain,
            input: input.to_owned(),
            files_of: asker.files.to_string(),
        };
        self.sessions.subagents().start_chain(asker.tenant, &new).await?;
        let Some(run) = self.sessions.subagents().chain_run(asker.tenant, new.run).await? else {
            anyhow::bail!("a chain's run that was stored is not there")
        };
        // Also if some of its subagents exist: the runner that started them may have crashed
        // between two of them, or before one got its task.
        if run.outcome.is_none() && run.stage == 0 {
            match self.start_stage(asker.tenant, asker.agent, &run, 0).await? {
                StageStart::Started => {}
                StageStart::Later => {
                    return Ok(Err(format!(
                        "{MAX_RUNNING_SUBAGENTS} subagents of this conversation run already: wait for one \
                         to end"
                    )));
                }
                StageStart::Impossible(reason) => return Ok(Err(reason)),
            }
        }
        Ok(Ok(format!(
            "The chain \"{name}\" works on it in {} stages. You will be told when it has ended; go \
             on with other things, or end your turn.",
            run.chain.stages.len()
        )))
    }

    /// Continues a chain after one of its subagents has ended. Returns `false` if that must be
    /// retried.
    pub(crate) async fn continue_chain(
        &self,
        tenant: TenantId,
        session: SessionId,
        place: &ChainPosition,
    ) -> anyhow::Result<bool> {
        let Some((_, running)) = self.sessions.subagents().settle(tenant, session).await? else {
            return Ok(true);
        };
        if let Some(running) = running {
            let control = Control { session, kind: ControlKind::Cancel, epoch: running.epoch };
            self.bus.control(running.owner, &control);
        }
        if !self.advance(tenant, place).await? {
            return Ok(false);
        }
        self.sessions.subagents().mark_announced(tenant, session).await?;
        Ok(true)
    }

    async fn advance(&self, tenant: TenantId, place: &ChainPosition) -> anyhow::Result<bool> {
        let Some(run) = self.sessions.subagents().chain_run(tenant, place.run).await? else {
            return Ok(true);
        };
        if run.outcome.is_some() {
            return Ok(true);
        }
        let results: Vec<StepResult> = run.steps.iter().map(step_result).collect();
        let stage = usize::try_from(place.stage).unwrap_or(0);
        let ended = match next_in_chain(&run.chain, &run.input, stage, &results) {
            NextAction::Wait => return Ok(true),
            NextAction::Begin(stage, tasks) if tasks.is_empty() => {
                Err(format!("stage {} had nothing to do", stage + 1))
            }
            NextAction::Begin(stage, _) => {
                let agent = match self.sessions.views().session(tenant, run.session).await {
                    Ok(view) => view.agent,
                    // The requester is gone: nobody to tell.
                    Err(error) if error.kind() == Kind::NotFound => return Ok(true),
                    Err(error) => return Err(error.into()),
                };
                match self.start_stage(tenant, agent, &run, stage).await? {
                    StageStart::Started => return Ok(true),
                    StageStart::Later => return Ok(false),
                    StageStart::Impossible(reason) => Err(reason),
                }
            }
            NextAction::Done(text) => Ok(text),
            NextAction::Failed(reason) => Err(reason),
        };
        self.finish_chain(tenant, &run, ended).await
    }

    /// Starts a subagent for each task of a stage. Idempotent.
    async fn start_stage(
        &self,
        tenant: TenantId,
        agent: AgentId,
        run: &ChainRun,
        stage: usize,
    ) -> anyhow::Result<StageStart> {
        let results: Vec<StepResult> = run.steps.iter().map(step_result).collect();
        let at = i32::try_from(stage)?;
        for (number, task) in tasks(&run.chain, &run.input, stage, &results).iter().enumerate() {
            let step = task.step;
            let agent = match &step.agent {
                None => self.directory.agents().by_id(tenant, agent).await,
                Some(name) => self.directory.agents().get(tenant, name).await,
            };
            let agent = match agent {
                Ok(agent) => agent,
                Err(error) if error.kind() == Kind::NotFound => {
                    return Ok(StageStart::Impossible(format!("{}: {error}", step.name)));
                }
                Err(error) => return Err(error.into()),
            };
            let bundle = step.bundle.as_deref();
            let tools = match bundle.map(|name| bundle_tools(&agent.settings, name)).transpose() {
                Ok(tools) => tools,
                Err(reason) => {
                    return Ok(StageStart::Impossible(format!("{}: {reason}", step.name)));
                }
            };
            if let Some(Err(error)) = step.model.as_deref().map(str::parse::<ModelId>) {
                return Ok(StageStart::Impossible(format!("{}: {error}", step.name)));
            }
            let new = NewSubagent {
                parent: run.session,
                key: SessionKey::subagent(&agent.name, &subagent_key(run.run, stage, number))?,
                agent: agent.id,
                label: format!("{} {}/{}", run.name, step.name, number + 1),
                task: task.text.chars().take(MAX_TASK_CHARS).collect(),
                // Tasks repeat the results of earlier steps.
                outside: true,
                model: step.model.clone(),
                thinking: None,
                cleanup: Cleanup::Keep,
                max_duration: Duration::from_secs(
                    step.seconds.unwrap_or(DEFAULT_STEP_SECONDS).into(),
                ),
                max_steps: Some(DEFAULT_MAX_STEPS),
                max_tokens: Some(DEFAULT_MAX_TOKENS),
                most: MAX_RUNNING_SUBAGENTS,
                given: SubagentAccess {
                    bundle: step.bundle.clone().unwrap_or_default(),
                    tools,
                    fs_read: step.read.clone(),
                    fs_write: step.write.clone(),
                    branch: None,
                    files_of: run.files_of.clone(),
                },
                await_timeout: None,
                place: Some(ChainPosition { run: run.run, stage: at, step: step.name.clone() }),
                trace: holdfast_kit::trace::current(),
            };
            match self.sessions.subagents().spawn(tenant, new).await {
                Ok((_, accepted)) if accepted.wake.is_some() => self.bus.wake_run(0),
                Ok(_) => {}
                Err(holdfast_session::Error::Conflict(_)) => return Ok(StageStart::Later),
                Err(error) if error.kind() == Kind::Exhausted => return Ok(StageStart::Later),
                Err(error) => return Err(error.into()),
            }
        }
        self.sessions.subagents().set_chain_stage(tenant, run.run, at).await?;
        Ok(StageStart::Started)
    }

    /// Tells the requester the outcome. Returns `false` if its inbox is full for now.
    async fn finish_chain(
        &self,
        tenant: TenantId,
        run: &ChainRun,
        ended: Result<String, String>,
    ) -> anyhow::Result<bool> {
        let (outcome, told, said) = match &ended {
            Ok(text) => ("ok", Told::Ok, text),
            Err(reason) => ("error", Told::Error, reason),
        };
        let tokens: i64 = run.steps.iter().map(|step| step.tokens).sum();
        let stats = stats_line(run.took, u64::try_from(tokens).ok().filter(|tokens| *tokens > 0));
        let text = trigger_message(&run.name, told, Some(said), &stats);
        metrics::counter!("holdfast_runner_chains_total", "outcome" => outcome).increment(1);
        let accepted = match self.sessions.subagents().end_chain(tenant, run, outcome, text).await {
            Err(error) if error.kind() == Kind::Exhausted => return Ok(false),
            accepted => accepted?,
        };
        if let Some(accepted) = accepted {
            if accepted.wake.is_some() {
                self.bus.wake_run(0);
            }
            if let Some(running) = accepted.running {
                let (session, epoch) = (accepted.session, running.epoch);
                let control = Control { session, kind: ControlKind::Input, epoch };
                self.bus.control(running.owner, &control);
            }
        }
        Ok(true)
    }
}

fn step_result(step: &Subagent) -> StepResult {
    let place = step.place.as_ref();
    let text = if step.result.is_empty() { &step.error } else { &step.result };
    StepResult {
        stage: place.and_then(|place| usize::try_from(place.stage).ok()).unwrap_or(usize::MAX),
        step: place.map_or_else(String::new, |place| place.step.clone()),
        ok: step.outcome.map(|outcome| outcome == SubagentOutcome::Ok),
        text: match step.outcome {
            Some(SubagentOutcome::Timeout) => "its time was over".to_owned(),
            _ => text.clone(),
        },
    }
}

/// Derives the run's id from the request's key, so that a retry yields the same run.
fn run_id(key: &str) -> RunId {
    let digest = Sha256::digest(key.as_bytes());
    let mut bytes = [0_u8; 16];
    bytes.copy_from_slice(&digest[..16]);
    uuid::Builder::from_bytes(bytes).with_version(uuid::Version::Custom).into_uuid().into()
}

/// Last part of a subagent's session key.
fn subagent_key(run: RunId, stage: usize, number: usize) -> String {
    let digest = Sha256::digest(format!("{run}:{stage}:{number}").as_bytes());
    digest[..8].iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_has_one_run_and_each_of_its_steps_a_key_of_its_own() {
        let run = run_id("ses:run:0:a");

        assert_eq!(run, run_id("ses:run:0:a"));
        assert_ne!(run, run_id("ses:run:1:a"));
        let keys: Vec<String> = [(0, 0), (0, 1), (1, 0)]
            .map(|(stage, number)| subagent_key(run, stage, number))
            .to_vec();
        assert!(keys[0] != keys[1] && keys[1] != keys[2] && keys[0] != keys[2]);
    }
}
