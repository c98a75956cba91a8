//! Prompts of model calls that were made, composed again for people who look at a run.
//!
//! Nothing is stored of a prompt. It follows from the journal up to the call, and from what belongs to
//! the agent now: settings, files, skills, tools. The turn here holds no claim, so it can write
//! nothing, and tells nobody that it begins.

use std::sync::Arc;

use holdfast_agent::tokens::{CjkAware, Tokenizer as _};
use holdfast_bus::{PromptAnswer, PromptQuestion, RenderedMessage, RenderedPrompt};
use holdfast_kit::boot_clock;
use holdfast_session::{CLAIM_LEASE, Claim, LoadedSession, SessionView, TurnClass};
use holdfast_types::{Chat, ChatMessage, Entry, SessionKey, Wait};
use tokio::time::Instant;
use tracing::warn;

use crate::{
    agents::snapshots::{AgentLookup, AgentSnapshot},
    error::Error,
    leases::Lease,
    tools::mcp::ToolRefresh,
    turn::{
        context::media, journal::Journal, participants, prompt, run::TurnStart, skills::invocation,
        state::TurnState, steps, time_zone,
    },
    worker::Worker,
};

/// Maximum size of an answer, in bytes: less than NATS takes.
const MAX_ANSWER_BYTES: usize = 900_000;

/// An epoch that no claim has.
const NO_EPOCH: i64 = -1;

pub(crate) async fn answer_prompt_question(
    worker: Arc<Worker>,
    question: PromptQuestion,
) -> PromptAnswer {
    match Box::pin(render(&worker, &question)).await {
        Ok(Ok(prompt)) => PromptAnswer::Rendered { prompt: Box::new(prompt) },
        Ok(Err(error)) => PromptAnswer::Failed { error },
        Err(error) => {
            warn!(error = &error as &dyn std::error::Error, "a prompt was not composed again");
            PromptAnswer::Failed { error: "the runner cannot compose it just now".to_owned() }
        }
    }
}

/// Returns the prompt, or why there is none.
async fn render(
    worker: &Worker,
    question: &PromptQuestion,
) -> Result<Result<RenderedPrompt, String>, Error> {
    let PromptQuestion { tenant, session, run, seq } = *question;
    let views = worker.sessions.views();
    let view = views.session(tenant, session).await?;
    let history = i64::from(worker.config.history_entries);
    let mut entries = views.history(tenant, session, history + 1, Some(seq + 1)).await?;
    let model = match entries.pop() {
        Some(last) if last.seq == seq && last.run == run => model_of(&last.entry),
        _ => None,
    };
    let Some(model) = model else { return Ok(Err("there is no such model call".to_owned())) };
    let mut found = worker.agents.find(tenant, view.agent, Some(model)).await?;
    let mut missing = vec!["memories that were found for the turn".to_owned()];
    if matches!(found, AgentLookup::NoModel(_)) {
        found = worker.agents.find(tenant, view.agent, None).await?;
        missing.push("settings of the model, which cannot be used any more".to_owned());
    }
    let AgentLookup::Ready(snapshot) = found else {
        return Ok(Err("the agent or its model is gone".to_owned()));
    };
    if snapshot.behaviors.is_some() {
        return Ok(Err("the agent works by behaviours, whose input is not kept: render the \
                       behaviour of the step instead"
            .to_owned()));
    }

    let first = entries.iter().rev().take_while(|entry| entry.run == run).count();
    let journal: Vec<Entry> = entries.into_iter().map(|entry| entry.entry).collect();
    let at = journal.len() - first;
    let claim = Claim {
        tenant,
        session,
        runner: worker.id,
        epoch: NO_EPOCH,
        attempts: 1,
        class: TurnClass::Interactive,
    };
    let lease = Arc::new(Lease::new(claim, boot_clock::now(), CLAIM_LEASE));
    let journal = Journal::new(worker.sessions.clone(), Arc::clone(&lease), journal, at, seq);
    let loaded = loaded(worker, question, view).await?;
    let begun = TurnStart { run, open: true, overdue: None, trace: None };
    let mut turn = TurnState::new(worker, lease, loaded, begun, journal, Instant::now(), None);
    prepare(&mut turn, &snapshot).await?;

    let request = prompt::model_request(&turn, &snapshot, true);
    Ok(Ok(rendered(request.model.to_string(), request.chat, missing)))
}

fn model_of(entry: &Entry) -> Option<String> {
    match entry {
        Entry::Thought { model, .. } => Some(model.clone()).filter(|model| !model.is_empty()),
        Entry::Heard { .. }
        | Entry::Called { .. }
        | Entry::Returned { .. }
        | Entry::Noted { .. } => None,
    }
}

/// The session as a claim would load it, without messages that wait.
async fn loaded(
    worker: &Worker,
    question: &PromptQuestion,
    view: SessionView,
) -> Result<LoadedSession, Error> {
    let settings = worker.sessions.settings().get(question.tenant, question.session).await?;
    Ok(LoadedSession {
        key: view.key,
        agent: view.agent,
        waiting: Vec::new(),
        entries: Vec::new(),
        next_in: 0,
        next_entry: question.seq,
        paused: false,
        cancel_upto: 0,
        last_target: view.last_target,
        settings,
        wait: Wait::Anything,
        events: Vec::new(),
        outside: false,
        holder: None,
        workspace: view.workspace,
    })
}

/// Loads what a step loads before it asks the model.
async fn prepare(turn: &mut TurnState<'_>, snapshot: &AgentSnapshot) -> Result<(), Error> {
    let window = usize::try_from(snapshot.card.context).unwrap_or(usize::MAX);
    turn.context_tokens = turn.context_tokens.min(window);
    if turn
        .key
        .parse()
        .is_ok_and(|key: SessionKey| key.kind() == holdfast_types::SessionKind::Subagent)
    {
        let claim = &turn.lease.claim;
        turn.task = turn.worker.sessions.subagents().get(claim.tenant, claim.session).await?;
    }
    // Its answer for an unusable skill belongs to the turn that was run.
    invocation::find_invoked_skill(turn, snapshot);
    steps::load_tools(turn, snapshot, ToolRefresh::UseCached).await?;
    participants::load_policy(turn).await?;
    time_zone::load_preferences(turn, snapshot.dm_scope).await?;
    media::load_images(turn).await
}

fn rendered(model: String, chat: Chat, mut missing: Vec<String>) -> RenderedPrompt {
    let mut messages: Vec<RenderedMessage> = chat.messages.into_iter().map(message).collect();
    let own = chat.stable.len() + chat.dynamic.len();
    let tool_bytes: usize =
        chat.tools.iter().map(|tool| tool.description.len() + tool.input.to_string().len()).sum();
    let room = MAX_ANSWER_BYTES.saturating_sub(own + tool_bytes);
    let estimate = CjkAware.count(&chat.stable)
        + CjkAware.count(&chat.dynamic)
        + messages.iter().map(|one| CjkAware.count(&one.text)).sum::<usize>()
        + tool_bytes / 4;
    let left_out = messages_beyond(&messages, room);
    if left_out > 0 {
        messages.drain(..left_out);
        missing.push(format!("the {left_out} oldest messages, which are too long to show"));
    }
    RenderedPrompt {
        model,
        stable: chat.stable.to_string(),
        dynamic: chat.dynamic,
        messages,
        tools: chat.tools,
        estimated_tokens: u64::try_from(estimate).unwrap_or(u64::MAX),
        missing,
    }
}

/// Number of the oldest messages that have no room.
fn messages_beyond(messages: &[RenderedMessage], mut room: usize) -> usize {
    // JSON escapes some characters.
    let bytes = |one: &RenderedMessage| {
        let calls: usize = one.calls.iter().map(|call| call.input.len() + 100).sum();
        (one.text.len() + calls) * 5 / 4 + 100
    };
    for (at, message) in messages.iter().enumerate().rev() {
        match room.checked_sub(bytes(message)) {
            Some(rest) => room = rest,
            None => return at + 1,
        }
    }
    0
}

fn message(message: ChatMessage) -> RenderedMessage {
    match message {
        ChatMessage::User { text, images } => RenderedMessage {
            role: "user".to_owned(),
            text,
            pictures: u32::try_from(images.len()).unwrap_or(u32::MAX),
            ..RenderedMessage::default()
        },
        ChatMessage::Assistant { text, calls, carry: _ } => {
            let role = "assistant".to_owned();
            RenderedMessage { role, text, calls, ..RenderedMessage::default() }
        }
        ChatMessage::Tool { call, output, failed: _ } => RenderedMessage {
            role: "tool".to_owned(),
            text: output,
            call_id: call,
            ..RenderedMessage::default()
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_messages_are_shown_if_not_all_have_room() {
        let text = |length: usize| RenderedMessage {
            text: "x".repeat(length),
            ..RenderedMessage::default()
        };

        assert_eq!(messages_beyond(&[text(10), text(10)], 1_000), 0);
        assert_eq!(messages_beyond(&[text(800), text(10), text(10)], 400), 1);
        assert_eq!(messages_beyond(&[text(800)], 400), 1);
    }
}
