//! Messages that the router gives to a session for work: a new one, or one that this session has
//! opened before (spec BHV-004, C-29).

use std::time::Duration;

use holdfast_agent::behavior::{FinishedEntries, hands_over};
use holdfast_session::{NewMessage, SessionChanges};
use holdfast_types::{Body, QueueMode, SessionKey, Source, StepResult};

use super::result::MEMORY_SEARCH;
use crate::{agents::snapshots::AgentSnapshot, error::Error, turn::state::TurnState};

/// Source of a message that a session gives to another one.
const SOURCE: &str = "route";

const MAX_TITLE_CHARS: usize = 200;

/// Part of the hits of one search that is given on, in bytes.
const MAX_FOUND_BYTES: usize = 4 * 1024;

/// Gives the turn's messages to the session that the result names. A repetition gives them once.
/// Returns why it cannot, for the model.
pub(super) async fn hand_over(
    turn: &TurnState<'_>,
    snapshot: &AgentSnapshot,
    result: &StepResult,
) -> Result<Option<String>, Error> {
    if !hands_over(result) {
        return Ok(None);
    }
    let Some(key) = receiver(turn, snapshot, result) else {
        return Ok(Some(
            "`route_session_id` is no session for work of this conversation".to_owned(),
        ));
    };
    let heard = turn.heard_seqs();
    let found = found_memories(turn);
    let messages = turn.inbox.iter().filter(|row| heard.contains(&row.seq) && !row.body.silent);
    for row in messages {
        // With what was transcribed, which is paid once.
        let stored = turn.journal.heard_body(row.seq).unwrap_or(&row.body);
        let description = result.new_session.as_ref().map(|new| new.description.as_str());
        let parts = [Some(row.body.text.as_str()), description, Some(found.as_str())];
        let parts: Vec<&str> =
            parts.into_iter().flatten().filter(|text| !text.is_empty()).collect();
        // The description and the memories may repeat what this conversation has read.
        let outside = row.body.outside || turn.has_read_outside_text();
        let body =
            Body { text: parts.join("\n\n"), outside, answer_options: None, ..stored.clone() };
        let message = NewMessage {
            key: key.clone(),
            agent: snapshot.agent,
            label: None,
            source: Source::Internal(SOURCE.to_owned()),
            idem_key: format!("{}:{}", turn.run, row.seq),
            body,
            target: row.target.clone(),
            mode: QueueMode::Followup,
            debounce: Duration::ZERO,
            trace: row.trace.clone(),
        };
        let accepted = turn.worker.sessions.ingest(turn.lease.claim.tenant, message).await?;
        if accepted.wake.is_some() {
            turn.worker.bus.wake_run(0);
        }
        if let Some(new) = &result.new_session {
            let label = Some(new.title.chars().take(MAX_TITLE_CHARS).collect());
            let changes = SessionChanges { label, ..SessionChanges::default() };
            let settings = turn.worker.sessions.settings();
            settings.change(turn.lease.claim.tenant, accepted.session, changes).await?;
        }
    }
    Ok(None)
}

/// What the searches of the result have found, for the session that works on the message; empty if
/// there were none.
fn found_memories(turn: &TurnState<'_>) -> String {
    let finished = FinishedEntries::of(turn.journal.entries());
    let searches = finished.outcomes.iter().filter(|one| one.is_action && !one.failed);
    let found = searches.filter(|one| one.call.tool == MEMORY_SEARCH);
    let found = found.map(|one| {
        let end = one.output.floor_char_boundary(MAX_FOUND_BYTES);
        format!("Found in your memory:\n{}", one.output[..end].trim())
    });
    found.collect::<Vec<_>>().join("\n\n")
}

/// Beginning of the keys of the sessions that this conversation has opened for work.
pub(super) fn key_prefix(turn: &TurnState<'_>, snapshot: &AgentSnapshot) -> String {
    format!("agent:{}:work:{}-", snapshot.name, turn.lease.claim.session)
}

/// Key of the session that gets the messages: one that this session has opened before, or a new
/// one. Work of other conversations cannot be reached.
fn receiver(
    turn: &TurnState<'_>,
    snapshot: &AgentSnapshot,
    result: &StepResult,
) -> Option<SessionKey> {
    let own = key_prefix(turn, snapshot);
    match &result.route_session_id {
        Some(given) => {
            let key: SessionKey = given.parse().ok()?;
            key.as_str().starts_with(&own).then_some(key)
        }
        None => format!("{own}{}", turn.run).parse().ok(),
    }
}
