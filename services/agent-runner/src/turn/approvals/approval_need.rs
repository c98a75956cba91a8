//! Decision whether a call needs an approval, from its tool and the policy.

use holdfast_agent::{
    is_allowed,
    policy::{Decision, DecisionSource, Reason, written_paths},
};
use holdfast_session::subject_hash;
use holdfast_tools::{Approval, SubjectText, ToolError, visible};
use holdfast_types::ToolCall;
use serde_json::Value;
use tokio::time::{Duration, timeout};

use super::{allow_rules, outgoing, outside_text, request};
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

/// Tools that send a part of their input to any address, and need no approval.
const OUTGOING_TOOLS: [&str; 3] = ["browser", "web_fetch", "web_search"];

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
    if OUTGOING_TOOLS.contains(&known)
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
        Decision::Allow if is_new_instruction(turn, snapshot, known, &input) => {
            ask_about(known, &input, Reason::OutsideText, None)
        }
        // A text must not make the agent pay, even if nobody is usually asked.
        Decision::Allow if is_payment(known, &input) && turn.has_read_outside_text() => {
            ask_about(known, &input, Reason::Payment, None)
        }
        Decision::Allow => match new_destination(turn, known, &input) {
            Some(to) => ask_about(known, &input, Reason::SentAfterOutsideText, Some(to)),
            None => Approval::Never,
        },
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

/// Whether a call changes what defines the agent. While it looks after itself it proposes such changes.
fn changes_agent(tool: &str, input: &str) -> bool {
    let input = serde_json::from_str(input).unwrap_or(Value::Null);
    outside_text::changes_agent(tool, &input)
}

fn is_payment(tool: &str, input: &Value) -> bool {
    tool == "wallet" && input["action"] == "pay"
}

fn ask_about(tool: &str, input: &Value, reason: Reason, pattern: Option<String>) -> Approval {
    let subject = SubjectText::default().with("reason", &reason.to_string()).with_input(input);
    let summary = request::summarize_input(tool, input, reason);
    Approval::Ask { subject: subject.into(), summary, pattern }
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
        && turn.has_read_outside_text()
        && outside_text::changes_instructions(tool, input)
}

/// Destination of a call that a person must decide about, because text from outside may have asked
/// for it.
fn new_destination(turn: &TurnState<'_>, tool: &str, input: &Value) -> Option<String> {
    if !turn.has_read_outside_text() {
        return None;
    }
    let own = turn.conversation_target();
    outgoing::destination(tool, input, own.as_ref(), turn.journal.entries())
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
