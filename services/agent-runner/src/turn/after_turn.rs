//! Background work that follows a turn.

use std::sync::Arc;

use holdfast_agent::{compact::Plan, tokens::CjkAware};
use holdfast_session::CompletionResult;
use holdfast_types::{Entry, Note, SessionKind};

use crate::{agents::snapshots::AgentSnapshot, queues::SummaryJob, turn::state::TurnState};

/// Turns before a conversation is summarised: conversations that an API client makes for one
/// question have one.
const MIN_TURNS: usize = 2;

/// Starts the background work that follows a turn.
pub(crate) fn after_turn(
    turn: &TurnState<'_>,
    snapshot: &Arc<AgentSnapshot>,
    completed: &CompletionResult,
) {
    if turn.bound_workspace.is_some() {
        // Other sessions may wait for the workspace.
        turn.worker.bus.wake_run(0);
    }
    // If another turn follows at once, it does this.
    if !completed.again {
        queue_summary(turn, snapshot);
        queue_extraction(turn);
    }
}

/// Queues the conversation of an ended turn if it is long.
pub(crate) fn queue_summary(turn: &TurnState<'_>, snapshot: &Arc<AgentSnapshot>) {
    let journal = turn.journal.entries();
    let is_due = continues_after_turn(turn.kind)
        && turn.journal.is_stored()
        && count_turns(journal) >= MIN_TURNS;
    if turn.worker.config.summaries == 0 || !is_due {
        return;
    }
    let Some(plan) = Plan::background(&turn.conversation(), turn.context_tokens, &CjkAware) else {
        return;
    };
    turn.worker.summaries.push(SummaryJob {
        tenant: turn.lease.claim.tenant,
        session: turn.lease.claim.session,
        run: turn.run,
        snapshot: Arc::clone(snapshot),
        plan,
        next_entry: turn.journal.next_entry(),
    });
}

/// Queues the conversation if this turn reset or compacted it: the older entries are no longer
/// in the prompt.
pub(crate) fn queue_extraction(turn: &TurnState<'_>) {
    let is_cut =
        |entry: &Entry| matches!(entry, Entry::Noted { note: Note::Reset | Note::Summary, .. });
    if turn.worker.memory.is_some() && turn.journal.turn().iter().any(is_cut) {
        turn.worker.extractions.push((turn.lease.claim.tenant, turn.lease.claim.session));
    }
}

/// Whether conversations of this kind continue after a turn.
const fn continues_after_turn(kind: SessionKind) -> bool {
    match kind {
        SessionKind::Main
        | SessionKind::Dm
        | SessionKind::Group
        | SessionKind::Topic
        | SessionKind::Work
        | SessionKind::Api
        | SessionKind::Global => true,
        SessionKind::Subagent | SessionKind::Cron | SessionKind::Heartbeat => false,
    }
}

/// Number of answered turns.
fn count_turns(journal: &[Entry]) -> usize {
    let is_answer =
        |entry: &&Entry| matches!(entry, Entry::Thought { calls, .. } if calls.is_empty());
    journal.iter().filter(is_answer).count()
}

#[cfg(test)]
mod tests {
    use holdfast_types::{Body, Usage};

    use super::*;

    #[test]
    fn only_answers_count_as_turns() {
        let thought = |calls: usize| Entry::Thought {
            text: "t".into(),
            calls: (0..calls)
                .map(|n| holdfast_types::ToolCall {
                    id: n.to_string(),
                    tool: "read".into(),
                    input: "{}".into(),
                })
                .collect(),
            usage: Usage::default(),
            model: String::new(),
            carry: None,
            record: None,
        };
        let seeded = Entry::Heard {
            seq: 1,
            body: Body { role: Some("assistant".into()), ..Body::text("before") },
        };

        assert_eq!(count_turns(&[seeded.clone(), thought(1), thought(0)]), 1);
        assert_eq!(count_turns(&[seeded, thought(0), thought(2), thought(0)]), 2);
        assert!(
            continues_after_turn(SessionKind::Main)
                && !continues_after_turn(SessionKind::Heartbeat)
        );
    }
}
