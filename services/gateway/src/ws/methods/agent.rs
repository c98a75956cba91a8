//! `agent`, `agent.wait`: a turn whose answer the caller waits for.

use std::time::Duration;

use holdfast_session::TurnOutcome;
use holdfast_types::MessageId;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::{
    super::{
        call::Call,
        connection::now_ms,
        error::{ErrorKind, MethodError},
    },
    Method, Reply, WRITE,
    chat::{self, AttachmentParams, Sending},
    method,
};
use crate::permissions::rights::ConversationRight;
use crate::{
    Error,
    follow::{FollowedMessage, TurnResult},
    ingest,
};

pub const METHODS: &[Method] = &[
    method!(
        "agent",
        WRITE,
        agent,
        [
            "replyTo",
            "expectedExistingSessionId",
            "replyChannel",
            "replyAccountId",
            "threadId",
            "groupId",
            "groupChannel",
            "groupSpace",
            "bestEffortDeliver",
            "lane",
            "cwd",
            "cleanupBundleMcpOnRunEnd",
            "modelRun",
            "promptMode",
            "bootstrapContextMode",
            "bootstrapContextRunKind",
            "acpTurnSource",
            "inputProvenance",
            "suppressPromptPersistence",
            "sessionEffects",
            "sourceReplyDeliveryMode",
            "disableMessageTool",
            "forceRestartSafeTools",
            "forceCodeModeTools",
            "voiceWakeTrigger",
            "label",
            "internalEvents",
            "deliver",
            "swarmCollector",
            "swarmOutputSchema",
            "internalRuntimeHandoffId",
            "internalExecutionIdentityRetry",
            "internalExecutionIdentityRecoveryAttempt",
            "execApprovalFollowupExpectedSessionId",
            "accountId",
        ]
    ),
    method!("agent.wait", WRITE, wait),
];

const DEFAULT_WAIT: Duration = Duration::from_secs(30);

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct RunParams {
    message: String,
    #[serde(default)]
    agent_id: String,
    session_id: Option<String>,
    session_key: Option<String>,
    channel: Option<String>,
    to: Option<String>,
    extra_system_prompt: Option<String>,
    #[serde(default)]
    attachments: Vec<AttachmentParams>,
    /// Seconds.
    timeout: Option<u64>,
    idempotency_key: Option<String>,
    thinking: Option<String>,
    model: Option<String>,
    provider: Option<String>,
}

/// Sends a message. The first response says that it is accepted, the second one has the answer.
async fn agent(call: Call, params: RunParams) -> Reply {
    let RunParams { message, agent_id, attachments, idempotency_key, timeout, .. } = params;
    if params.extra_system_prompt.is_some_and(|prompt| !prompt.trim().is_empty()) {
        return Err(MethodError::invalid(
            "invalid agent params: extraSystemPrompt: instructions belong to the agent; change its \
             files",
        ));
    }
    if params.model.or(params.provider).is_some_and(|model| !model.trim().is_empty()) {
        return Err(MethodError::invalid(
            "invalid agent params: model: a turn has its session's model, which `sessions.patch` sets",
        ));
    }
    let options = chat::sending_options(params.thinking.as_deref(), None)?;
    let session = params.session_key.or(params.session_id).or_else(|| {
        let to = params.to?;
        let channel = params.channel.filter(|channel| channel != "last")?;
        Some(format!("{channel}:dm:{to}"))
    });
    let session = session.unwrap_or_default();
    let place = call.place(&agent_id, &session, ConversationRight::Write).await?;
    let sending = Sending { place, message, attachments, idempotency_key, options };
    let sent = chat::send_message(&call, sending).await?;
    let accepted_at = now_ms();
    call.respond_early(json!({
        "runId": sent.run,
        "sessionKey": sent.key,
        "status": "accepted",
        "acceptedAt": accepted_at,
    }));
    let message = sent.accepted.accepted.message;
    let followed = call.service.follower.message(call.tenant(), message).await?;
    let session = followed.session().to_string();
    let patience = timeout.filter(|seconds| *seconds > 0).map(Duration::from_secs);
    let patience = patience.unwrap_or_else(|| call.service.answer_timeout());
    let result = finish(followed, patience).await?;
    answer(&sent.run, &sent.key, &session, now_ms() - accepted_at, result)
}

/// Waits for the end of a turn; approvals are waited for, too.
async fn finish(mut followed: FollowedMessage, patience: Duration) -> Result<TurnResult, Error> {
    let until = Instant::now() + patience;
    loop {
        match tokio::time::timeout_at(until, followed.next()).await {
            Ok(Some(Ok(event))) => {
                if let crate::follow::EventKind::Done(result) = event.kind {
                    return Ok(result);
                }
            }
            Ok(Some(Err(error))) => return Err(error),
            Ok(None) => return Err(Error::Stopping),
            Err(_) => return Err(Error::AnswerTimeout { waited: patience }),
        }
    }
}

fn answer(run: &str, key: &str, session: &str, took: i64, result: TurnResult) -> Reply {
    let TurnResult { outcome, text, reason, usage, model, .. } = result;
    let (provider, name) = model.split_once(':').unwrap_or(("", model.as_str()));
    let payloads: Vec<Value> = match text.trim() {
        "" => Vec::new(),
        _ => vec![json!({ "text": text, "mediaUrl": null })],
    };
    let summary = match outcome {
        TurnOutcome::Completed => "completed",
        TurnOutcome::Cancelled | TurnOutcome::Interrupted => "aborted",
        TurnOutcome::Failed | TurnOutcome::Dead => {
            let reason = reason.unwrap_or_else(|| "the turn failed".to_owned());
            let details = json!({ "runId": run, "sessionKey": key });
            return Err(MethodError::new(ErrorKind::Unavailable, reason).with_details(details));
        }
    };
    Ok(json!({
        "runId": run,
        "sessionKey": key,
        "status": "ok",
        "summary": summary,
        "result": {
            "payloads": payloads,
            "meta": {
                "durationMs": took,
                "aborted": summary == "aborted",
                "agentMeta": {
                    "sessionId": session,
                    "provider": provider,
                    "model": name,
                    "usage": {
                        "input": usage
                            .input
                            .saturating_sub(usage.cached + usage.written + usage.written_long),
                        "output": usage.output,
                        "cacheRead": usage.cached,
                        "cacheWrite": usage.written + usage.written_long,
                        "total": usage.input + usage.output,
                    },
                },
            },
        },
    }))
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct WaitParams {
    run_id: String,
    timeout_ms: Option<u64>,
}

/// Waits for a turn that was begun before, through this gateway or another one.
async fn wait(call: Call, params: WaitParams) -> Reply {
    let WaitParams { run_id, timeout_ms } = params;
    let message = message_of(&call, &run_id).await?;
    let (ingest, follower) = (&call.service.ingest, &call.service.follower);
    let followed = call
        .as_method("Messages/Follow", async {
            ingest.check_message(&call.caller, message, ConversationRight::Read).await?;
            follower.message(call.tenant(), message).await
        })
        .await?;
    let patience = timeout_ms.map_or(DEFAULT_WAIT, Duration::from_millis);
    let result = match finish(followed, patience).await {
        Ok(result) => result,
        Err(Error::AnswerTimeout { .. }) => {
            return Ok(json!({ "runId": run_id, "status": "timeout" }));
        }
        Err(error) => return Err(error.into()),
    };
    let ended = now_ms();
    Ok(match result.outcome {
        TurnOutcome::Completed => json!({ "runId": run_id, "status": "ok", "endedAt": ended }),
        TurnOutcome::Cancelled | TurnOutcome::Interrupted => json!({
            "runId": run_id,
            "status": "ok",
            "stopReason": result.outcome.as_str(),
            "endedAt": ended,
        }),
        TurnOutcome::Failed | TurnOutcome::Dead => json!({
            "runId": run_id,
            "status": "error",
            "error": result.reason,
            "endedAt": ended,
        }),
    })
}

/// Message that began a turn: the id of a run or a message, or the idempotency key under which the
/// caller has sent it.
async fn message_of(call: &Call, run: &str) -> Result<MessageId, MethodError> {
    if let Ok(run) = run.parse::<holdfast_types::RunId>() {
        return Ok(MessageId::from(run.as_uuid()));
    }
    if let Ok(message) = run.parse() {
        return Ok(message);
    }
    let source = ingest::source(&call.caller);
    let views = call.state().sessions.views();
    let found = views.find_accepted(call.tenant(), &source, run).await?;
    let shown: String = run.chars().take(80).collect();
    let unknown = || MethodError::invalid(format!("unknown run: {shown}"));
    found.map(|accepted| accepted.message).ok_or_else(unknown)
}
