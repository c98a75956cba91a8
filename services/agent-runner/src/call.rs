//! Making the calls that the model asked for.
//!
//! | effect | before | after |
//! |---|---|---|
//! | reads | – | the results of all that ran together; with the next thought if they were quick, else in one commit |
//! | writes | – | the result, and what it left in the outbox, in one commit |
//! | acts | `Called`, committed | the result |

use std::time::Duration;

use futures::future::join_all;
use holdfast_agent::{UNKNOWN_OUTCOME, bootstrap::Audience, policy::Subject};
use holdfast_bus::DeltaBody;
use holdfast_session::Completed;
use holdfast_tools::{Allowed, Call, Output, ToolError};
use holdfast_types::{Effect, Entry, ToolCall};
use tokio::time::{Instant, timeout_at};
use tokio_util::sync::CancellationToken;
use tracing::{Instrument as _, field::Empty, info_span};

use crate::{
    agents::Brief, approvals::Cleared, error::Error, fail, think::audience, turn::Turn,
    turn::thoughts,
};

/// Reading that took this long is stored before the model thinks about it; quicker, whoever goes
/// on with the turn had better read again (decision 0004).
const WORTH_STORING: Duration = Duration::from_millis(500);

impl Turn<'_> {
    /// Makes these calls, at once if they are several, and stores what came of them.
    pub(crate) async fn call(
        &mut self,
        brief: &Brief,
        calls: &[ToolCall],
    ) -> Result<Option<Completed>, Error> {
        self.before_effect().await?;
        self.sit_down(brief);
        let calls = match self.clear(brief, calls).await? {
            Cleared::Asked(completed) => return Ok(Some(completed)),
            Cleared::Make(calls) if calls.is_empty() => return Ok(None),
            Cleared::Make(calls) => calls,
        };
        let acts: Vec<Entry> = calls
            .iter()
            .map(|call| (call, self.worker.tools.effect(&call.tool)))
            .filter(|(_, effect)| *effect == Effect::Acts)
            .map(|(call, effect)| Entry::Called { call: call.id.clone(), effect })
            .collect();
        if !acts.is_empty() {
            self.append(acts).await?;
            self.before_effect().await?;
        }
        fail::point("runner.before_call").await;
        let began = Instant::now();
        let made = join_all(calls.iter().map(|call| self.make(brief, call)));
        let results = tokio::select! {
            results = made => results,
            () = self.hold.lost.cancelled() => return Err(Error::Lost),
            () = self.worker.giving_up.cancelled() => return Err(Error::AskedBack),
        };
        self.clock.tools += began.elapsed();
        fail::point("runner.after_call").await;
        let returned = results.into_iter().collect::<Result<Vec<Entry>, Error>>()?;
        let reads = calls.iter().all(|call| self.worker.tools.effect(&call.tool) == Effect::Reads);
        if reads && began.elapsed() < WORTH_STORING {
            returned.into_iter().for_each(|entry| self.journal.hear(entry));
            return Ok(None);
        }
        self.append(returned).await?;
        Ok(None)
    }

    /// Lays out what the tools of this step need to know.
    fn sit_down(&self, brief: &Brief) {
        let mut desk = self.hold.desk();
        desk.model = brief.model_id.to_string();
        desk.audience = audience(self.kind, brief.dm_scope);
    }

    async fn make(&self, brief: &Brief, call: &ToolCall) -> Result<Entry, Error> {
        // Names that no tool has come from the model: they may say anything.
        let tool = self.worker.tools.known(&call.tool).unwrap_or("unknown");
        let span = info_span!("tool", gen_ai.tool.name = tool, failed = Empty);
        self.stream.send(DeltaBody::ToolStarted { call: call.id.clone(), tool: call.tool.clone() });
        let began = Instant::now();
        let made = self.dispatch(brief, call).instrument(span.clone()).await;
        let (output, failed) = match made {
            Ok(output) => (output.for_llm, false),
            Err(ToolError::Tell(text)) => (text, true),
            Err(ToolError::Broken(source)) => {
                return Err(Error::Tool { name: tool.to_owned(), source });
            }
        };
        span.record("failed", failed);
        metrics::histogram!(
            "holdfast_runner_tool_duration_seconds",
            "tool" => tool.to_owned(),
            "outcome" => if failed { "failed" } else { "ok" },
        )
        .record(began.elapsed().as_secs_f64());
        self.stream.send(DeltaBody::ToolEnded { call: call.id.clone(), failed });
        Ok(Entry::Returned { call: call.id.clone(), output, failed })
    }

    async fn dispatch(&self, brief: &Brief, call: &ToolCall) -> Result<Output, ToolError> {
        let registry = self.worker.tools.registry();
        let context = self.context(brief, call);
        let cancelled = context.cancelled.clone();
        let limit = registry.timeout(&call.tool).unwrap_or(self.worker.config.tool_timeout);
        let until = (Instant::now() + limit).min(self.deadline);
        let made = registry.call(context, &call.tool, &call.input);
        if let Ok(result) = timeout_at(until, made).await {
            return result;
        }
        cancelled.cancel();
        Err(ToolError::Tell(match self.worker.tools.effect(&call.tool) {
            Effect::Acts => UNKNOWN_OUTCOME.to_owned(),
            Effect::Reads | Effect::Writes => {
                format!("the call took longer than {} s and was given up", limit.as_secs())
            }
        }))
    }

    /// In whose name a call is made.
    pub(crate) fn context(&self, brief: &Brief, call: &ToolCall) -> Call {
        let claim = &self.hold.claim;
        let step = thoughts(self.journal.turn()).saturating_sub(1);
        Call {
            tenant: claim.tenant,
            agent: brief.agent,
            agent_name: brief.name.clone(),
            session: claim.session,
            run: self.run,
            key: format!("{}:{}:{step}:{}", claim.session, self.run, call.id),
            // What was on offer is asked again: the model may name what was not.
            allowed: self.allowed(brief),
            cancelled: CancellationToken::new(),
        }
    }

    /// The tools that whoever speaks in this turn may have used.
    pub(crate) fn allowed(&self, brief: &Brief) -> Allowed {
        self.worker.tools.allowed(&self.subject(brief))
    }

    /// Who speaks in this turn, and where, for the policy.
    pub(crate) fn subject(&self, brief: &Brief) -> Subject {
        let desk = self.hold.desk();
        let place = desk.place.as_ref();
        let mut lists = self.journal.narrowed();
        lists.extend(brief.tools.clone());
        Subject {
            is_owner: audience(self.kind, brief.dm_scope) == Audience::Owner,
            channel: place.map(|place| place.channel.clone()),
            chat: place.map(|place| place.chat.clone()),
            model: Some(brief.model_id.clone()),
            messages: lists,
            ..Subject::new(self.kind)
        }
    }
}
