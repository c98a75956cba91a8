//! Tools of an API's client, beside the agent's own.
//!
//! ```text
//! thought ─▶ the agent's own calls are made ─▶ only calls of the client are left
//!                                                   │ one transaction: the turn ends with them,
//!                                                   ▼ the session waits; no runner has it
//!        any runner ◀── the message with the results: the next turn
//!        any runner ◀── the deadline: each call ends with an error, and no model is asked
//! ```
//!
//! The mesh never runs a client's tool, so neither the policy nor approvals concern it. Its results
//! count as text from outside.

use std::time::Duration;

use holdfast_session::{Claim, Completion, CompletionResult, LoadedSession, TurnOutcome};
use holdfast_types::{
    AnswerOptions, AnswerSchema, ClientTool, Entry, Handover, MessageFilter, Note, RunId, ToolCall,
    ToolChoice, ToolSpec, Usage, Wait,
};
use jiff::Timestamp;
use serde_json::Value;

use crate::{
    agents::snapshots::AgentSnapshot,
    error::Error,
    turn::{calls, reply::completion, state::TurnState, think::is_tool_lookup},
    worker::Worker,
};

const WAIT_NOTE: &str = "the results of the client's tools";

/// Result of a call that the client's `parallel_tool_calls: false` excludes.
const NOT_AT_ONCE: &str = "not made: one call at a time was asked for; make it again after the \
                           result of the first";

/// Adds the client's tools to those of the agent. If the client demands a call, the model is offered
/// nothing else.
pub(crate) fn offer(options: Option<&AnswerOptions>, tools: &mut Vec<ToolSpec>) {
    let Some(options) = options.filter(|options| !options.tools.is_empty()) else { return };
    let is_offered = |tool: &&ClientTool| match &options.tool_choice {
        Some(ToolChoice::None) => false,
        Some(ToolChoice::Function(name)) => tool.name == *name,
        Some(ToolChoice::Auto | ToolChoice::Required) | None => true,
    };
    if options.is_call_forced() {
        tools.clear();
    }
    tools.extend(options.tools.iter().filter(is_offered).map(|tool| ToolSpec {
        name: tool.name.clone(),
        description: tool.description.clone(),
        input: tool.parameters.clone(),
    }));
}

/// Name of a client's tool that is also the name of a tool that the agent may use.
pub(crate) fn find_clash(turn: &TurnState<'_>, snapshot: &AgentSnapshot) -> Option<String> {
    let tools = &turn.answer_options()?.tools;
    if tools.is_empty() {
        return None;
    }
    let (registry, allowed) = (turn.tools.registry(), calls::allowed_tools(turn, snapshot));
    let is_own = |name: &str| {
        registry.canonical(name) == Some(name) && (is_tool_lookup(name) || allowed.allows(name))
    };
    tools.iter().map(|tool| &tool.name).find(|name| is_own(name)).cloned()
}

/// Ends the turn with calls of the client's tools. Calls that may not be handed over get their
/// failed results instead, and the turn goes on.
pub(crate) async fn hand_over(
    turn: &mut TurnState<'_>,
    calls: &[ToolCall],
) -> Result<Option<CompletionResult>, Error> {
    let options = turn.answer_options();
    let is_single = options.is_some_and(|options| options.parallel_tool_calls == Some(false));
    let tools = options.map_or(&[][..], |options| &options.tools);
    let (mut handed, mut refused) = (Vec::new(), Vec::new());
    for call in calls {
        let error = argument_error(tools, call)
            .or_else(|| (is_single && !handed.is_empty()).then(|| NOT_AT_ONCE.to_owned()));
        match error {
            Some(error) => refused.push(Entry::returned(&call.id, error, true)),
            None => handed.push(call.clone()),
        }
    }
    if handed.is_empty() {
        return turn.append(refused).await.map(|_| None);
    }
    for entry in refused {
        turn.journal.add_unstored(entry);
    }
    let text = turn.journal.turn().iter().rev().find_map(|entry| match entry {
        Entry::Thought { text, .. } => Some(text.trim().to_owned()),
        Entry::Heard { .. }
        | Entry::Called { .. }
        | Entry::Returned { .. }
        | Entry::Noted { .. } => None,
    });
    let timeout = turn.worker.config.client_tool_timeout;
    let until = Timestamp::now().as_millisecond().saturating_add(millis(timeout));
    let handover = Handover::new(turn.run, text.unwrap_or_default(), &handed, until);
    metrics::counter!("holdfast_runner_client_calls_total")
        .increment(u64::try_from(handed.len()).unwrap_or(u64::MAX));
    completion::finish_with_handover(turn, handover, wait(timeout)).await.map(Some)
}

/// What is wrong with the arguments of a call, if the client asked to have them checked.
fn argument_error(tools: &[ClientTool], call: &ToolCall) -> Option<String> {
    let tool = tools.iter().find(|tool| tool.name == call.tool && tool.strict)?;
    let schema = AnswerSchema::try_from(tool.parameters.clone()).ok()?;
    let input = if call.input.trim().is_empty() { "{}" } else { &call.input };
    let checked = serde_json::from_str::<Value>(input)
        .map_err(|error| format!("they are not JSON: {error}"))
        .and_then(|input| schema.check(&input));
    checked.err().map(|why| format!("not made: the arguments cannot be used: {why}"))
}

fn wait(timeout: Duration) -> Wait {
    Wait::Message {
        filter: MessageFilter::default(),
        deadline_ms: Some(u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX)),
        note: WAIT_NOTE.to_owned(),
    }
}

fn millis(time: Duration) -> i64 {
    i64::try_from(time.as_millis()).unwrap_or(i64::MAX)
}

/// The handover that a session waits for, if its latest turn ended with one.
pub(crate) fn pending_handover(entries: &[Entry]) -> Option<Handover> {
    let last = entries.iter().rev().find(|entry| match entry {
        Entry::Noted { note, .. } => !matches!(note, Note::Summary | Note::Posted),
        Entry::Heard { .. }
        | Entry::Thought { .. }
        | Entry::Called { .. }
        | Entry::Returned { .. } => true,
    })?;
    Handover::from_entry(last)
}

/// Ends the calls of a handover whose deadline has passed. The next message begins a turn that sees
/// their failed results.
pub(crate) async fn end_overdue_calls(
    worker: &Worker,
    claim: &Claim,
    loaded: &LoadedSession,
    handover: &Handover,
) -> Result<CompletionResult, Error> {
    let told = "the client did not send a result of this call in time";
    let mut entries: Vec<Entry> =
        handover.calls.iter().map(|call| Entry::returned(&call.call, told, true)).collect();
    entries.push(Entry::noted(Note::Failed, told));
    metrics::counter!("holdfast_runner_client_calls_overdue_total")
        .increment(u64::try_from(handover.calls.len()).unwrap_or(u64::MAX));
    let completion = Completion {
        run: RunId::generate(),
        at: Some(loaded.next_entry),
        newest: loaded.waiting.last().map(|row| (row.seq, row.message)),
        entries,
        done: Vec::new(),
        outcome: TurnOutcome::Failed,
        reason: Some(told.to_owned()),
        reply: None,
        deliveries: Vec::new(),
        usage: Usage::default(),
        model: String::new(),
        steps: 0,
        tools: Vec::new(),
        started_at: Timestamp::now(),
        wait: Wait::Anything,
        last_target: None,
        effects: None,
    };
    Ok(worker.sessions.complete(claim, completion).await?)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn tool(name: &str, strict: bool) -> ClientTool {
        let parameters = json!({
            "type": "object",
            "properties": {"city": {"type": "string"}},
            "required": ["city"],
        });
        ClientTool { name: name.to_owned(), description: String::new(), parameters, strict }
    }

    fn offered(choice: Option<ToolChoice>) -> Vec<String> {
        let tools = vec![tool("look", false), tool("ask", false)];
        let options = AnswerOptions { tools, tool_choice: choice, ..AnswerOptions::default() };
        let own = ToolSpec { name: "read".into(), description: String::new(), input: json!({}) };
        let mut tools = vec![own];
        offer(Some(&options), &mut tools);
        tools.into_iter().map(|tool| tool.name).collect()
    }

    #[test]
    fn the_clients_choice_decides_which_tools_the_model_sees() {
        assert_eq!(offered(None), ["read", "look", "ask"]);
        assert_eq!(offered(Some(ToolChoice::None)), ["read"]);
        assert_eq!(offered(Some(ToolChoice::Required)), ["look", "ask"]);
        assert_eq!(offered(Some(ToolChoice::Function("ask".into()))), ["ask"]);
    }

    #[test]
    fn only_strict_arguments_are_checked() {
        let call =
            |input: &str| ToolCall { id: "1".into(), tool: "look".into(), input: input.into() };

        for (strict, input, is_right) in [
            (true, r#"{"city": "Paris"}"#, true),
            (true, r#"{"town": "Paris"}"#, false),
            (true, "{", false),
            (true, "", false),
            (false, "{", true),
        ] {
            let error = argument_error(&[tool("look", strict)], &call(input));
            assert_eq!(error.is_none(), is_right, "{input}: {error:?}");
        }
    }
}
