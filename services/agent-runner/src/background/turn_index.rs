//! Index of conversation turns: what people and agents said to each other is stored in the memory
//! service after the turn, so that later conversations find it (spec MEM-001, decision 0043).
//!
//! No turn waits for that. A loop finds conversations whose journal has grown, claims each in the
//! database and stores what was said under the position in the journal. A turn that is stored
//! already is not stored again, so a crash at any point changes nothing: the claim expires and any
//! runner continues. Turns belong to the person or the group of the conversation, as memories do;
//! what is nobody's own is not indexed. If `/link` or `/unlink` renames a conversation whose turns
//! are being stored, they are stored again for the person that its new key names.
//!
//! While the memory service is unavailable, conversations wait.

use std::{sync::Arc, time::Duration};

use holdfast_agent::{
    IndexEntry,
    access::{ConversationAccess, SessionFacts},
    turns_to_index,
};
use holdfast_pg::FailureLog;
use holdfast_proto::memory::v1 as pb;
use holdfast_session::JournalRange;
use holdfast_types::{Fault as _, Kind, SessionId, SessionKey, TenantId};
use jiff::Timestamp;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;
use tracing::{Instrument as _, info_span, warn};

use crate::{
    agents::snapshots::AgentLookup,
    background::extraction::last_erasure,
    failpoints,
    jitter::jittered,
    tools::{memory::Memory, memory_subject::MemorySubject},
    turn::participants::authors,
    worker::Worker,
};

/// Interval of searching for conversations to index.
const POLL_INTERVAL: Duration = Duration::from_secs(3);

/// Time for which a conversation is claimed: longer than the calls for one claim may take.
const CLAIM_DURATION: Duration = Duration::from_secs(120);

/// Delay before a conversation is tried again after a failure, and if its agent has no model.
const RETRY_DELAY: Duration = Duration::from_secs(60);
const NO_MODEL_DELAY: Duration = Duration::from_hours(1);

/// Time limit of asking a memory service that has failed whether it is back.
const STATUS_TIMEOUT: Duration = Duration::from_secs(5);

/// How far back the first search after the start reaches.
const FIRST_LOOK_BACK: Duration = Duration::from_hours(24);

/// Overlap of two searches, for turns that end late and for differing clocks.
const LOOK_BACK: Duration = Duration::from_mins(1);

/// Conversations per search.
const BATCH: i64 = 64;

/// Turns per request.
const TURNS_PER_REQUEST: usize = 256;

type SessionRef = (TenantId, SessionId);

/// Indexes conversation turns until `stop`.
pub(crate) async fn run(worker: Arc<Worker>, stop: CancellationToken) {
    let Some(memory) = worker.memory.clone().filter(|_| worker.config.memory.index_turns) else {
        stop.cancelled().await;
        return;
    };
    let failures = FailureLog::new("conversation turns are not indexed");
    let mut since = Timestamp::now() - FIRST_LOOK_BACK;
    let mut pause = POLL_INTERVAL.min(worker.config.relay);
    let mut has_failed = false;
    while stop.run_until_cancelled(sleep(jittered(pause))).await.is_some() {
        pause = POLL_INTERVAL.min(worker.config.relay);
        let now = Timestamp::now();
        let due = match worker.sessions.turn_index().due(since, Duration::ZERO, BATCH).await {
            Ok(due) => due,
            Err(error) => {
                failures.on_failure(&error);
                continue;
            }
        };
        // A claim writes a row. While the service is away nothing is claimed.
        if let (true, Some((tenant, _))) = (has_failed, due.first())
            && !is_available(&memory, *tenant).await
        {
            continue;
        }
        has_failed = false;
        let is_last_batch = i64::try_from(due.len()).is_ok_and(|found| found < BATCH);
        for session in due {
            let span = info_span!("turn_index", tenant.id = %session.0, session.id = %session.1);
            let indexed = Box::pin(index(&worker, &memory, session).instrument(span));
            match stop.run_until_cancelled(indexed).await {
                None => return,
                Some(Ok(())) => failures.on_success(),
                // The service may be away: one conversation tries it for all.
                Some(Err(error)) => {
                    failures.on_failure(error.as_ref());
                    has_failed = true;
                    break;
                }
            }
        }
        // Only a search whose conversations were all indexed is done with its time.
        match (has_failed, is_last_batch) {
            (true, _) => pause = POLL_INTERVAL,
            (false, true) => since = now - LOOK_BACK,
            (false, false) => pause = Duration::ZERO,
        }
    }
}

/// Whether the memory service answers.
async fn is_available(memory: &Memory, tenant: TenantId) -> bool {
    let asked = memory.client.status(tenant, pb::GetStatusRequest::default());
    timeout(STATUS_TIMEOUT, asked).await.is_ok_and(|answer| answer.is_ok())
}

/// Indexes a conversation to its end. After a failure it is tried again later.
async fn index(worker: &Worker, memory: &Memory, which: SessionRef) -> anyhow::Result<()> {
    let (tenant, session) = which;
    loop {
        let claimed = worker.sessions.turn_index().claim(tenant, session, CLAIM_DURATION).await?;
        let Some(claimed) = claimed else { return Ok(()) };
        let later = async |pause| {
            worker.sessions.turn_index().postpone(tenant, session, claimed.upto, pause, false).await
        };
        let read = match index_entries(worker, memory, which, &claimed).await {
            Ok(Some(read)) => read,
            Ok(None) => return Ok(later(NO_MODEL_DELAY).await?),
            Err(error) => {
                later(RETRY_DELAY).await?;
                return Err(error);
            }
        };
        failpoints::point("runner.before_turns_indexed").await;
        // A conversation that was renamed meanwhile is claimed again, under its new key.
        let (range, key) = ((claimed.upto, read), Some(claimed.key.as_str()));
        if !worker.sessions.turn_index().complete(tenant, session, range, key).await? {
            return Ok(());
        }
    }
}

/// Stores what was said in the claimed entries. Returns the position of the last entry that needs
/// nothing more; `None` if the agent has no model, without which its settings cannot be read.
async fn index_entries(
    worker: &Worker,
    memory: &Memory,
    (tenant, session): SessionRef,
    claimed: &JournalRange,
) -> anyhow::Result<Option<i64>> {
    let (said, covered) = turns_to_index(claimed.entries.iter());
    let upto = match claimed.marks.get(covered) {
        Some(next) => next.seq - 1,
        None => claimed.upto,
    };
    let Ok(key) = claimed.key.parse::<SessionKey>() else { return Ok(Some(upto)) };
    if said.is_empty() {
        return Ok(Some(upto));
    }
    let snapshot = match worker.agents.find(tenant, claimed.agent, None).await? {
        AgentLookup::Ready(snapshot) => snapshot,
        AgentLookup::NoAgent => return Ok(Some(upto)),
        AgentLookup::NoModel(_) => return Ok(None),
    };
    let policy = worker.policies.find(&worker.tools, tenant, claimed.agent).await?;
    let who = policy.turn_authors(authors(&claimed.entries));
    let facts = SessionFacts { kind: key.kind(), key: key.as_str(), dm_scope: snapshot.dm_scope };
    let subject = MemorySubject::of(&ConversationAccess::decide(&facts, who.clone(), &who));
    let Some(user) = subject.user.as_deref() else { return Ok(Some(upto)) };
    if !snapshot.has_memory(key.kind()) {
        return Ok(Some(upto));
    }
    let who = Some(subject.to_proto(claimed.agent));
    let name = session.to_string();
    let erased_until = last_erasure(memory, tenant, [user, &name]).await?;
    let mut turns = Vec::new();
    for (at, one) in said {
        let mark = &claimed.marks[at];
        match one {
            IndexEntry::Reset => {
                let what = Some(pb::forget_request::What::Turns(name.clone()));
                let request = pb::ForgetRequest { who: who.clone(), what };
                memory.client.forget(tenant, request).await?;
            }
            IndexEntry::Turn { .. } if erased_until.is_some_and(|until| mark.at <= until) => {}
            IndexEntry::Turn { author, text } => turns.push(pb::Turn {
                r#ref: mark.seq.to_string(),
                author,
                text,
                at: Some(prost_types::Timestamp {
                    seconds: mark.at.as_second(),
                    nanos: mark.at.subsec_nanosecond(),
                }),
            }),
        }
    }
    for part in turns.chunks(TURNS_PER_REQUEST) {
        let request = pb::AddTurnsRequest {
            who: who.clone(),
            session: name.clone(),
            turns: part.to_vec(),
            group_safe: subject.is_group,
            provenance: Some(pb::Provenance {
                kind: pb::SourceKind::User.into(),
                name: user.chars().take(200).collect(),
                locator: name.clone(),
                retrieved_at: None,
                outside: claimed.has_outside_text(),
            }),
        };
        match memory.client.add_turns(tenant, request).await {
            Ok(_) => memory.on_memory_added(tenant, claimed.agent, user),
            // What the service rejects as invalid would be rejected again.
            Err(refused) if refused.kind() == Kind::Invalid => {
                warn!(error = &refused as &dyn std::error::Error, "turns are not indexed");
            }
            Err(refused) => return Err(refused.into()),
        }
    }
    Ok(Some(upto))
}
