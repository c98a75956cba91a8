//! Skills whose command goes directly to a tool (spec SKL-013, decision 0039).
//!
//! ```text
//! /weather Rome ─▶ note, and a thought without a model ─▶ call ─▶ its result is the answer
//! ```
//!
//! Only the thought is made here. The call is then handled like any other: policy, approval,
//! record, execution, unknown outcome after a crash.
//!
//! **What can go wrong.** A runner crashes after storing the note: the next one finds it and does
//! not read the skill again, which may have changed.

use std::sync::Arc;

use holdfast_agent::CallResult;
use holdfast_session::CompletionResult;
use holdfast_tools::TOOL_NOT_ALLOWED;
use holdfast_types::{AgentChoice, Body, Entry, Note, ToolCall, Usage};
use serde_json::{Map, Value};
use tracing::warn;

use super::invocation::is_from_person;
use crate::{
    agents::snapshots::AgentSnapshot,
    error::Error,
    tools::mcp::{self, ToolRefresh},
    turn::{calls, reply::completion, routing, state::TurnState, steps},
};

/// Id of the command's call, the only one of its turn.
const COMMAND_CALL_ID: &str = "command";

/// A command that goes to a tool.
struct DispatchedCommand {
    skill: String,
    tool: String,
    /// Text after the name.
    typed: String,
}

impl TurnState<'_> {
    /// Whether this turn's command was dispatched and no message followed.
    pub(crate) fn is_dispatched(&self) -> bool {
        let turn = self.journal.turn();
        let since = turn.iter().position(is_dispatch).map(|at| &turn[at..]);
        let asks = |entry: &Entry| matches!(entry, Entry::Heard { body, .. } if !body.silent);
        since.is_some_and(|since| !since.iter().any(asks))
    }
}

/// Returns the agent of this turn; `None` if new input must be handled first. A dispatched
/// command is not routed.
pub(crate) async fn answering_agent(
    turn: &mut TurnState<'_>,
    home: &Arc<AgentSnapshot>,
) -> Result<Option<Arc<AgentSnapshot>>, Error> {
    let entries = turn.journal.turn();
    let was_chosen = entries.iter().any(|entry| AgentChoice::from_entry(entry).is_some());
    match entries.iter().any(is_dispatch) && !was_chosen {
        true => Ok(Some(Arc::clone(home))),
        false => routing::route_turn(turn, home).await,
    }
}

/// Dispatches the turn's command to a tool. Returns `Some` if that is impossible and the turn
/// ended with the reason.
pub(crate) async fn dispatch_command(
    turn: &mut TurnState<'_>,
    snapshot: &AgentSnapshot,
) -> Result<Option<CompletionResult>, Error> {
    let Some(wanted) = dispatched_command(turn.journal.turn(), snapshot) else { return Ok(None) };
    metrics::counter!("holdfast_runner_commands_total").increment(1);
    let is_a_servers = mcp::may_need_servers(&wanted.tool);
    steps::load_tools(
        turn,
        snapshot,
        if is_a_servers { ToolRefresh::Refresh } else { ToolRefresh::UseCached },
    )
    .await?;
    let registry = turn.tools.registry();
    // For a tool of an unavailable server, the call's own error says more.
    if registry.canonical(&wanted.tool).is_none() && !is_a_servers {
        return completion::finish_with_answer(turn, fixed_answer(wanted.unknown_tool_text()))
            .await
            .map(Some);
    }
    let Some(input) = wanted.tool_input(registry.fields(&wanted.tool)) else {
        return completion::finish_with_answer(turn, fixed_answer(wanted.no_argument_text()))
            .await
            .map(Some);
    };
    let DispatchedCommand { skill, tool, .. } = wanted;
    let note = Entry::noted(Note::Dispatched, skill.as_str());
    let call = ToolCall { id: COMMAND_CALL_ID.to_owned(), tool, input };
    let thought = match fixed_answer(String::new()) {
        Entry::Thought { text, usage, model, carry, record, .. } => {
            Entry::Thought { text, calls: vec![call.clone()], usage, model, carry, record }
        }
        other => other,
    };
    turn.append(vec![note, thought]).await?;
    let (claim, key) = (&turn.lease.claim, calls::call_key(turn, &call));
    let workspaces = &turn.worker.workspaces;
    let noted = workspaces
        .record_skill_use(claim.tenant, snapshot.agent, &skill, claim.session, &key)
        .await;
    if let Err(error) = noted {
        // A missing record must not fail the turn.
        warn!(error = &error as &dyn std::error::Error, "a skill's use was not noted");
    }
    Ok(None)
}

/// Ends the turn with the result of the command's call.
pub(crate) async fn finish_dispatched(
    turn: &mut TurnState<'_>,
    call: &ToolCall,
    came: CallResult<'_>,
) -> Result<CompletionResult, Error> {
    completion::finish_with_answer(turn, fixed_answer(result_text(&call.tool, came))).await
}

const fn is_dispatch(entry: &Entry) -> bool {
    matches!(entry, Entry::Noted { note: Note::Dispatched, .. })
}

/// The dispatched command of a turn that contains nothing else.
fn dispatched_command(turn: &[Entry], snapshot: &AgentSnapshot) -> Option<DispatchedCommand> {
    let body = only_message(turn)?;
    let found = snapshot.skills.skill_set.parse_invocation(&body.text).ok().flatten()?;
    let tool = found.skill.manifest.dispatch.as_ref()?.tool.clone();
    let (skill, typed) = (found.skill.name().to_owned(), found.arguments.to_owned());
    Some(DispatchedCommand { skill, tool, typed })
}

/// The message of a person, if it is the only one and nothing was done about it yet.
fn only_message(turn: &[Entry]) -> Option<&Body> {
    let mut sole = None;
    for entry in turn {
        match entry {
            Entry::Heard { body, .. } if body.silent => {}
            Entry::Heard { body, .. } if is_from_person(body) && sole.is_none() => {
                sole = Some(body)
            }
            Entry::Noted { note: Note::Routed | Note::Told | Note::Posted, .. } => {}
            Entry::Heard { .. }
            | Entry::Thought { .. }
            | Entry::Called { .. }
            | Entry::Returned { .. }
            | Entry::Noted { .. } => return None,
        }
    }
    sole
}

impl DispatchedCommand {
    /// Input for the tool, limited to the fields that it accepts. `None` if the typed text is not
    /// among them.
    fn tool_input(&self, takes: Option<Vec<&str>>) -> Option<String> {
        let all =
            [("command", &self.typed), ("commandName", &self.skill), ("skillName", &self.skill)];
        let is_taken = |name: &str| takes.as_ref().is_none_or(|takes| takes.contains(&name));
        let given = all.into_iter().filter(|(name, _)| is_taken(name));
        let given: Map<String, Value> =
            given.map(|(name, value)| (name.to_owned(), Value::from(value.as_str()))).collect();
        (is_taken("command") || self.typed.is_empty()).then(|| Value::Object(given).to_string())
    }

    fn unknown_tool_text(&self) -> String {
        let Self { skill, tool, .. } = self;
        format!(
            "/{skill} goes to the tool `{tool}`, and there is none of that name here: whoever keeps \
             the skill writes another one behind `command-tool`"
        )
    }

    fn no_argument_text(&self) -> String {
        let Self { skill, tool, .. } = self;
        format!(
            "/{skill} goes to the tool `{tool}`, which takes no `command`: send it with nothing \
             behind it, or have whoever keeps the skill name another tool"
        )
    }
}

/// Text about a call's result for the user.
fn result_text(tool: &str, came: CallResult<'_>) -> String {
    match came {
        CallResult { output: TOOL_NOT_ALLOWED, .. } => {
            format!("Not done: the tool `{tool}` may not be used in this conversation.")
        }
        CallResult { output, failed: true } => format!("Not done: `{tool}`: {output}"),
        CallResult { output, failed: false } if output.trim().is_empty() => {
            format!("`{tool}` is done.")
        }
        CallResult { output, failed: false } => output.to_owned(),
    }
}

/// An answer without a model.
pub(super) fn fixed_answer(text: String) -> Entry {
    let (calls, usage, model) = (Vec::new(), Usage::default(), String::new());
    Entry::Thought { text, calls, usage, model, carry: None, record: None }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn typed(typed: &str) -> DispatchedCommand {
        DispatchedCommand { skill: "weather".into(), tool: "x".into(), typed: typed.into() }
    }

    fn heard(text: &str) -> Entry {
        Entry::Heard { seq: 1, body: Body::text(text) }
    }

    #[test]
    fn a_tool_is_given_what_was_typed_and_by_which_command_so_far_as_it_takes_that() {
        let input = |said: &str, takes: Option<Vec<&str>>| typed(said).tool_input(takes);

        let all = r#"{"command":"a \"b\"\nc","commandName":"weather","skillName":"weather"}"#;
        assert_eq!(input("a \"b\"\nc", None).as_deref(), Some(all));
        let some = input("a", Some(vec!["command", "workdir"]));
        assert_eq!(some.as_deref(), Some(r#"{"command":"a"}"#));
        assert_eq!(input("a", Some(vec!["query"])), None);
        assert_eq!(input("", Some(vec!["query"])).as_deref(), Some("{}"));
    }

    #[test]
    fn only_what_one_person_said_alone_goes_to_a_tool() {
        let psst = Entry::Heard { seq: 2, body: Body { silent: true, ..Body::text("psst") } };
        let routed = Entry::noted(Note::Routed, "{}");
        let alone = [psst, routed, heard("/weather")];
        assert_eq!(only_message(&alone).map(|body| body.text.as_str()), Some("/weather"));

        for turn in [
            vec![heard("/weather"), heard("hello")],
            vec![heard("/weather"), fixed_answer("hello".to_owned())],
            vec![heard("/weather"), Entry::noted(Note::Dispatched, "weather")],
            vec![heard("/weather"), Entry::noted(Note::DeadlinePassed, "x")],
            vec![],
        ] {
            assert_eq!(only_message(&turn), None, "{turn:?}");
        }
    }

    #[test]
    fn a_person_is_told_what_came_of_it() {
        let came = |output, failed| result_text("exec", CallResult { output, failed });

        assert_eq!(came("23 degrees", false), "23 degrees");
        assert_eq!(came(" ", false), "`exec` is done.");
        assert_eq!(came("no such city", true), "Not done: `exec`: no such city");
        let denied = "Not done: the tool `exec` may not be used in this conversation.";
        assert_eq!(came(TOOL_NOT_ALLOWED, true), denied);
    }
}
