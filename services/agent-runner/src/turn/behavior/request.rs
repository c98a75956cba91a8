//! Model request of a step.

use std::sync::Arc;

use holdfast_agent::behavior::{Behavior, ModelPolicy};
use holdfast_llm::{Delta, Model as _, Request};
use holdfast_types::{Chat, Reply};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::warn;

use crate::{
    agents::snapshots::{AgentLookup, AgentSnapshot},
    error::Error,
    failpoints,
    turn::{
        approvals::outside_text,
        budget,
        state::TurnState,
        think::{self, record::CallStart},
    },
};

/// Outcome of a model request.
pub(super) enum StepReply {
    Replied(Box<Reply>),
    Failed(holdfast_llm::Error),
    /// The text for the user.
    Spent(String),
    /// New input or a cancellation must be handled first.
    Interrupted,
}

/// Returns the agent with the model of the behaviour; `None` is the agent's own model. A model that
/// the conversation's user has chosen takes precedence; models that cannot be used are skipped.
pub(super) async fn with_model(
    turn: &TurnState<'_>,
    snapshot: &AgentSnapshot,
    models: &ModelPolicy,
) -> Result<Option<Arc<AgentSnapshot>>, Error> {
    if turn.settings.model.is_some() {
        return Ok(None);
    }
    let tenant = turn.lease.claim.tenant;
    for model in models.preferred.iter().chain(&models.fallbacks) {
        let found = turn.worker.agents.find(tenant, snapshot.agent, Some(model.clone())).await?;
        match found {
            AgentLookup::Ready(found) => return Ok(Some(found)),
            AgentLookup::NoAgent => break,
            AgentLookup::NoModel(_) => warn!(model, "a model of a behaviour cannot be used"),
        }
    }
    Ok(None)
}

/// Asks the model of a step. Nothing is streamed: the answer is for the runner.
pub(super) async fn ask(
    turn: &mut TurnState<'_>,
    asking: &AgentSnapshot,
    behavior: &Behavior,
    chat: Chat,
) -> Result<StepReply, Error> {
    turn.ensure_owned().await?;
    failpoints::point("runner.before_model").await;
    outside_text::mark_outside_prompt(turn, &chat.tools);
    let mut request = new_request(turn, asking, behavior, chat);
    if let Some(why) = budget::reserve(turn, asking, &mut request).await? {
        return Ok(StepReply::Spent(why));
    }
    let model = asking.chain.for_conversation(turn.settings.profile.clone());
    let (began, cancelled) = (CallStart::now(), CancellationToken::new());
    let mut pass_over = |_: Delta| {};
    let mut asked = tokio::select! {
        answer = model.reply(&request, &mut pass_over, &cancelled) => match answer {
            Ok(reply) => StepReply::Replied(Box::new(reply)),
            Err(error) => {
                think::record::note_failure(&request, &error);
                StepReply::Failed(error)
            }
        },
        unwanted = think::until_interrupted(turn) => {
            unwanted?;
            StepReply::Interrupted
        }
    };
    let took = began.elapsed();
    if let StepReply::Replied(reply) = &mut asked {
        began.record(turn, reply);
    }
    metrics::histogram!("holdfast_runner_model_duration_seconds").record(took.as_secs_f64());
    turn.timing.model += took;
    think::store_key(turn, model.used_key()).await?;
    failpoints::point("runner.after_model").await;
    Ok(asked)
}

fn new_request(
    turn: &TurnState<'_>,
    asking: &AgentSnapshot,
    behavior: &Behavior,
    chat: Chat,
) -> Request {
    let limit = behavior.limits.deadline.min(turn.worker.config.model_timeout);
    let deadline = (Instant::now() + limit).min(turn.deadline);
    Request {
        cache_key: Some(format!("{}:{}", asking.agent, behavior.name)),
        card: Some(Arc::clone(&asking.card)),
        thinking: turn.thinking_level(asking),
        temperature: behavior.models.temperature,
        max_output: Some(behavior.limits.max_completion_tokens)
            .filter(|most| *most < asking.card.max_output),
        failures: turn.failures.clone(),
        ..Request::new(asking.model_id.clone(), chat, deadline)
    }
}
