//! Extraction of memories from conversations (spec MEM-004, MEM-017).
//!
//! When a conversation was idle for `runner.memory.extract_after`, was reset or compacted, the
//! agent's model is asked once what to remember of its new entries. No turn waits for that. The
//! range of entries is claimed in the database (`session.journal_readers`) and stays the same until it
//! is done, on any runner: if one crashes, the memories that the next one stores are the same
//! request and are stored once. A conversation without new entries causes no request and no write.
//!
//! While the memory service or the model is unavailable, a budget is spent or the agent has no
//! model, the extraction waits, for at most a month. After any other failure it is tried six times
//! within a day, then skipped. A range that is too long for the model is cut, and the rest follows.
//!
//! Excluded are groups, jobs, subagents and all other sessions that do not belong to one person.

use std::{sync::Arc, time::Duration};

use holdfast_agent::{
    access::{ConversationAccess, SessionFacts},
    memory::{
        EXTRACTION_OUTPUT_TOKENS, ExtractedMemory, extraction_chat, parse_memories, transcript,
    },
};
use holdfast_llm::{Delta, Request};
use holdfast_pg::FailureLog;
use holdfast_proto::memory::v1 as pb;
use holdfast_session::{EntryMark, JournalRange, MAX_EXTRACTION_TRIES, WriteCost};
use holdfast_types::{Fault, Kind, Reply, SessionId, SessionKey, TenantId};
use jiff::{SignedDuration, Timestamp};
use tokio::{
    task::JoinSet,
    time::{Instant, sleep},
};
use tokio_util::sync::CancellationToken;
use tracing::{Instrument as _, debug, info_span, warn};

use crate::{
    agents::{
        budget::ReservationRequest,
        snapshots::{AgentLookup, AgentSnapshot},
    },
    error::Error,
    failpoints,
    jitter::jittered,
    queues::TenantSession,
    tools::{
        memory::{MIN_DUPLICATE_SIMILARITY, Memory},
        memory_subject::MemorySubject,
    },
    turn::participants::authors,
    worker::Worker,
};

/// Interval of searching for idle conversations.
const SEARCH_INTERVAL: Duration = Duration::from_secs(15);

/// Time limit of the model's answer.
const MODEL_TIMEOUT: Duration = Duration::from_secs(60);

/// Time for which a range is claimed: longer than an extraction takes.
const CLAIM_DURATION: Duration = Duration::from_secs(150);

/// Retry delay if a service is unavailable.
const UNAVAILABLE_RETRY_DELAY: Duration = Duration::from_mins(15);

/// Retry delay if a budget is spent or the agent has no model.
const BLOCKED_RETRY_DELAY: Duration = Duration::from_hours(1);

/// Time after which a waiting range is skipped.
const MAX_RANGE_AGE: SignedDuration = SignedDuration::from_hours(31 * 24);

/// How far back the first search after the start reaches.
const INITIAL_LOOKBACK: Duration = Duration::from_hours(24);

/// Conversations per search.
const SEARCH_BATCH_SIZE: i64 = 32;

/// Lower estimate of the characters in a token.
const MIN_CHARS_PER_TOKEN: usize = 2;

/// Extracts memories until `stop`, as many at once as configured.
pub(crate) async fn run(worker: Arc<Worker>, stop: CancellationToken) {
    let settings = worker.config.memory.clone();
    let most = usize::try_from(settings.extractions).unwrap_or(usize::MAX);
    let Some(memory) = worker.memory.clone().filter(|_| most > 0) else {
        stop.cancelled().await;
        return;
    };
    let trouble = FailureLog::new("conversations are not looked through for what to remember");
    let mut since = Timestamp::now() - INITIAL_LOOKBACK;
    let mut tasks: JoinSet<()> = JoinSet::new();
    let look = SEARCH_INTERVAL.min(settings.extract_after.max(Duration::from_millis(100)));
    let mut next = Box::pin(sleep(jittered(look)));
    loop {
        while tasks.len() < most
            && let Some(which) = worker.extractions.pop()
        {
            let span = info_span!("extraction", tenant.id = %which.0, session.id = %which.1);
            let made = extract(Arc::clone(&worker), Arc::clone(&memory), which);
            tasks.spawn(made.instrument(span));
        }
        tokio::select! {
            () = stop.cancelled() => return,
            () = worker.extractions.added.notified(), if tasks.len() < most => {}
            Some(_) = tasks.join_next(), if !tasks.is_empty() => {}
            () = &mut next => {
                // Conversations that went idle before this moment are searched for the last time.
                let now = Timestamp::now();
                match worker.sessions.extraction().due(since, settings.extract_after, SEARCH_BATCH_SIZE).await {
                    Ok(due) => {
                        trouble.on_success();
                        let all = i64::try_from(due.len()).is_ok_and(|found| found < SEARCH_BATCH_SIZE);
                        if all {
                            // One minute of overlap for differing clocks.
                            since = now - settings.extract_after - Duration::from_mins(1);
                        }
                        due.into_iter().for_each(|which| worker.extractions.push(which));
                    }
                    Err(error) => trouble.on_failure(&error),
                }
                next = Box::pin(sleep(jittered(look)));
            }
        }
    }
}

async fn extract(worker: Arc<Worker>, memory: Arc<Memory>, (tenant, session): TenantSession) {
    let how = match extract_next_range(&worker, &memory, tenant, session).await {
        Ok(Some((how, more))) => {
            if more {
                worker.extractions.push((tenant, session));
            }
            how
        }
        Ok(None) => return,
        Err(error) => {
            warn!(
                error = error.as_ref() as &dyn std::error::Error,
                "nothing is remembered of it yet"
            );
            "failed"
        }
    };
    metrics::counter!("holdfast_runner_extractions_total", "how" => how).increment(1);
}

/// Processes the next range of a conversation. Returns the outcome for the metric and whether there
/// is more; `None` if there was nothing to claim.
async fn extract_next_range(
    worker: &Worker,
    memory: &Memory,
    tenant: TenantId,
    session: SessionId,
) -> anyhow::Result<Option<(&'static str, bool)>> {
    let which = (tenant, session);
    let Some(mut range) =
        worker.sessions.extraction().claim(tenant, session, CLAIM_DURATION).await?
    else {
        return Ok(None);
    };
    let tries = range.tries;
    let is_too_old =
        range.last().is_none_or(|mark| Timestamp::now().duration_since(mark.at) > MAX_RANGE_AGE);
    let looked = match tries > MAX_EXTRACTION_TRIES {
        true => Ok(ExtractionOutcome::TooManyTries),
        false => extract_range(worker, memory, which, &mut range).await,
    };
    let upto = range.upto;
    let later = async |pause, charged| {
        worker.sessions.extraction().postpone(tenant, session, upto, pause, charged).await
    };
    let how = match looked {
        Ok(ExtractionOutcome::Stored(0)) => "nothing",
        Ok(ExtractionOutcome::Stored(_)) => "kept",
        Ok(ExtractionOutcome::TooManyTries) => {
            warn!("a conversation is passed over: nothing could be taken from it");
            "passed_over"
        }
        Ok(ExtractionOutcome::Blocked(_)) | Err(_) if is_too_old => {
            warn!("a conversation is passed over: nothing could be taken from it for a month");
            "passed_over"
        }
        Ok(ExtractionOutcome::Blocked(why)) => {
            debug!(why, "nothing is remembered of it yet");
            later(BLOCKED_RETRY_DELAY, false).await?;
            return Ok(Some(("put_off", false)));
        }
        Err(error) if is_unrelated_to_range(&error) => {
            later(UNAVAILABLE_RETRY_DELAY, false).await?;
            return Err(error);
        }
        Err(error) => {
            later(retry_delay(tries), true).await?;
            return Err(error);
        }
    };
    failpoints::point("runner.before_extracted").await;
    let more = worker.sessions.extraction().complete(tenant, session, (upto, upto), None).await?;
    Ok(Some((how, more)))
}

/// Retry delay after a failure that the range itself may cause; more than a day in total.
fn retry_delay(tries: i32) -> Duration {
    Duration::from_mins(5) * 4_u32.pow(tries.clamp(0, MAX_EXTRACTION_TRIES - 1).unsigned_abs())
}

/// Whether a failure is unrelated to the range: the memory service, the model or a store is
/// unavailable or misconfigured.
fn is_unrelated_to_range(error: &anyhow::Error) -> bool {
    use holdfast_llm::Error as Llm;
    if let Some(model) = error.downcast_ref::<Llm>() {
        return match model {
            // The range, or its size, may be the cause.
            Llm::Timeout | Llm::Malformed(_) | Llm::Empty => false,
            Llm::Setup(_) | Llm::Address(_) => true,
            other => other.kind() != Kind::Invalid,
        };
    }
    let kind = error.downcast_ref::<holdfast_grpc::MemoryCallError>().map(Fault::kind);
    let kind = kind.or_else(|| error.downcast_ref::<Error>().map(Fault::kind));
    kind.is_some_and(|kind| {
        kind.is_transient() || matches!(kind, Kind::Unauthenticated | Kind::Forbidden)
    })
}

/// The model answered but its memories could not be stored: limited retries, as each costs a
/// request.
#[derive(Debug, thiserror::Error)]
#[error("what was found could not be kept")]
struct StoreFailed(#[source] holdfast_grpc::MemoryCallError);

/// Outcome of an extraction.
enum ExtractionOutcome {
    /// Number of stored memories.
    Stored(usize),
    /// Must wait, for this reason.
    Blocked(&'static str),
    /// Failed too often.
    TooManyTries,
}

/// Asks the model what to remember, and stores it.
async fn extract_range(
    worker: &Worker,
    memory: &Memory,
    (tenant, session): TenantSession,
    range: &mut JournalRange,
) -> anyhow::Result<ExtractionOutcome> {
    let nothing = Ok(ExtractionOutcome::Stored(0));
    let Ok(key) = range.key.parse::<SessionKey>() else { return nothing };
    let snapshot = match worker.agents.find(tenant, range.agent, None).await? {
        AgentLookup::Ready(snapshot) => snapshot,
        AgentLookup::NoAgent => return nothing,
        AgentLookup::NoModel(_) => return Ok(ExtractionOutcome::Blocked("the agent has no model")),
    };
    let policy = worker.policies.find(&worker.tools, tenant, range.agent).await?;
    let who = policy.turn_authors(authors(&range.entries));
    let facts = SessionFacts { kind: key.kind(), key: key.as_str(), dm_scope: snapshot.dm_scope };
    let person = MemorySubject::of(&ConversationAccess::decide(&facts, who.clone(), &who));
    let Some(user) = person.user.as_deref().filter(|_| !person.is_group) else { return nothing };
    if !snapshot.has_memory(key.kind()) {
        return nothing;
    }
    // Checks that the memory service answers before paying for a model request.
    let forgotten = last_erasure(memory, tenant, [user, &session.to_string()]).await?;
    range.forget(forgotten);
    let window = usize::try_from(snapshot.card.context).unwrap_or(usize::MAX);
    let window = window.min(worker.config.context_tokens);
    let (said, read) = transcript(&range.entries, window / 2 * MIN_CHARS_PER_TOKEN);
    if read < range.entries.len()
        && !worker.sessions.extraction().cut(tenant, session, range, read).await?
    {
        return Ok(ExtractionOutcome::Blocked("somebody else is at it"));
    }
    let Some(end) = range.last().filter(|_| !said.is_empty()) else { return nothing };
    let Some(answer) = ask_model(worker, (tenant, session), &snapshot, end, &said).await? else {
        return Ok(ExtractionOutcome::Blocked("a budget is spent"));
    };
    let found = parse_memories(&answer);
    if found.is_empty() {
        return nothing;
    }
    failpoints::point("runner.before_kept").await;
    let provenance = pb::Provenance {
        kind: pb::SourceKind::Agent.into(),
        name: snapshot.name.to_string(),
        locator: format!("{session}, entries {} to {}", range.after + 1, range.upto),
        retrieved_at: None,
        outside: range.has_outside_text(),
    };
    let at =
        prost_types::Timestamp { seconds: end.at.as_second(), nanos: end.at.subsec_nanosecond() };
    let items =
        found.into_iter().map(|one| to_new_item(one, session, &provenance, at)).collect::<Vec<_>>();
    let count = items.len();
    let request = pb::PutItemsRequest {
        who: Some(person.to_proto(range.agent)),
        items,
        unless_like: MIN_DUPLICATE_SIMILARITY,
        request_id: format!("extract:{session}:{}", range.upto),
    };
    match memory.client.put_items(tenant, request).await {
        Ok(_) => {}
        // Memories that the service rejects as invalid are not requested again.
        Err(refused) if refused.kind() == Kind::Invalid => {
            warn!(error = &refused as &dyn std::error::Error, "what was found is not kept");
            return nothing;
        }
        Err(refused) => return Err(StoreFailed(refused).into()),
    }
    memory.on_memory_added(tenant, range.agent, user);
    Ok(ExtractionOutcome::Stored(count))
}

/// Time of the newest erasure request for any of the subjects.
pub(crate) async fn last_erasure(
    memory: &Memory,
    tenant: TenantId,
    subjects: [&str; 2],
) -> anyhow::Result<Option<Timestamp>> {
    let mut until = None;
    for subject in subjects {
        let asked = pb::ListErasuresRequest {
            who: Some(pb::Who { everything: true, ..pb::Who::default() }),
            subject: subject.to_owned(),
            ..pb::ListErasuresRequest::default()
        };
        let asked_at = memory.client.erasures(tenant, asked).await?.erasures;
        let asked_at = asked_at.into_iter().filter_map(|erasure| erasure.asked_at);
        let asked_at = asked_at.filter_map(|at| Timestamp::new(at.seconds, at.nanos).ok());
        until = until.max(asked_at.max());
    }
    Ok(until)
}

fn to_new_item(
    one: ExtractedMemory,
    session: SessionId,
    provenance: &pb::Provenance,
    at: prost_types::Timestamp,
) -> pb::NewItem {
    let new = pb::NewItem {
        kind: pb::Kind::Memory.into(),
        r#type: one.kind.to_owned(),
        content: one.content,
        session: session.to_string(),
        at: Some(at),
        provenance: Some(provenance.clone()),
        ..pb::NewItem::default()
    };
    match one.triple {
        None => new,
        Some([subject, predicate, object]) => {
            pb::NewItem { kind: pb::Kind::Fact.into(), subject, predicate, content: object, ..new }
        }
    }
}

/// Asks the model about a range that ends with `end`; `None` if a budget is spent.
async fn ask_model(
    worker: &Worker,
    (tenant, session): TenantSession,
    snapshot: &AgentSnapshot,
    end: EntryMark,
    said: &str,
) -> anyhow::Result<Option<String>> {
    let today = end.at.to_zoned(snapshot.zone.clone()).strftime("%A, %Y-%m-%d").to_string();
    let mut request = Request {
        max_output: Some(EXTRACTION_OUTPUT_TOKENS),
        card: Some(Arc::clone(&snapshot.card)),
        ..Request::new(
            snapshot.model_id.clone(),
            extraction_chat(said, &today),
            Instant::now() + MODEL_TIMEOUT,
        )
    };
    let AgentSnapshot { card, ledger, .. } = snapshot;
    let mut reserved = None;
    if !ledger.budgets.is_empty() {
        let id = format!("{session}:extraction:{}", end.seq);
        let asking = ReservationRequest { tenant, id, expires_after: MODEL_TIMEOUT, card, ledger };
        match worker.budgets().reserve(asking, &mut request).await? {
            Ok(kept) => reserved = Some(kept),
            Err(_) => return Ok(None),
        }
    }
    let cancelled = CancellationToken::new();
    let mut pass_over = |_: Delta| {};
    let replied = snapshot.model.reply(&request, &mut pass_over, &cancelled).await;
    if let Ok(reply) = &replied {
        charge_reply(worker, tenant, snapshot, end, reply).await;
    }
    if let Some(reserved) = reserved {
        // Only after the usage is stored.
        worker.budgets().release(reserved).await;
    }
    Ok(Some(replied?.text))
}

/// Adds the cost to the run with which the range ends.
async fn charge_reply(
    worker: &Worker,
    tenant: TenantId,
    snapshot: &AgentSnapshot,
    end: EntryMark,
    reply: &Reply,
) {
    let ledger = &snapshot.ledger;
    let charge = ledger.charge(&reply.model, &reply.usage);
    let spent = WriteCost {
        run_micros: charge.micros,
        run_platform_micros: charge.platform_micros,
        charge,
        budgets: ledger.owners(),
    };
    let charged = worker.sessions.usage().charge(tenant, end.run, &reply.usage, &spent).await;
    if let Err(error) = charged {
        warn!(error = &error as &dyn std::error::Error, "an extraction is not charged");
    }
}
