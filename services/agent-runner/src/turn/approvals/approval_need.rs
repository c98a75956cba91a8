//! Decision whether a call needs an approval, from its tool and the policy.

use holdfast_agent::{
    is_allowed,
    policy::{Decision, DecisionSource, Reason, written_paths},
};
use holdfast_session::subject_hash;
use holdfast_tools::{Approval, Call, Destination, SubjectText, ToolError, visible};
use holdfast_types::{Entry, ToolCall};
use serde_json::Value;
use tokio::time::{Duration, timeout};

use super::{
    allow_rules,
    outgoing::Conversation,
    outside_text, request,
    tool_flows::{self, Sink, sink_of},
};
use crate::{
    agents::snapshots::AgentSnapshot,
    error::Error,
    turn::{calls, participants, state::TurnState},
};

/// Time limit for a tool to decide whether a call needs an approval.
const APPROVAL_CHECK_TIMEOUT: Duration = Duration::from_secs(30);

/// Limit on the text that is approved, in characters: it is shown in full, in about five messages of
/// a chat, and nobody can check a longer one.
const MAX_SUBJECT_CHARS: usize = 16_000;

pub(super) enum CallDecision {
    Allowed,
    NeedsApproval(ApprovalNeed),
    /// The call may not be made; the text is for the model.
    Refused(String),
}

pub(super) struct ApprovalNeed {
    pub(super) tool: String,
    /// Exact text of what is approved, as the person sees it.
    pub(super) subject: String,
    /// The subject in one line, for lists.
    pub(super) summary: String,
    /// Pattern that "always" would allow.
    pub(super) pattern: Option<String>,
}

/// Decides whether a call needs an approval and whether it has one.
pub(super) async fn decide_call(
    turn: &TurnState<'_>,
    snapshot: &AgentSnapshot,
    call: &ToolCall,
) -> Result<CallDecision, Error> {
    let Some(known) = turn.tools.canonical_name(&call.tool) else {
        return Ok(CallDecision::Allowed);
    };
    if turn.is_self_improvement() && changes_agent(known, &call.input) {
        return Ok(CallDecision::Refused(request::PROPOSE_RESULT.to_owned()));
    }
    let wanted = match required_approval(turn, snapshot, call, known).await? {
        Approval::Never => return Ok(CallDecision::Allowed),
        Approval::Deny(why) => return Ok(CallDecision::Refused(why)),
        Approval::Ask { .. } if turn.is_flushing() => {
            return Ok(CallDecision::Refused(request::IN_FLUSH_RESULT.to_owned()));
        }
        Approval::Ask { .. } if turn.is_self_improvement() => {
            return Ok(CallDecision::Refused(request::NOBODY_RESULT.to_owned()));
        }
        Approval::Ask { subject, summary, pattern } => ApprovalNeed {
            tool: known.to_owned(),
            subject: visible(&subject),
            summary: request::single_line(&summary),
            pattern: pattern.filter(|pattern| pattern.len() <= request::MAX_PATTERN_BYTES),
        },
    };
    let length = wanted.subject.chars().count();
    if length > MAX_SUBJECT_CHARS {
        return Ok(CallDecision::Refused(request::too_long_result(length, MAX_SUBJECT_CHARS)));
    }
    if is_allowed(turn.journal.entries(), &call.id) {
        let (claim, step) = (&turn.lease.claim, turn.current_step());
        let approved = turn
            .worker
            .sessions
            .approvals()
            .approved_subject_hash(claim, turn.run, step, &call.id)
            .await?;
        let same = approved.as_deref() == Some(subject_hash(&wanted.subject).as_slice());
        return Ok(match same {
            true => CallDecision::Allowed,
            false => CallDecision::Refused(request::CHANGED_RESULT.to_owned()),
        });
    }
    Ok(match is_covered_by_rule(turn, snapshot, call, &wanted).await? {
        true => CallDecision::Allowed,
        false => CallDecision::NeedsApproval(wanted),
    })
}

/// Returns the stricter of the tool's own requirement and the policy's.
async fn required_approval(
    turn: &TurnState<'_>,
    snapshot: &AgentSnapshot,
    call: &ToolCall,
    known: &str,
) -> Result<Approval, Error> {
    if tool_flows::sends_input(turn.tools.registry(), known)
        && let Some(name) = snapshot.skills.secrets.find_in(&call.input)
    {
        return Ok(Approval::Deny(format!(
            "not done: it would send the value of `{name}`, which is secret, to somebody else"
        )));
    }
    let registry = turn.tools.registry();
    let context = calls::call_context(turn, snapshot, call);
    let asked = registry.approval(&context, &call.tool, &call.input);
    let said = match timeout(APPROVAL_CHECK_TIMEOUT, asked).await {
        Ok(Ok(said)) => said,
        // The call itself fails in the same way and reports the error.
        Ok(Err(ToolError::Tell(_))) => return Ok(Approval::Never),
        Ok(Err(ToolError::Broken(source))) => {
            return Err(Error::Tool { name: known.to_owned(), source });
        }
        Err(_) => {
            return Ok(Approval::Deny(
                "whether this call may be made could not be found out in time: try again"
                    .to_owned(),
            ));
        }
    };
    // Tools that run commands ask the policy themselves, with more detail. Email needs an
    // approval to be sent, not to be drafted.
    if said != Approval::Never || matches!(known, "exec" | "process" | "email") {
        return Ok(said);
    }
    let Ok(input) = serde_json::from_str::<Value>(&call.input) else { return Ok(said) };
    Ok(match participants::decide(turn, snapshot, call) {
        Decision::Allow if turn.has_read_outside_text() => {
            after_outside_text(turn, snapshot, (&context, call, known), &input).await?
        }
        Decision::Allow => Approval::Never,
        Decision::Deny { layer: DecisionSource::Action | DecisionSource::Exec, rule } => {
            Approval::Deny(format!("not done: {rule}"))
        }
        // The call itself reports that the tool is not available, or that the file may not be changed.
        Decision::Deny { .. } => Approval::Never,
        Decision::NeedApproval { .. } if !may_write_all(turn, snapshot, known, &input) => {
            Approval::Never
        }
        Decision::NeedApproval { reason } => ask_about(known, &input, reason, None),
    })
}

/// Returns the approval that a call needs only because the conversation has read text from outside.
async fn after_outside_text(
    turn: &TurnState<'_>,
    snapshot: &AgentSnapshot,
    (context, call, known): (&Call, &ToolCall, &str),
    input: &Value,
) -> Result<Approval, Error> {
    let registry = turn.tools.registry();
    let to = match sink_of(registry, known) {
        Sink::Instructions => {
            return Ok(match is_new_instruction(turn, snapshot, known, input) {
                true => ask_about(known, input, Reason::OutsideText, None),
                false => Approval::Never,
            });
        }
        // A text must not make the agent pay, even if nobody is usually asked.
        Sink::Payment if input["action"] != "show" => {
            return Ok(ask_about(known, input, Reason::Payment, None));
        }
        Sink::Paid => {
            return Ok(match find_destination(turn, call) {
                Some(to) => ask_about(known, input, Reason::PaidAfterOutsideText, Some(to)),
                None => Approval::Never,
            });
        }
        Sink::Chat | Sink::Session | Sink::Service | Sink::Address => find_destination(turn, call),
        Sink::Browser | Sink::Server => match find_destination(turn, call) {
            Some(to) => Some(to),
            None => {
                let to = tool_destination(turn, context, call, known).await?;
                // Calls of a step are made at once: another one may have left the judged page by then.
                if to.is_some()
                    && sink_of(registry, known) == Sink::Browser
                    && shares_step(turn, call)
                {
                    return Ok(Approval::Deny(
                        "not done: make one call of `browser` at a time in this conversation"
                            .to_owned(),
                    ));
                }
                to
            }
        },
        Sink::Nothing
        | Sink::OwnConversation
        | Sink::KeepsMark
        | Sink::OwnRules
        | Sink::Payment
        | Sink::Provider => None,
    };
    Ok(match to {
        Some(to) => ask_about(known, input, Reason::SentAfterOutsideText, Some(to)),
        None => Approval::Never,
    })
}

/// Returns the destination of what the model wrote, as the input of the call names it.
fn find_destination(turn: &TurnState<'_>, call: &ToolCall) -> Option<Destination> {
    judge(turn, call, |conversation, tool, input| conversation.destination(tool, input))
}

/// Only host that redirects of a call may lead to, because the model may have put something into its
/// address.
pub(crate) fn host_to_stay_on(turn: &TurnState<'_>, call: &ToolCall) -> Option<String> {
    if !turn.has_read_outside_text() {
        return None;
    }
    judge(turn, call, |conversation, tool, input| conversation.host_to_stay_on(tool, input))
}

fn judge<T>(
    turn: &TurnState<'_>,
    call: &ToolCall,
    find: impl FnOnce(&Conversation<'_>, &str, &Value) -> Option<T>,
) -> Option<T> {
    let registry = turn.tools.registry();
    let (tool, input) = registry.parse_call(&call.tool, &call.input)?;
    let own = turn.conversation_target();
    let entries = turn.journal.entries();
    find(&Conversation { registry, chat: own.as_ref(), entries }, tool, &input)
}

/// Returns the destination of what the model wrote, as the tool of the call knows it.
async fn tool_destination(
    turn: &TurnState<'_>,
    context: &Call,
    call: &ToolCall,
    known: &str,
) -> Result<Option<Destination>, Error> {
    let found = turn.tools.registry().destination(context, &call.tool, &call.input);
    match timeout(APPROVAL_CHECK_TIMEOUT, found).await {
        Ok(Ok(to)) => Ok(to),
        // The call itself fails in the same way and reports the error.
        Ok(Err(ToolError::Tell(_))) => Ok(None),
        Ok(Err(ToolError::Broken(source))) => Err(Error::Tool { name: known.to_owned(), source }),
        Err(_) => Ok(Some(Destination::new("an unknown place".to_owned()))),
    }
}

/// Whether the step of a call has another call of the same tool.
fn shares_step(turn: &TurnState<'_>, call: &ToolCall) -> bool {
    let registry = turn.tools.registry();
    let step = turn.journal.entries().iter().rev().find_map(|entry| match entry {
        Entry::Thought { calls, .. } => calls.iter().any(|one| one.id == call.id).then_some(calls),
        Entry::Heard { .. }
        | Entry::Called { .. }
        | Entry::Returned { .. }
        | Entry::Noted { .. } => None,
    });
    let tool = registry.canonical(&call.tool);
    step.into_iter().flatten().any(|one| one.id != call.id && registry.canonical(&one.tool) == tool)
}

/// Whether a call changes what defines the agent. While it looks after itself it proposes such changes.
fn changes_agent(tool: &str, input: &str) -> bool {
    let input = serde_json::from_str(input).unwrap_or(Value::Null);
    outside_text::changes_agent(tool, &input)
}

fn ask_about(tool: &str, input: &Value, reason: Reason, to: Option<Destination>) -> Approval {
    let mut subject = SubjectText::default().with("reason", &reason.to_string());
    if let Some(to) = &to {
        // A page may have changed by the time the call is made: it is another call then.
        subject = subject.with("destination", &to.name);
    }
    let summary = request::summarize_input(tool, input, reason);
    let pattern = to.filter(|to| to.covers_all).map(|to| to.name);
    Approval::Ask { subject: subject.with_input(input).into(), summary, pattern }
}

/// Whether the conversation may change all files that a call writes. Nobody is asked about a call that
/// is refused in any case.
fn may_write_all(
    turn: &TurnState<'_>,
    snapshot: &AgentSnapshot,
    tool: &str,
    input: &Value,
) -> bool {
    let Some(paths) = written_paths(tool, input) else { return true };
    let (view, scope) = (turn.access(snapshot).file_view(), turn.file_scope());
    paths.iter().all(|path| scope.may_write(path) && view.may_change(path))
}

/// Whether a person must decide because text from outside may become an instruction. A memory flush
/// does not wait for a person: it writes only notes, which are marked as text from outside.
fn is_new_instruction(
    turn: &TurnState<'_>,
    snapshot: &AgentSnapshot,
    tool: &str,
    input: &Value,
) -> bool {
    !turn.is_flushing()
        && may_write_all(turn, snapshot, tool, input)
        && outside_text::changes_instructions(tool, input)
}

/// Whether an "always" rule covers the call. Records the use of the rule.
async fn is_covered_by_rule(
    turn: &TurnState<'_>,
    snapshot: &AgentSnapshot,
    call: &ToolCall,
    wanted: &ApprovalNeed,
) -> Result<bool, Error> {
    let (tenant, sessions) = (turn.lease.claim.tenant, &turn.worker.sessions);
    let rules =
        sessions.approvals().rules(tenant, Some(snapshot.agent), Some(&wanted.tool)).await?;
    if rules.is_empty() {
        return Ok(false);
    }
    let input = serde_json::from_str(&call.input).unwrap_or(Value::Null);
    let wanted_call = allow_rules::CallToMatch {
        tool: &wanted.tool,
        input: &input,
        subject: &wanted.subject,
        pattern: wanted.pattern.as_deref(),
    };
    let Some(used) = allow_rules::matching_rules(&wanted_call, &rules) else {
        return Ok(false);
    };
    sessions.approvals().use_rules(tenant, &used, &wanted.summary).await?;
    Ok(true)
}
