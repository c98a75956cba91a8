//! Execution of the tool calls that the model asked for.
//!
//! | effect | stored before | stored after |
//! |---|---|---|
//! | reads | – | the results of all calls that ran together: with the next thought if they were quick, else in one commit |
//! | writes | – | the result and the messages the tool sent, in one commit |
//! | acts | `Called`, committed | the result |

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use futures::future::join_all;
use holdfast_agent::UNKNOWN_OUTCOME;
use holdfast_bus::DeltaBody;
use holdfast_session::CompletionResult;
use holdfast_tools::{AllowedTools, Call, HostContext, Output, ToolError};
use holdfast_types::{ConnectionKind, Directives, Effect, Entry, Media, ToolCall};
use tokio::time::{Instant, timeout_at};
use tokio_util::sync::CancellationToken;
use tracing::{Instrument as _, field::Empty, info_span};

use crate::{
    agents::AgentSnapshot,
    approvals::ApprovalCheck,
    canvas, connections,
    error::Error,
    failpoints,
    skills::Secrets,
    tool_context::{CallEffects, ToolContext},
    turn::Turn,
    turn::count_thoughts,
};

/// Read-only calls that took this long are stored before the model is asked. After a crash, quicker
/// ones are simply repeated (decision 0004).
const MIN_STORED_READ_TIME: Duration = Duration::from_millis(500);

impl Turn<'_> {
    /// Makes these calls in parallel and stores their results.
    pub(crate) async fn run_calls(
        &mut self,
        brief: &AgentSnapshot,
        calls: &[ToolCall],
    ) -> Result<Option<CompletionResult>, Error> {
        self.ensure_owned().await?;
        let calls = match self.check_approvals(brief, calls).await? {
            ApprovalCheck::Pending(completed) => return Ok(Some(completed)),
            ApprovalCheck::Make(calls) if calls.is_empty() => return Ok(None),
            ApprovalCheck::Make(calls) => calls,
        };
        let acts: Vec<Entry> = calls
            .iter()
            .map(|call| (call, self.tools.effect(&call.tool)))
            .filter(|(_, effect)| *effect == Effect::Acts)
            .map(|(call, effect)| Entry::Called { call: call.id.clone(), effect })
            .collect();
        let told = self.announce_calls(&calls);
        if told || !acts.is_empty() {
            self.append(acts).await?;
            self.ensure_owned().await?;
        }
        failpoints::point("runner.before_call").await;
        let began = Instant::now();
        let made = join_all(calls.iter().map(|call| self.run_call(brief, call)));
        let results = tokio::select! {
            results = made => results,
            () = self.hold.lost.cancelled() => return Err(Error::Lost),
            () = self.worker.giving_up.cancelled() => return Err(Error::ReleaseRequested),
        };
        self.timing.tools += began.elapsed();
        failpoints::point("runner.after_call").await;
        let mut returned = Vec::with_capacity(results.len());
        for (entry, effects) in results {
            self.apply(effects);
            returned.push(entry);
        }
        let returned = returned.into_iter().collect::<Result<Vec<Entry>, Error>>()?;
        let reads = calls.iter().all(|call| self.tools.effect(&call.tool) == Effect::Reads);
        // A message for the user is stored at once, so that it is sent now.
        let told = self.journal.has_outbox();
        if reads && !told && began.elapsed() < MIN_STORED_READ_TIME {
            returned.into_iter().for_each(|entry| self.journal.add_unstored(entry));
            return Ok(None);
        }
        self.append(returned).await?;
        Ok(None)
    }

    /// Stores, charges and shows with the next write what a call left for the turn.
    fn apply(&mut self, effects: CallEffects) {
        effects.usage.iter().for_each(|usage| self.journal.charge_used(usage));
        self.journal.enqueue(effects.deliveries);
        // At once: the next message must not find the old snapshot.
        if effects.is_snapshot_outdated {
            self.worker.agents.invalidate(self.hold.claim.tenant, self.agent);
        }
    }

    /// State of the turn for the tools.
    fn tool_context(&self, brief: &AgentSnapshot) -> ToolContext {
        ToolContext {
            kind: self.kind,
            audience: self.audience(brief),
            key: self.key.clone(),
            target: self.conversation_target(),
            platform_message: self.platform_message(),
            model: brief.model_id.to_string(),
            command_policy: self.command_policy(brief),
            reply_settings: Directives {
                elevated: Some(self.effective_elevated()),
                ..self.dials()
            },
            connections: self.usable_connections(brief),
            memory_subject: self.memory_subject(brief),
            scope: self.file_scope(),
            skills: Arc::clone(&brief.skills.shelf),
            secrets: Arc::clone(&brief.skills.secrets),
            workspace_branch: self.workspace_branch(),
            narrowed: self.journal.tool_limits(),
            requester: self.requester(brief),
            effects: Mutex::default(),
        }
    }

    async fn run_call(
        &self,
        brief: &AgentSnapshot,
        call: &ToolCall,
    ) -> (Result<Entry, Error>, CallEffects) {
        // Unknown tool names come from the model and may contain anything: they never become
        // labels.
        let tool = self.tools.canonical_name(&call.tool).unwrap_or("unknown");
        let span = info_span!("tool", gen_ai.tool.name = tool, failed = Empty);
        let is_silent = self.is_flushing();
        if !is_silent {
            let (call, tool) = (call.id.clone(), call.tool.clone());
            self.stream.send(DeltaBody::ToolStarted { call, tool });
        }
        let began = Instant::now();
        let (made, mut effects) = self.dispatch(brief, call).instrument(span.clone()).await;
        let made = redact_secrets(&brief.skills.secrets, made);
        let made = match made {
            Ok(mut output) => {
                let kept = self.store_files(brief, tool, &mut output).await;
                kept.map(|media| (output, media))
            }
            Err(error) => Err(error),
        };
        let (output, failed, media) = match made {
            Ok((output, media)) => {
                self.record_skill_read(brief, call).await;
                effects.deliveries.extend(self.user_message(&self.call_key(call), &output));
                (output.for_llm, false, media)
            }
            Err(ToolError::Tell(text)) => (text, true, Media::default()),
            Err(ToolError::Broken(source)) => {
                return (Err(Error::Tool { name: tool.to_owned(), source }), effects);
            }
        };
        span.record("failed", failed);
        metrics::histogram!(
            "holdfast_runner_tool_duration_seconds",
            "tool" => self.tools.metric_label(&call.tool),
            "outcome" => if failed { "failed" } else { "ok" },
        )
        .record(began.elapsed().as_secs_f64());
        effects.deliveries.extend(self.result_message(call, &output, failed));
        if !is_silent {
            let surfaces = std::mem::take(&mut effects.changed_surfaces);
            if !surfaces.is_empty() {
                self.stream.send(DeltaBody::Canvas { surfaces });
            }
            self.stream.send(DeltaBody::ToolEnded { call: call.id.clone(), failed });
        }
        (Ok(Entry::Returned { call: call.id.clone(), output, failed, media }), effects)
    }

    async fn dispatch(
        &self,
        brief: &AgentSnapshot,
        call: &ToolCall,
    ) -> (Result<Output, ToolError>, CallEffects) {
        if let Err(refused) = self.check_policy(brief, call).await {
            return (Err(refused), CallEffects::default());
        }
        let context = self.call_context(brief, call);
        let host = context.host.clone();
        let result = self.call_in_time(context, call).await;
        (result, ToolContext::take_effects(&host))
    }

    /// Calls a tool, within its time limit and the turn's.
    async fn call_in_time(&self, context: Call, call: &ToolCall) -> Result<Output, ToolError> {
        let registry = self.tools.registry();
        let cancelled = context.cancelled.clone();
        let limit = registry.timeout(&call.tool).unwrap_or(self.worker.config.tool_timeout);
        let until = (Instant::now() + limit).min(self.deadline);
        let made = registry.call(context, &call.tool, &call.input);
        // The tool is polled first, so that a crash injected here happens during the call.
        let made = async { tokio::join!(made, failpoints::point("runner.in_call")).0 };
        if let Ok(result) = timeout_at(until, made).await {
            return result;
        }
        cancelled.cancel();
        Err(ToolError::Tell(match self.tools.effect(&call.tool) {
            Effect::Acts => UNKNOWN_OUTCOME.to_owned(),
            Effect::Reads | Effect::Writes => {
                format!("the call took longer than {} s and was given up", limit.as_secs())
            }
        }))
    }

    /// Idempotency key of a call, the same on any runner: `session:turn:step:call`.
    pub(crate) fn call_key(&self, call: &ToolCall) -> String {
        let step = count_thoughts(self.journal.turn()).saturating_sub(1);
        format!("{}:{}:{step}:{}", self.hold.claim.session, self.run, call.id)
    }

    pub(crate) fn call_context(&self, brief: &AgentSnapshot, call: &ToolCall) -> Call {
        let claim = &self.hold.claim;
        Call {
            tenant: claim.tenant,
            agent: brief.agent,
            agent_name: brief.name.clone(),
            session: claim.session,
            run: self.run,
            key: self.call_key(call),
            // Checked again here: the model may name a tool that it was not offered.
            allowed: self.allowed_tools(brief),
            cancelled: CancellationToken::new(),
            host: HostContext::new(self.tool_context(brief)),
        }
    }

    /// Tools that the participants of this turn may use.
    pub(crate) fn allowed_tools(&self, brief: &AgentSnapshot) -> AllowedTools {
        let offered = AllowedTools::only(self.policy.view(&self.policy_subject(brief)).offered());
        // Without a provider for speech, `tts` is not offered.
        let speaks = brief.speaks;
        let offered =
            AllowedTools::matching(move |name| offered.allows(name) && (speaks || name != "tts"));
        let offered =
            connections::without_unconnected_tools(offered, &self.usable_connections(brief));
        canvas::without_unseen_canvas(offered, self.kind, self.reply_target().as_ref())
    }

    /// Connections that are meant for this conversation.
    fn usable_connections(&self, brief: &AgentSnapshot) -> Vec<(String, ConnectionKind)> {
        connections::usable_connections(
            &brief.connections,
            self.kind,
            self.audience(brief),
            &self.key,
        )
    }
}

/// Removes the secrets of the agent's commands from a result.
fn redact_secrets(secrets: &Secrets, made: Result<Output, ToolError>) -> Result<Output, ToolError> {
    let without = |text| secrets.redact(text);
    match made {
        Ok(output) => Ok(Output {
            for_llm: without(output.for_llm),
            for_user: output.for_user.map(without),
            ..output
        }),
        Err(ToolError::Tell(text)) => Err(ToolError::Tell(without(text))),
        Err(broken @ ToolError::Broken(_)) => Err(broken),
    }
}
