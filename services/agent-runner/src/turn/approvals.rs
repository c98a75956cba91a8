//! Tool calls that need an approval: detection, request, and continuation after the decision.
//!
//! ```text
//! call ─▶ needs an approval? ── no ─▶ made
//!            │ yes, and no "always" rule covers it
//!            ▼
//!         request: record, entries, deliveries, wait ── one transaction; no runner has the session
//!            ⋮   a decision, or its deadline
//!         any runner claims it ─▶ settle ─▶ allowed: noted, checked again, made once
//!                                      └──▶ denied, expired: the model is told
//! ```
//!
//! A call is checked again right before it is made: its subject must equal what the person saw,
//! byte for byte.
//!
//! | file | contents |
//! |---|---|
//! | `approval_need.rs` | which calls need an approval |
//! | `outside_text.rs` | calls that change instructions after text from outside was read |
//! | `tool_flows.rs` | what each tool brings into a conversation, and carries out of it |
//! | `outgoing.rs` | calls that send something to others after text from outside was read |
//! | `allow_rules.rs` | matching of "always" rules; pure |
//! | `request.rs` | texts for people and models; pure |
//! | `decisions.rs` | decisions: who may make them, and their execution |

mod allow_rules;
pub(crate) mod approval_need;
pub(crate) mod decisions;
mod outgoing;
pub(crate) mod outside_text;
mod request;
mod tool_flows;

use holdfast_agent::{calls_awaiting_approval, new_calls, person};
use holdfast_bus::DeltaBody;
use holdfast_session::{CompletionResult, DecidedCall, NewApproval, NewDelivery, SettleResult};
use holdfast_types::{
    ApprovalId, ApprovalState, DeliveryId, Entry, Note, SessionId, Target, ToolCall,
};

use self::approval_need::{ApprovalNeed, CallDecision};
use crate::{
    agents::snapshots::AgentSnapshot,
    error::Error,
    turn::state::{TurnState, count_thoughts},
};

pub(crate) enum ApprovalCheck {
    /// Calls that may be made. The results of the others are in the journal.
    Make(Vec<ToolCall>),
    /// A person was asked. The session is released.
    Pending(CompletionResult),
}

impl TurnState<'_> {
    /// Index of the current step in the turn, from 0.
    pub(crate) fn current_step(&self) -> i32 {
        let step = count_thoughts(self.journal.turn()).saturating_sub(1);
        i32::try_from(step).unwrap_or(i32::MAX)
    }
}

/// Checks whether calls may be made. If one needs an approval, none is made: the person is
/// asked about all calls of the step that need one.
pub(crate) async fn check_approvals(
    turn: &mut TurnState<'_>,
    snapshot: &AgentSnapshot,
    calls: &[ToolCall],
) -> Result<ApprovalCheck, Error> {
    let (mut make, mut refused, mut wants) = (Vec::new(), Vec::new(), false);
    for call in calls {
        match approval_need::decide_call(turn, snapshot, call).await? {
            CallDecision::Allowed => make.push(call.clone()),
            CallDecision::Refused(output) => refused.push(refusal(call, output)),
            CallDecision::NeedsApproval(_) => wants = true,
        }
    }
    if wants {
        return request_approvals(turn, snapshot).await.map(ApprovalCheck::Pending);
    }
    if !refused.is_empty() {
        turn.append(refused).await?;
    }
    Ok(ApprovalCheck::Make(make))
}

/// Requests an approval for every call of the step that needs one.
async fn request_approvals(
    turn: &mut TurnState<'_>,
    snapshot: &AgentSnapshot,
) -> Result<CompletionResult, Error> {
    let limits = turn.limits();
    let new = new_calls(turn.journal.entries(), limits);
    let new: Vec<ToolCall> = new.into_iter().cloned().collect();
    let place = find_request_place(turn).await?;
    let mut approvals = Vec::new();
    for call in &new {
        if let CallDecision::NeedsApproval(wanted) =
            approval_need::decide_call(turn, snapshot, call).await?
        {
            approvals.push(new_approval(turn, snapshot, call, wanted, place.as_ref()));
        }
    }
    let asked = |new: &NewApproval| Entry::noted(Note::Asked, new.call.as_str());
    let entries = approvals.iter().map(asked).collect();
    let completed = turn.journal.request_approvals(turn.run, entries, approvals.clone()).await?;
    if let Some(place) = place {
        turn.worker.bus.wake_deliver(&place.target.channel);
    }
    metrics::counter!("holdfast_runner_approvals_requested_total")
        .increment(approvals.len() as u64);
    for new in approvals {
        let left_ms = u64::try_from(new.timeout.as_millis()).unwrap_or(u64::MAX);
        let NewApproval { id: approval, tool, summary, subject, pattern, .. } = new;
        turn.stream.send(DeltaBody::ApprovalRequested {
            approval,
            tool,
            summary,
            subject,
            pattern: pattern.unwrap_or_default(),
            left_ms,
        });
    }
    Ok(completed)
}

fn new_approval(
    turn: &TurnState<'_>,
    snapshot: &AgentSnapshot,
    call: &ToolCall,
    wanted: ApprovalNeed,
    place: Option<&RequestPlace>,
) -> NewApproval {
    let ApprovalNeed { tool, subject, summary, pattern } = wanted;
    let (id, timeout) = (ApprovalId::generate(), snapshot.approval_timeout);
    let asked = request::ApprovalRequest {
        slug: &id.slug(),
        agent: snapshot.name.as_str(),
        tool: &tool,
        subject: &subject,
        pattern: pattern.as_deref(),
        timeout,
    };
    let request = place.map(|place| NewDelivery {
        target: place.target.clone(),
        text: asked.text(),
        act: None,
        id: DeliveryId::generate(),
        delay: std::time::Duration::ZERO,
    });
    NewApproval {
        id,
        step: turn.current_step(),
        call: call.id.clone(),
        tool,
        subject,
        summary,
        pattern,
        timeout,
        request,
        asked_in: place.and_then(|place| place.conversation),
    }
}

/// Place where a request is sent to a person.
#[derive(Debug)]
struct RequestPlace {
    target: Target,
    /// The person's conversation there, if it is another one than the call's.
    conversation: Option<SessionId>,
}

/// Where a person can be asked: at this turn's target, else where the session or the one that requested
/// the task was last held. If those are on no channel, the person is asked in their direct conversation,
/// if they may decide there.
async fn find_request_place(turn: &TurnState<'_>) -> Result<Option<RequestPlace>, Error> {
    let here = |target| RequestPlace { target, conversation: None };
    if let Some(own) = turn.conversation_target() {
        return Ok(Some(here(own)));
    }
    let (tenant, views) = (turn.lease.claim.tenant, turn.worker.sessions.views());
    let mut key = turn.key.clone();
    if let Some(task) = &turn.task {
        let parent = match views.session(tenant, task.parent).await {
            Ok(parent) => parent,
            Err(holdfast_session::Error::NotFound { .. }) => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        if let Some(target) = parent.last_target {
            return Ok(Some(here(target)));
        }
        key = parent.key;
    }
    let Ok(key) = key.parse() else { return Ok(None) };
    let author = turn.participants().user;
    let Some(person) = person::who_hears_of(&key, author.as_deref()) else { return Ok(None) };
    if !decisions::person_may_decide(turn, person).await? {
        return Ok(None);
    }
    let found = views.conversation_with_person(tenant, turn.agent, person).await?;
    Ok(found.map(|(session, target)| RequestPlace { target, conversation: Some(session) }))
}

/// Continues with the approval decisions, or waits until there is one.
pub(crate) async fn settle_approvals(
    turn: &mut TurnState<'_>,
    calls: &[ToolCall],
) -> Result<Option<CompletionResult>, Error> {
    let claim = &turn.lease.claim;
    let ids: Vec<String> = calls.iter().map(|call| call.id.clone()).collect();
    crate::failpoints::point("runner.before_settle").await;
    let settled =
        turn.worker.sessions.approvals().settle(claim, turn.run, turn.current_step(), &ids).await?;
    crate::failpoints::point("runner.after_settle").await;
    let words = match settled {
        SettleResult::Waiting(completed) => return Ok(Some(completed)),
        SettleResult::Decided(words) => words,
    };
    for word in &words {
        metrics::counter!(
            "holdfast_runner_approvals_settled_total", "state" => word.state.as_str()
        )
        .increment(1);
    }
    turn.append(words.into_iter().map(decision_entry).collect()).await?;
    Ok(None)
}

/// Withdraws the pending approvals of a turn that ends.
pub(crate) async fn withdraw_approvals(turn: &TurnState<'_>) -> Result<(), Error> {
    if calls_awaiting_approval(turn.journal.entries()).is_empty() {
        return Ok(());
    }
    Ok(turn.worker.sessions.approvals().withdraw(&turn.lease.claim, turn.run).await?)
}

/// Journal entry for an approval decision.
fn decision_entry(word: DecidedCall) -> Entry {
    let told = match word.state {
        ApprovalState::AllowedOnce | ApprovalState::AllowedAlways => {
            return Entry::noted(Note::Allowed, word.call);
        }
        ApprovalState::Denied => request::denied_result(word.reason.as_deref()),
        ApprovalState::Expired | ApprovalState::Pending => request::EXPIRED_RESULT.to_owned(),
    };
    Entry::returned(word.call, told, true)
}

fn refusal(call: &ToolCall, output: String) -> Entry {
    Entry::returned(&call.id, output, true)
}
