//! End of a turn: the reply, the finished messages and the session's next state, all or nothing.

use holdfast_pg::TenantTx;
use holdfast_types::{Body, Entry, SessionId, SessionState, Wait, wakes};
use sqlx::types::Json;

use super::{
    append::insert_deliveries,
    behaviors::{apply_effects, reset_behavior},
    outside_text::mark_outside_text,
};
use crate::{
    Claim, Completion, CompletionResult, Error, Sessions, WriteCost,
    sessions::{
        CHOICES_PER_FAIR_ONE, FAIR_KEY_STEP, Lease, fenced_error, has_message, lock_claimed,
    },
    summary::copy_summary_to_session,
    system_events::apply_system_events,
};

impl Sessions {
    /// Ends a turn, if the claim is current.
    ///
    /// # Errors
    ///
    /// [`Error::Fenced`] if the claim is not current, [`Error::JournalMoved`] if the journal or the
    /// inbox is not as the caller read it. After any other error it is unknown whether the turn was
    /// ended; [`load`](Self::load) shows it.
    pub async fn complete(
        &self,
        claim: &Claim,
        completion: Completion,
    ) -> Result<CompletionResult, Error> {
        self.complete_with_cost(claim, completion, &WriteCost::default()).await
    }

    /// Ends a turn like [`complete`](Self::complete), together with its cost.
    ///
    /// # Errors
    ///
    /// As for [`complete`](Self::complete).
    pub async fn complete_with_cost(
        &self,
        claim: &Claim,
        completion: Completion,
        spent: &WriteCost,
    ) -> Result<CompletionResult, Error> {
        let completion = &completion;
        let count = |items: usize| i64::try_from(items).unwrap_or(i64::MAX);
        let rest = LeaseChanges {
            finished: count(completion.done.len()),
            finishes: &completion.done,
            entries: count(completion.entries.len()),
            replies: count(completion.deliveries.len()),
            wait: &completion.wait,
        };

        let mut tx = self.pools.tenant(claim.tenant).await?;
        let usual = NextState::usual(&rest);
        if let Some(ended) = end_turn(&mut tx, claim, (completion, spent), &rest, &usual).await? {
            return commit_turn_end(tx, claim, (completion, spent), &usual, ended).await;
        }
        // Not the usual case: a message arrived, or the session is paused, has a workspace or is
        // lost. Undo the transaction and read the lease under its lock.
        tx.rollback().await?;
        let mut tx = self.pools.tenant(claim.tenant).await?;
        let lease = lock_claimed(&mut tx, claim).await?;
        if completion.at.is_some_and(|at| at != lease.next_entry)
            || !has_message(&mut tx, claim.session, completion.newest).await?
        {
            tx.rollback().await?;
            return Err(Error::JournalMoved);
        }
        let next = NextState::of(&mut tx, &lease, &rest).await?;
        match end_turn(&mut tx, claim, (completion, spent), &rest, &next).await? {
            Some(ended) => commit_turn_end(tx, claim, (completion, spent), &next, ended).await,
            None => Err(fenced_error(claim)),
        }
    }
}

/// Stores the deliveries, summary, system events and cost of the turn, and commits.
async fn commit_turn_end(
    mut tx: TenantTx,
    claim: &Claim,
    (completion, spent): (&Completion, &WriteCost),
    next: &NextState<'_>,
    ended: TurnEndRow,
) -> Result<CompletionResult, Error> {
    if !completion.deliveries.is_empty() {
        let (run, first) = (completion.run, ended.next_out);
        insert_deliveries(&mut tx, claim.session, run, first, &completion.deliveries).await?;
    }
    copy_summary_to_session(&mut tx, claim.session, &completion.entries).await?;
    mark_outside_text(&mut tx, claim.session, &completion.entries).await?;
    apply_system_events(&mut tx, completion.run, &completion.entries).await?;
    reset_behavior(&mut tx, claim.session, &completion.entries).await?;
    apply_effects(&mut tx, completion.effects.as_ref()).await?;
    spent.charge_budgets(&mut tx).await?;
    tx.commit().await?;
    Ok(CompletionResult { wake: next.queue || ended.promoted, again: next.again })
}

/// Common table expressions that append the entries, finish the messages, record the run with its
/// cost, and emit `RunFinished`. They use the parameters `$1` to `$18` and `$28` to `$32`.
///
/// The fence comes first, under the row's lock, and all writes depend on its row. `ingest` locks
/// this row before it touches the inbox; the other order would deadlock with a repeated message
/// that arrives as the turn ends.
macro_rules! finish {
    () => {
        "held as materialized (
            select next_entry from session.session_lease
            where tenant_id = $1 and session_id = $2 and epoch = $12 and owner = $29
              and state = 'RUNNING'
              and next_entry = coalesce($18, next_entry)
              and ($30::bigint is null or exists (
                  select from session.inbox i
                  where i.tenant_id = $1 and i.session_id = $2 and i.seq = $30
                    and i.message_id = $31))
            for update),
        entries as (
            insert into session.entries (tenant_id, session_id, seq, epoch, run_id, kind, body)
            select $1, $2, held.next_entry + e.n - 1, $12, $3, e.kind, e.body
            from held, unnest($16::text[], $17::jsonb[]) with ordinality as e (kind, body, n)),
        finished as (
            update session.inbox i
            set state = case when $4 = 'dead' then 'dead' else 'done' end,
                outcome = $4, reason = $5, run_id = $3, finished_at = clock_timestamp()
            from held
            where i.tenant_id = $1 and i.session_id = $2 and i.seq = any($6)
              and i.state in ('new', 'seen')
            returning i.message_id,
                      -- The message that began the turn has its id.
                      case when i.message_id = $3 then coalesce(i.target->>'channel',
                          case when i.body->'author'->>'id' ~ '^(api|person):' then 'api' end) end as channel,
                      case when i.message_id = $3 then i.body->'author'->>'id' end as person),
        session as (
            update session.sessions s
            set turns = turns + 1, input_tokens = input_tokens + $9,
                cached_tokens = cached_tokens + $10, output_tokens = output_tokens + $11,
                last_target = coalesce($14, last_target), updated_at = clock_timestamp(),
                used_hour = date_bin('1 hour', clock_timestamp(), '2000-01-01 00:00:00+00')
            from held
            where s.tenant_id = $1 and s.session_id = $2
            returning agent_id),
        run as (
            insert into session.runs
                (tenant_id, run_id, session_id, agent_id, epoch, outcome, reason, reply_seq, steps, model,
                 input_tokens, cached_tokens, output_tokens, started_at, cost_micros, messages,
                 channel, person, platform_micros)
            select $1, $3, $2, agent_id, $12, $4, $5, held.next_entry + $7::bigint, $8, $13, $9, $10,
                   $11, $15, $28, (select count(*) from finished),
                   (select channel from finished where message_id = $3),
                   (select person from finished where message_id = $3), $33
            from session, held
            on conflict (tenant_id, run_id) do update
                set outcome = excluded.outcome, reason = excluded.reason, epoch = excluded.epoch,
                    reply_seq = excluded.reply_seq, finished_at = clock_timestamp()),
        event as (
            insert into session.events (tenant_id, family, session_id, name, payload)
            select $1, 'runs', $2, 'RunFinished',
                    jsonb_build_object('run', $3::uuid, 'outcome', $4::text, 'steps', $8::integer,
                                       'input_tokens', $9::bigint, 'output_tokens', $11::bigint,
                                       'messages', $6::bigint[])
                   || case when $32::jsonb is null then '{}'
                           else jsonb_build_object('tools', $32::jsonb) end
            from held)"
    };
}

/// Common table expressions and the update that make a session idle or queue it again, and give its
/// slot in flight to the tenant's next queued session.
///
/// A tenant above its cap, which may be suspended, gives its slot back instead.
///
/// `next` skips sessions that another transaction has locked: that transaction or the sweep
/// promotes them.
macro_rules! rest {
    (
        next $next:literal, queue $queue:literal, turn $turn:literal, state $state:literal, wait $wait:literal,
        deadline $deadline:literal, entries $entries:literal, finished $finished:literal,
        replies $replies:literal, epoch $epoch:literal, workspace $workspace:literal,
        only $only:literal, returning $returning:literal
    ) => {
        concat!(
            "keeps as materialized (select session.keeps_slot($1) as slot),
            next as (
                select session_id from session.session_lease
                where tenant_id = $1 and state = 'READY' and fair_key is null and paused is null
                  and session_id <> $2 and (select slot from keeps)
                  and (priority = 0 or session.has_background_room($1, 1))
                order by ",
            $next,
            " limit 1
                for update skip locked),
            place as materialized (select fair_key, step from session.place($1, ",
            $turn,
            ")),
            moved as (
                insert into session.tenant_flight as f (tenant_id, shard, in_flight, vfinish)
                select $1, session.shard($2),
                       case when (",
            $queue,
            " and (select slot from keeps)) or exists (select from next) then 0 else -1 end,
                       case when ",
            $queue,
            " or exists (select from next)
                            then fair_key + step else 0 end
                from place
                on conflict (tenant_id, shard) do update
                    set in_flight = f.in_flight + excluded.in_flight,
                        vfinish = greatest(f.vfinish, excluded.vfinish)),
            promoted as (
                update session.session_lease l
                set fair_key = place.fair_key,
                    -- Its holder gets its time from now on.
                    ready_at = case when l.holder is null then l.ready_at else clock_timestamp() end
                from place, next
                where l.tenant_id = $1 and l.session_id = next.session_id),
            freed as (
                update session.workspace_lease
                set session_id = case when drains then session_id end,
                    lease_until = case when drains then 'infinity'::timestamptz end
                where tenant_id = $1 and workspace = ",
            $workspace,
            " and session_id = $2)
            update session.session_lease l
            set state = ",
            $state,
            ", wait = ",
            $wait,
            ",
                wait_until = clock_timestamp() + ",
            $deadline,
            " * interval '1 millisecond',
                owner = null, lease_until = null,
                ready_at = case when ",
            $state,
            " = 'READY' then clock_timestamp() end,
                fair_key = case when ",
            $queue,
            " and (select slot from keeps) and not exists (select from next)
                                then place.fair_key end,
                next_entry = l.next_entry + ",
            $entries,
            ", done_in = l.done_in + ",
            $finished,
            ",
                next_out = l.next_out + ",
            $replies,
            ", attempts = 0, retries = 0, ended = false
            from place
            where l.tenant_id = $1 and l.session_id = $2 and l.state = 'RUNNING' and l.epoch = ",
            $epoch,
            $only,
            "
            returning exists (select from next)",
            $returning
        )
    };
}

/// The statement that ends a turn; the parameter is the order of the tenant's queued sessions.
macro_rules! end_turn {
    ($next:literal) => {
        concat!(
            "with ",
            finish!(),
            ",",
            rest!(
                next $next, queue "$19", turn "$20", state "$21", wait "$22", deadline "$23",
                entries "$24", finished "(select count(*) from finished)", replies "$25",
                epoch "$12", workspace "$26",
                only " and exists (select from held)
                      and ($27 or (l.paused is null and l.workspace is null
                                    and l.next_in - 1 - l.done_in = (select count(*) from finished)))",
                returning ", next_out - $25, (select count(*) from finished)"
            )
        )
    };
}

/// The statement that ends a claim; the parameter is the order of the tenant's queued sessions.
macro_rules! end_claim {
    ($next:literal) => {
        concat!(
            "with ",
            rest!(
                next $next, queue "$3", turn "$4", state "$5", wait "$6", deadline "$7",
                entries "$8", finished "$9", replies "$10", epoch "$11", workspace "$12", only "",
                returning ""
            )
        )
    };
}

/// Whether the end of a claim gives its slot in flight to the session that waits longest, whatever
/// its priority. True for one claim of [`CHOICES_PER_FAIR_ONE`], so that no session starves.
fn is_fair_end(session: SessionId, epoch: i64) -> bool {
    let [.., last] = *session.as_uuid().as_bytes();
    epoch.unsigned_abs().wrapping_add(last.into()) % CHOICES_PER_FAIR_ONE == 0
}

/// Result row of the statement that ends a turn.
struct TurnEndRow {
    /// Another session of the tenant got the slot in flight.
    promoted: bool,
    /// Position of the turn's first delivery among the session's deliveries.
    next_out: i64,
}

/// Ends a turn in one statement. The session's row and its tenant's counters stay locked until the
/// commit, so fewer round trips mean shorter waits for others.
///
/// Returns `None` if the claim is not current, or if the session is not in the state that `next`
/// assumes. The transaction must then be rolled back.
async fn end_turn(
    tx: &mut TenantTx,
    claim: &Claim,
    (end, spent): (&Completion, &WriteCost),
    rest: &LeaseChanges<'_>,
    next: &NextState<'_>,
) -> Result<Option<TurnEndRow>, Error> {
    const BY_PRIORITY: &str = end_turn!("priority, ready_at");
    const FAIR: &str = end_turn!("ready_at");

    let tenant = tx.tenant();
    let sql = if is_fair_end(claim.session, claim.epoch) { FAIR } else { BY_PRIORITY };
    let reply = end.reply.and_then(|index| i64::try_from(index).ok());
    let tokens = |count: u64| i64::try_from(count).unwrap_or(i64::MAX);
    let row: Option<(bool, i64, i64)> = holdfast_pg::query_as(sql)
        .bind(tenant.as_uuid())
        .bind(claim.session.as_uuid())
        .bind(end.run.as_uuid())
        .bind(end.outcome.as_str())
        .bind(&end.reason)
        .bind(&end.done)
        .bind(reply)
        .bind(end.steps)
        .bind(tokens(end.usage.input))
        .bind(tokens(end.usage.cached))
        .bind(tokens(end.usage.output))
        .bind(claim.epoch)
        .bind(&end.model)
        .bind(end.last_target.as_ref().map(Json))
        .bind(jiff_sqlx::Timestamp::from(end.started_at))
        .bind(end.entries.iter().map(Entry::kind).collect::<Vec<_>>())
        .bind(end.entries.iter().map(Json).collect::<Vec<_>>())
        .bind(end.at)
        .bind(next.queue)
        .bind(FAIR_KEY_STEP)
        .bind(next.state.as_str())
        .bind(next.wait)
        .bind(next.deadline)
        .bind(rest.entries)
        .bind(rest.replies)
        .bind(next.workspace.as_deref())
        .bind(next.is_read_under_lock)
        .bind(tokens(spent.run_micros))
        .bind(claim.runner.as_uuid())
        .bind(end.newest.map(|(seq, _)| seq))
        .bind(end.newest.map(|(_, message)| message.as_uuid()))
        .bind((!end.tools.is_empty()).then_some(Json(&end.tools)))
        .bind(tokens(spent.run_platform_micros))
        .fetch_optional(tx.conn())
        .await?;
    let Some((promoted, next_out, finished)) = row else { return Ok(None) };
    if finished != rest.finished {
        // Only the holder of the claim finishes messages, so the counts can differ only by a
        // defect.
        return Err(Error::Conflict(format!(
            "a turn that ends {} messages found {finished} of them open",
            rest.finished
        )));
    }
    Ok(Some(TurnEndRow { promoted, next_out }))
}

/// Changes of the lease row at the end of a turn.
pub(crate) struct LeaseChanges<'a> {
    /// Number of messages that the turn finished.
    pub finished: i64,
    /// `seq` of those that are not marked as finished yet.
    pub finishes: &'a [i64],
    pub entries: i64,
    pub replies: i64,
    /// Wait of the session, if no stored message wakes it.
    pub wait: &'a Wait,
}

/// Ends a claim: the session becomes idle, or joins the end of its tenant's queue.
///
/// The slot in flight goes to the tenant's next queued session, or back to this one.
pub(crate) async fn end_claim(
    tx: &mut TenantTx,
    lease: &Lease,
    rest: LeaseChanges<'_>,
) -> Result<CompletionResult, Error> {
    const BY_PRIORITY: &str = end_claim!("priority, ready_at");
    const FAIR: &str = end_claim!("ready_at");

    let tenant = tx.tenant();
    let sql = if is_fair_end(lease.session, lease.epoch) { FAIR } else { BY_PRIORITY };
    let next = NextState::of(tx, lease, &rest).await?;
    let promoted: Option<bool> = holdfast_pg::query_scalar(sql)
        .bind(tenant.as_uuid())
        .bind(lease.session.as_uuid())
        .bind(next.queue)
        .bind(FAIR_KEY_STEP)
        .bind(next.state.as_str())
        .bind(next.wait)
        .bind(next.deadline)
        .bind(rest.entries)
        .bind(rest.finished)
        .bind(rest.replies)
        .bind(lease.epoch)
        .bind(lease.workspace.as_deref())
        .fetch_optional(tx.conn())
        .await?;
    let Some(promoted) = promoted else { return Err(Error::Fenced { held: lease.epoch }) };
    Ok(CompletionResult { wake: next.queue || promoted, again: next.again })
}

/// State of a session after a turn.
struct NextState<'a> {
    /// Whether a stored message wakes the session.
    again: bool,
    /// Whether the session should be queued.
    queue: bool,
    state: SessionState,
    wait: Option<Json<&'a Wait>>,
    /// In milliseconds from now.
    deadline: Option<i64>,
    /// Workspace to free for other sessions.
    workspace: Option<String>,
    /// The values were read under the lease's lock, not assumed.
    is_read_under_lock: bool,
}

impl<'a> NextState<'a> {
    /// Returns the usual state: nothing is left to do, and the session is not paused and has no
    /// workspace.
    fn usual(rest: &LeaseChanges<'a>) -> Self {
        Self::after(rest, false)
    }

    fn after(rest: &LeaseChanges<'a>, again: bool) -> Self {
        let waits = !again && *rest.wait != Wait::Anything;
        Self {
            again,
            queue: again,
            state: if again { SessionState::Ready } else { rest.wait.state() },
            wait: waits.then_some(Json(rest.wait)),
            deadline: rest
                .wait
                .deadline_ms()
                .filter(|_| waits)
                .and_then(|ms| i64::try_from(ms).ok()),
            workspace: None,
            is_read_under_lock: false,
        }
    }

    async fn of(tx: &mut TenantTx, lease: &Lease, rest: &LeaseChanges<'a>) -> Result<Self, Error> {
        let again = lease.unfinished_messages() > rest.finished
            && has_waking_message(tx, lease, rest.wait, rest.finishes).await?;
        Ok(Self {
            // A paused session is not queued; resuming queues it.
            queue: again && !lease.paused,
            workspace: lease.workspace.clone(),
            is_read_under_lock: true,
            ..Self::after(rest, again)
        })
    }
}

/// Whether an unfinished message wakes a session with this wait, except for the messages in `but`.
pub(crate) async fn has_waking_message(
    tx: &mut TenantTx,
    lease: &Lease,
    wait: &Wait,
    but: &[i64],
) -> Result<bool, Error> {
    const SQL: &str = "
        select body, state = 'new' and mode = 'interrupt' from session.inbox
        where tenant_id = $1 and session_id = $2 and state in ('new', 'seen') and seq <> all($3)
        order by seq";

    let tenant = tx.tenant();
    let open: Vec<(Json<Body>, bool)> = holdfast_pg::query_as(SQL)
        .bind(tenant.as_uuid())
        .bind(lease.session.as_uuid())
        .bind(but)
        .fetch_all(tx.conn())
        .await?;
    // A wait for an approval is ended by an interrupting message, as a running turn would be.
    let ends = |body: &Body, interrupts: bool| {
        interrupts && wait.is_for_approval() && !body.silent && body.command().is_none()
    };
    Ok(open.iter().any(|(body, new)| wakes(wait, &body.0) || ends(&body.0, *new)))
}
