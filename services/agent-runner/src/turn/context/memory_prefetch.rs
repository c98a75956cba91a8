//! Memory prefetch: a search for memories that fit a message, in parallel to the preparation of the
//! prompt.
//!
//! Starts when a message is heard, and is waited for no longer than `runner.memory.recall_timeout`.
//! For some seconds the prefetch skips users without memories, a service that is unavailable, and
//! tenants for which it is slow. A failure never stops the turn.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use holdfast_agent::{
    bootstrap::{BootstrapName, may_load},
    heard_seqs,
    prompt::RecalledMemory,
};
use holdfast_proto::memory::v1 as pb;
use holdfast_types::{AgentId, Entry, Fault as _, Kind, TenantId};
use tokio::time::timeout;
use tokio_util::task::AbortOnDropHandle;
use tracing::{Instrument as _, Span, debug, warn};

use crate::{
    agents::snapshots::AgentSnapshot,
    tools::{
        memory::{INDEXED_KINDS, Memory, format_day, kind_name, lock, turn_provenance},
        memory_subject::MemorySubject,
    },
    turn::state::TurnState,
};

/// Time for which a user without memories is not searched for. A memory that this process stores
/// takes effect at once, one of another process after this time.
const NO_MEMORIES_TTL: Duration = Duration::from_secs(10);

/// Time for which an unavailable service, or a slow tenant, is skipped.
const UNAVAILABLE_TTL: Duration = Duration::from_secs(5);

/// Users without memories and slow tenants that are kept in memory. When full, all are cleared.
const MAX_CACHED_USERS: usize = 20_000;

/// Limit on the query, in bytes.
const MAX_QUERY_BYTES: usize = 2_000;

/// Memory prefetch of a turn, running or finished.
#[derive(Debug, Default)]
pub(crate) struct MemoryPrefetch {
    /// `seq`s of the messages that the query was made from.
    searched_seqs: Vec<i64>,
    search: Option<AbortOnDropHandle<Recall>>,
    /// Memories found, best match first.
    pub(crate) memories: Vec<RecalledMemory>,
    /// One of the memories may repeat text from outside.
    pub(crate) has_outside_text: bool,
}

/// Memories found, best match first, and whether one of them may repeat text from outside.
type Recall = (Vec<RecalledMemory>, bool);

/// Starts a search for the messages of the turn, if they are new.
pub(crate) fn start_prefetch(turn: &mut TurnState<'_>, snapshot: &AgentSnapshot) {
    let heard = heard_seqs(turn.journal.entries());
    let Some(memory) = &turn.worker.memory else { return };
    let most = turn.worker.config.memory.recall;
    if most == 0
        || heard.is_empty()
        || heard == turn.prefetch.searched_seqs
        || !snapshot.has_memory(turn.kind)
    {
        return;
    }
    let access = turn.access(snapshot);
    let person = MemorySubject::of(&access);
    let query = query_text(turn.journal.turn());
    turn.prefetch.searched_seqs = heard;
    if person.user.is_none() || query.is_empty() {
        return;
    }
    let tenant = turn.lease.claim.tenant;
    let include_notes = may_load(turn.kind, access.audience, BootstrapName::Memory);
    let session = turn.lease.claim.session.to_string();
    let shown_from = turn.journal.first_entry();
    let agent = snapshot.agent;
    let asking =
        PrefetchQuery { tenant, agent, person, query, most, include_notes, session, shown_from };
    if !memory.should_search(&asking) {
        turn.prefetch.memories.clear();
        turn.prefetch.has_outside_text = false;
        return;
    }
    let (memory, limit) = (Arc::clone(memory), turn.worker.config.memory.recall_timeout);
    let asked = async move { memory.prefetch(asking, limit).await };
    let asked = tokio::spawn(asked.instrument(Span::current()));
    turn.prefetch.search = Some(AbortOnDropHandle::new(asked));
}

/// Waits for the search, which has its own time limit.
pub(crate) async fn await_prefetch(turn: &mut TurnState<'_>) {
    if let Some(asked) = turn.prefetch.search.take() {
        let (memories, outside) = asked.await.unwrap_or_default();
        turn.prefetch.memories = memories;
        turn.prefetch.has_outside_text = outside;
    }
}

/// Newest text of the turn's messages.
fn query_text(turn: &[Entry]) -> String {
    let heard = turn.iter().filter_map(|entry| match entry {
        Entry::Heard { body, .. } if !body.silent && body.command().is_none() => {
            Some(body.text_and_speech())
        }
        Entry::Heard { .. }
        | Entry::Thought { .. }
        | Entry::Called { .. }
        | Entry::Returned { .. }
        | Entry::Noted { .. } => None,
    });
    let all = heard.map(|text| text.trim().to_owned()).collect::<Vec<String>>().join("\n");
    let from = all.ceil_char_boundary(all.len().saturating_sub(MAX_QUERY_BYTES));
    all[from..].trim().to_owned()
}

/// A query and its subject.
#[derive(Debug)]
struct PrefetchQuery {
    tenant: TenantId,
    agent: AgentId,
    person: MemorySubject,
    query: String,
    most: u32,
    /// Whether notes made for the owner may be found.
    include_notes: bool,
    session: String,
    /// `seq` of the first journal entry that the prompt may contain.
    shown_from: i64,
}

impl PrefetchQuery {
    fn user(&self) -> String {
        self.person.user.clone().unwrap_or_default()
    }
}

impl Memory {
    fn should_search(&self, asking: &PrefetchQuery) -> bool {
        let now = Instant::now();
        if lock(&self.unavailable_until).is_some_and(|until| now < until)
            || lock(&self.slow_until).get(&asking.tenant).is_some_and(|until| now < *until)
        {
            return false;
        }
        let nothing = lock(&self.users_without_memories);
        let asked = nothing.get(&(asking.tenant, asking.agent, asking.user()));
        asked.is_none_or(|asked| now.duration_since(*asked) >= NO_MEMORIES_TTL)
    }

    /// Skips a tenant for a while. Only this tenant: its data may be large, others are not slow
    /// because of it.
    fn skip_tenant(&self, tenant: TenantId) {
        let mut slow = lock(&self.slow_until);
        if slow.len() >= MAX_CACHED_USERS {
            slow.clear();
        }
        slow.insert(tenant, Instant::now() + UNAVAILABLE_TTL);
    }

    /// Searches; empty on failure or timeout.
    async fn prefetch(&self, asking: PrefetchQuery, limit: Duration) -> Recall {
        let whose = (asking.tenant, asking.agent, asking.user());
        let mut kinds = INDEXED_KINDS.to_vec();
        if asking.include_notes {
            kinds.push(pb::Kind::Document);
        }
        let filter = pb::Filter {
            kinds: kinds.into_iter().map(i32::from).collect(),
            ..pb::Filter::default()
        };
        let request = pb::SearchRequest {
            who: Some(asking.person.to_proto(asking.agent)),
            query: asking.query,
            // Some are in the prompt already.
            k: asking.most.saturating_mul(4).min(100),
            filter: Some(filter),
            ..pb::SearchRequest::default()
        };
        let began = Instant::now();
        let asked = self.client.search_within(asking.tenant, request, limit);
        let answer = timeout(limit, asked).await;
        let is_late = began.elapsed() >= limit;
        let outcome = match &answer {
            Ok(Ok(_)) => "ok",
            Ok(Err(_)) if !is_late => "failed",
            Ok(Err(_)) | Err(_) => "late",
        };
        metrics::histogram!("holdfast_runner_recall_duration_seconds", "outcome" => outcome)
            .record(began.elapsed().as_secs_f64());
        let hits = match answer {
            Ok(Ok(answer)) => answer.hits,
            Ok(Err(refused)) if !is_late => {
                if refused.kind() == Kind::Unavailable {
                    debug!("nothing is remembered: the memory service is away");
                    *lock(&self.unavailable_until) = Some(Instant::now() + UNAVAILABLE_TTL);
                } else {
                    warn!(error = &refused as &dyn std::error::Error, "nothing is remembered");
                    self.skip_tenant(asking.tenant);
                }
                return Recall::default();
            }
            Ok(Err(_)) | Err(_) => {
                debug!("nothing is remembered: the memory service is slow");
                self.skip_tenant(asking.tenant);
                return Recall::default();
            }
        };
        if hits.is_empty() {
            let mut nothing = lock(&self.users_without_memories);
            if nothing.len() >= MAX_CACHED_USERS {
                nothing.clear();
            }
            nothing.insert(whose, Instant::now());
        }
        // `MEMORY.md` is in the prompt already, and so is this conversation.
        let is_new = |hit: &pb::Hit| {
            let is_shown = hit.kind() == pb::Kind::Turn
                && hit.session == asking.session
                && hit.id.parse().is_ok_and(|seq: i64| seq >= asking.shown_from);
            !is_shown && !hit.path.ends_with("MEMORY.md")
        };
        let most = usize::try_from(asking.most).unwrap_or(usize::MAX);
        let shown: Vec<pb::Hit> = hits.into_iter().filter(is_new).take(most).collect();
        let outside = shown.iter().any(is_outside_text);
        (shown.into_iter().map(to_remembered).collect(), outside)
    }
}

/// Whether a memory may repeat text from outside.
fn is_outside_text(hit: &pb::Hit) -> bool {
    hit.provenance.as_ref().is_some_and(|provenance| provenance.outside)
}

fn to_remembered(hit: pb::Hit) -> RecalledMemory {
    let what = match hit.kind() {
        pb::Kind::Turn => turn_provenance(&hit),
        kind => kind_name(kind, &hit.r#type),
    };
    RecalledMemory { what, when: format_day(hit.at.as_ref()), text: hit.text }
}

#[cfg(test)]
mod tests {
    use holdfast_types::Body;

    use super::*;

    #[test]
    fn what_is_looked_for_is_what_was_said_last_and_not_a_command() {
        let heard = |text: &str| Entry::Heard { seq: 1, body: Body::text(text) };
        let silent = Entry::Heard { seq: 2, body: Body { silent: true, ..Body::text("psst") } };
        let long = heard(&"ä".repeat(MAX_QUERY_BYTES));

        assert_eq!(
            query_text(&[heard(" my cat "), silent, heard("/status"), heard("and dog")]),
            "my cat\nand dog"
        );
        assert_eq!(query_text(&[heard("before"), long]).len(), MAX_QUERY_BYTES);
        assert_eq!(query_text(&[]), "");
    }
}
