//! Delivery of replies to channels.
//!
//! A bridge claims a delivery for a moment, without reading its content. Then it commits `sending`,
//! calls the platform, and commits `sent`.
//!
//! | a bridge crashes | the delivery |
//! |---|---|
//! | between claim and `sending` | was not sent: it is due again after [`HANDOVER_TIMEOUT`], and no attempt is counted |
//! | in `sending`, on a keyed channel | may have arrived: it is sent again with the same key, after [`SEND_LEASE`] and while the platform remembers the key |
//! | in `sending`, on a reconcilable channel | may have arrived: it is due again, and the platform is asked before it is sent |
//! | in `sending`, on any other | may have arrived: it becomes `unknown`, and is never resent automatically |

pub mod operations;
pub mod outbound;
pub mod previews;
pub mod progress;

use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use holdfast_pg::Pools;
use holdfast_types::{
    AccountId, ApprovalId, ChannelAction, DeliveryClass, DeliveryId, DeliveryState, Fault as _,
    RunnerId, Target, TenantId,
};
use sqlx::types::Json;
use tokio::time::{Instant, sleep};
use tracing::warn;
use uuid::Uuid;

use crate::{Delivery, Error, SendResult, Sessions, sessions::tenant_of};

/// How long a bridge may take for one send before another bridge may take over.
pub const SEND_LEASE: Duration = Duration::from_secs(60);

/// Maximum time between claiming a part and committing `sending`. After it another bridge may have
/// claimed the part.
pub const HANDOVER_TIMEOUT: Duration = Duration::from_secs(5);

/// Delay before `sending` is committed again after the database failed.
const RETRY_DELAY: Duration = Duration::from_millis(200);

type ClaimedRow = (Uuid, Uuid, i64, i32, i32);
type ClaimResultRow =
    (Option<Uuid>, Option<Uuid>, Option<Uuid>, Option<i64>, Option<i32>, Option<i32>);
type ContentRow = (
    Uuid,
    Uuid,
    Json<Target>,
    String,
    Option<Json<ChannelAction>>,
    bool,
    Option<String>,
    i32,
    i32,
    Option<Uuid>,
    Option<f64>,
);

/// Number of sends that a bridge can begin.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SendCapacity {
    pub slots: i64,
    /// Maximum number of sends of one account at once.
    pub per_account: i64,
    /// Sends of one tenant at once beyond which it may not take the reserved slots.
    pub per_tenant: i64,
    /// How many of `slots` are for tenants with fewer than `per_tenant` sends.
    pub reserved: i64,
    /// Sends in progress, by account.
    pub used: Vec<(TenantId, AccountId, i64)>,
    /// Accounts that another bridge sends for.
    pub elsewhere: Vec<AccountId>,
}

impl SendCapacity {
    /// Capacity of a bridge that sends nothing yet, all of which one account may use.
    #[must_use]
    pub const fn slots(slots: i64) -> Self {
        Self {
            slots,
            per_account: slots,
            per_tenant: slots,
            reserved: 0,
            used: Vec::new(),
            elsewhere: Vec::new(),
        }
    }
}

/// End of a query for the deliveries of the account `a` that can be sent now.
macro_rules! due {
    () => {
        "from session.deliveries d
         where d.channel = $1 and d.account_id = a.account_id and d.state = 'pending'
           and d.next_at <= clock_timestamp()
           and (d.lease_until is null or d.lease_until < clock_timestamp())
           and not exists (
               select from session.deliveries e
               where e.tenant_id = d.tenant_id and e.session_id = d.session_id
                 and (e.out_seq, e.part) < (d.out_seq, d.part)
                 and e.state in ('pending', 'sending') and (d.is_cosmetic or not e.is_cosmetic))
         order by d.next_at"
    };
}

/// Ends the sends whose bridge was lost: what may be sent again is due, the rest is unknown.
const END_LOST_SENDS: &str = "
    with lost as (
        select tenant_id, session_id, out_seq, part,
               coalesce(unsure_since, lease_until - $3 * interval '1 second') as unsure_since
        from session.deliveries
        where channel = $1 and state = 'sending' and lease_until < clock_timestamp()
        limit 100 for update skip locked),
    judged as (
        select l.*, $2 and ($4::double precision is null
                            or unsure_since + $4 * interval '1 second' > clock_timestamp()) as again
        from lost l),
    ended as (
        update session.deliveries d
        set state = case when l.again then 'pending' else 'unknown' end,
            owner = null, lease_until = null, next_at = clock_timestamp(),
            unsure_since = l.unsure_since,
            finished_at = case when not l.again then clock_timestamp() end,
            reason = 'the process that sent it was lost before the platform''s answer was recorded'
        from judged l
        where d.tenant_id = l.tenant_id and d.session_id = l.session_id
          and d.out_seq = l.out_seq and d.part = l.part
        returning d.tenant_id, d.session_id, d.delivery_id, l.again)
    insert into session.events (tenant_id, family, session_id, name, payload)
    select tenant_id, 'deliveries', session_id, 'DeliverySettled',
           jsonb_build_object('delivery', delivery_id, 'state', 'unknown')
    from ended where not again";

/// Accounts with waiting parts that one claim looks at, after the account `$8`; the next claim goes
/// on behind them. So the work does not grow with the accounts that wait for a later attempt.
const ACCOUNTS_PER_CLAIM: i64 = 200;

/// Due parts whose accounts a claim looks at in any case, oldest first: usually all that are due.
const DUE_PARTS_PER_CLAIM: i64 = 64;

/// Claims due deliveries. The accounts that come first are found before rows are locked, so that the
/// number of locks does not depend on the number of accounts.
///
/// Returns one row for each claimed part, and one row without a part. All have the account at which
/// the next claim begins; null if this one has seen the last.
const CLAIM: &str = concat!(
    "with recursive waiting as (
        (select account_id, 1 as number from session.deliveries
         where channel = $1 and state = 'pending' and account_id > $8
         order by account_id limit 1)
        union all
        select (select d.account_id from session.deliveries d
                where d.channel = $1 and d.state = 'pending' and d.account_id > w.account_id
                order by d.account_id limit 1), w.number + 1
        from waiting w where w.account_id is not null and w.number < $9),
    due as (
        select account_id from session.deliveries
        where channel = $1 and state = 'pending' and next_at <= clock_timestamp()
          and account_id <> all ($14::uuid[])
        order by next_at limit $10),
    accounts as (select account_id from waiting union select account_id from due),
    sends as (
        select * from unnest($11::uuid[], $6::uuid[], $7::bigint[])
            as s (tenant_id, account_id, count)),
    free as (
        select a.account_id, coalesce(s.count, 0) as used, $5 - coalesce(s.count, 0) as free
        from accounts a left join sends s using (account_id)
        where a.account_id is not null and $5 > coalesce(s.count, 0)
          and a.account_id <> all ($14::uuid[])),
    ranked as (
        select a.*, d.next_at, coalesce(t.count, 0) as tenant_used,
               coalesce(t.count, 0) + row_number() over (
                   partition by d.tenant_id order by a.used, d.next_at) as turn
        from free a cross join lateral (
            select tenant_id, next_at ",
    due!(),
    " limit 1) d
        left join (select tenant_id, sum(count)::bigint as count from sends group by 1) t
             using (tenant_id)),
    first as materialized (select * from ranked order by turn, next_at limit $3),
    found as materialized (
        select d.*, a.tenant_used, a.used + row_number() over (
                   partition by d.account_id order by d.next_at) as account_turn
        from first a cross join lateral (
            select tenant_id, session_id, out_seq, part, account_id, next_at ",
    due!(),
    " limit a.free for update skip locked) d),
    turns as (
        select f.*, tenant_used + row_number() over (
                   partition by tenant_id order by account_turn, next_at) as turn
        from found f),
    chosen as (
        select * from (
            select t.*, row_number() over (order by turn, next_at) as number from turns t) numbered
        where number <= $3 - case when turn > $12 then $13 else 0 end),
    claimed as (
        update session.deliveries d
        set owner = $2, lease_until = clock_timestamp() + $4 * interval '1 second'
        from chosen c
        where d.tenant_id = c.tenant_id and d.session_id = c.session_id
          and d.out_seq = c.out_seq and d.part = c.part
        returning d.tenant_id, d.delivery_id, d.out_seq, d.part, d.attempt)
    select (select account_id from waiting where number = $9), c.*
    from (select) one left join claimed c on true"
);

/// Deliveries of replies, from [`Sessions::deliveries`].
#[derive(Debug, Clone, Copy)]
pub struct Deliveries<'a> {
    pub(crate) pools: &'a Pools,
    cursors: &'a Mutex<HashMap<String, Uuid>>,
}

impl Sessions {
    #[must_use]
    pub fn deliveries(&self) -> Deliveries<'_> {
        Deliveries { pools: &self.pools, cursors: &self.delivery_cursors }
    }
}

impl Deliveries<'_> {
    /// Claims due parts of replies on a kind of channel, and commits that they are being sent. A
    /// part waits for the earlier parts of its session, except for those that only decorate a
    /// message.
    ///
    /// The tenant with the fewest sends in progress comes first, and of its accounts the one with
    /// the fewest, so that no backlog delays the replies of another.
    ///
    /// # Errors
    ///
    /// After an error parts may have been claimed; they are due again after [`HANDOVER_TIMEOUT`]. If some
    /// parts were already committed as `sending`, these are returned instead of the error.
    pub async fn claim(
        self,
        channel: &str,
        class: DeliveryClass,
        owner: RunnerId,
        capacity: &SendCapacity,
    ) -> Result<Vec<Delivery>, Error> {
        let window = match class {
            DeliveryClass::Keyed { window } => Some(window),
            DeliveryClass::Reconcilable | DeliveryClass::Plain => None,
        };
        let mut once = self.pools.system_connection().await?;
        holdfast_pg::query(END_LOST_SENDS)
            .bind(channel)
            .bind(class != DeliveryClass::Plain)
            .bind(SEND_LEASE.as_secs_f64())
            .bind(window.map(|window| window.as_secs_f64()))
            .execute(once.conn())
            .await?;
        let used = || capacity.used.iter();
        let from = self.cursors().get(channel).copied().unwrap_or_default();
        let rows: Vec<ClaimResultRow> = holdfast_pg::query_as(CLAIM)
            .bind(channel)
            .bind(owner.as_uuid())
            .bind(capacity.slots)
            .bind(HANDOVER_TIMEOUT.as_secs_f64())
            .bind(capacity.per_account)
            .bind(used().map(|(_, account, _)| account.as_uuid()).collect::<Vec<_>>())
            .bind(used().map(|(_, _, count)| *count).collect::<Vec<_>>())
            .bind(from)
            .bind(ACCOUNTS_PER_CLAIM)
            .bind(DUE_PARTS_PER_CLAIM)
            .bind(used().map(|(tenant, ..)| tenant.as_uuid()).collect::<Vec<_>>())
            .bind(capacity.per_tenant)
            .bind(capacity.reserved)
            .bind(capacity.elsewhere.iter().map(|id| id.as_uuid()).collect::<Vec<_>>())
            .fetch_all(once.conn())
            .await?;
        once.done();
        let next = rows.first().and_then(|row| row.0).unwrap_or_default();
        self.cursors().insert(channel.to_owned(), next);
        let mut claimed: Vec<ClaimedRow> = rows
            .into_iter()
            .filter_map(|(_, tenant, id, seq, part, tried)| {
                Some((tenant?, id?, seq?, part?, tried?))
            })
            .collect();
        claimed.sort_unstable();

        let mut deliveries = Vec::with_capacity(claimed.len());
        for group in claimed.chunk_by(|a, b| a.0 == b.0) {
            match self.begin_sending_repeatedly(tenant_of(group[0].0), owner, group).await {
                Ok(begun) => deliveries.extend(begun),
                Err(error) if deliveries.is_empty() => return Err(error),
                // Parts that are committed as `sending` must be returned, or they would look as if
                // they had been sent.
                Err(error) => {
                    warn!(%error, "some replies that were claimed wait until they are due again");
                    break;
                }
            }
        }
        Ok(deliveries)
    }

    /// Repeats [`begin_sending`](Self::begin_sending) while the database is away, for at most half a
    /// [`SEND_LEASE`]: a lost response would leave parts marked as being sent that are not, and on
    /// most channels they are never sent again.
    async fn begin_sending_repeatedly(
        self,
        tenant: TenantId,
        owner: RunnerId,
        claimed: &[ClaimedRow],
    ) -> Result<Vec<Delivery>, Error> {
        let until = Instant::now() + SEND_LEASE / 2;
        loop {
            match self.begin_sending(tenant, owner, claimed).await {
                Err(error) if error.kind().is_transient() && Instant::now() < until => {
                    sleep(RETRY_DELAY).await;
                }
                begun_or_failed => return begun_or_failed,
            }
        }
    }

    fn cursors(&self) -> MutexGuard<'_, HashMap<String, Uuid>> {
        self.cursors.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Commits that one tenant's claimed parts are being sent, and reads their content.
    ///
    /// Until then the rows are unchanged: if this fails, nothing was sent and the parts are due
    /// again. The attempt is counted here, so that `owner` and `attempt` identify one send.
    /// Idempotent: a repetition also returns the parts that an earlier call committed, whose
    /// response was lost.
    async fn begin_sending(
        self,
        tenant: TenantId,
        owner: RunnerId,
        claimed: &[ClaimedRow],
    ) -> Result<Vec<Delivery>, Error> {
        const SQL: &str = "
            update session.deliveries
            set state = 'sending', attempt = $4 + 1,
                lease_until = clock_timestamp() + $5 * interval '1 second'
            where tenant_id = $1 and delivery_id = $2 and owner = $3
              and lease_until > clock_timestamp()
              and (state = 'pending' and attempt = $4 or state = 'sending' and attempt = $4 + 1)
            returning session_id, run_id, target, body, act, split, trace, attempt,
                      attempt - attempts_before, approval_id,
                      extract(epoch from clock_timestamp() - unsure_since)::double precision";

        let mut tx = self.pools.tenant(tenant).await?;
        let mut deliveries = Vec::with_capacity(claimed.len());
        for (_, id, out_seq, part, tried) in claimed {
            let row: Option<ContentRow> = holdfast_pg::query_as(SQL)
                .bind(tenant.as_uuid())
                .bind(id)
                .bind(owner.as_uuid())
                .bind(tried)
                .bind(SEND_LEASE.as_secs_f64())
                .fetch_optional(tx.conn())
                .await?;
            // The handover took too long, or the session was deleted.
            let Some(row) = row else { continue };
            let (session, run, target, text, act, split, trace, attempt, tries, approval, unsure) =
                row;
            deliveries.push(Delivery {
                tenant,
                id: (*id).into(),
                session: session.into(),
                run: run.into(),
                target: target.0,
                text,
                act: act.map(|act| act.0),
                approval: approval.map(ApprovalId::from),
                split,
                out_seq: *out_seq,
                part: *part,
                attempt,
                tries,
                unsure_for: unsure
                    .map(|secs| Duration::try_from_secs_f64(secs).unwrap_or_default()),
                trace,
            });
        }
        tx.commit().await?;
        Ok(deliveries)
    }

    /// Stores a reply that was split to the platform's size limit: the delivery becomes the first
    /// part, and the others wait behind it. Idempotent.
    ///
    /// If the reply requests an approval, the last part does: everything is shown before it can be
    /// decided.
    ///
    /// # Errors
    ///
    /// [`Error::Fenced`] if another bridge has the delivery.
    pub async fn split(
        self,
        delivery: &Delivery,
        owner: RunnerId,
        parts: &[String],
    ) -> Result<(), Error> {
        const UPDATE_FIRST_PART: &str = "
            update session.deliveries set body = $4, split = true, approval_id = $6
            where tenant_id = $1 and delivery_id = $2 and owner = $3 and attempt = $5
              and state = 'sending'";
        const INSERT_OTHER_PARTS: &str = "
            insert into session.deliveries
                (tenant_id, session_id, out_seq, part, delivery_id, run_id, channel, account_id,
                 target, body, split, trace, approval_id)
            select d.tenant_id, d.session_id, d.out_seq, p.part, p.id, d.run_id, d.channel,
                   d.account_id, d.target, p.body, true, d.trace,
                   case when p.part = cardinality($3) then $6::uuid end
            from session.deliveries d,
                 unnest($3::integer[], $4::uuid[], $5::text[]) as p (part, id, body)
            where d.tenant_id = $1 and d.delivery_id = $2
            on conflict (tenant_id, session_id, out_seq, part) do nothing";

        let Some((first, rest)) = parts.split_first() else { return Ok(()) };
        let approval = delivery.approval.map(ApprovalId::as_uuid);
        let mut tx = self.pools.tenant(delivery.tenant).await?;
        let ours = holdfast_pg::query(UPDATE_FIRST_PART)
            .bind(delivery.tenant.as_uuid())
            .bind(delivery.id.as_uuid())
            .bind(owner.as_uuid())
            .bind(first)
            .bind(delivery.attempt)
            .bind(approval.filter(|_| rest.is_empty()))
            .execute(tx.conn())
            .await?
            .rows_affected();
        if ours == 0 {
            return Err(Error::Fenced { held: i64::from(delivery.attempt) });
        }
        if !rest.is_empty() {
            let count = i32::try_from(rest.len()).unwrap_or(i32::MAX);
            holdfast_pg::query(INSERT_OTHER_PARTS)
                .bind(delivery.tenant.as_uuid())
                .bind(delivery.id.as_uuid())
                .bind((1..=count).collect::<Vec<i32>>())
                .bind(rest.iter().map(|_| DeliveryId::generate().as_uuid()).collect::<Vec<_>>())
                .bind(rest)
                .bind(approval)
                .execute(tx.conn())
                .await?;
        }
        Ok(tx.commit().await?)
    }

    /// Returns the platform's id of the last message that was sent before this delivery, from the
    /// same session to the same chat; `None` if there is none.
    pub async fn previous_platform_id(self, delivery: &Delivery) -> Result<Option<String>, Error> {
        const SQL: &str = "
            select platform_id from session.deliveries
            where tenant_id = $1 and session_id = $2 and (out_seq, part) < ($3, $4)
              and state = 'sent' and platform_id is not null and channel = $5 and account_id = $6
              and target->>'chat' = $7 and (act is null or act->>'act' in ('media', 'poll', 'embed'))
            order by out_seq desc, part desc limit 1";
        let mut tx = self.pools.tenant(delivery.tenant).await?;
        let found: Option<String> = holdfast_pg::query_scalar(SQL)
            .bind(delivery.tenant.as_uuid())
            .bind(delivery.session.as_uuid())
            .bind(delivery.out_seq)
            .bind(delivery.part)
            .bind(&delivery.target.channel)
            .bind(delivery.target.account.as_uuid())
            .bind(&delivery.target.chat)
            .fetch_optional(tx.conn())
            .await?;
        tx.finish_reading();
        Ok(found)
    }

    /// Returns the platform's id of the message that requested an approval; `None` if none was
    /// sent.
    pub async fn approval_request_platform_id(
        self,
        delivery: &Delivery,
        approval: ApprovalId,
    ) -> Result<Option<String>, Error> {
        const SQL: &str = "
            select platform_id from session.deliveries
            where tenant_id = $1 and session_id = $2 and approval_id = $3 and state = 'sent'
              and platform_id is not null
            order by out_seq, part limit 1";
        let mut tx = self.pools.tenant(delivery.tenant).await?;
        let found: Option<String> = holdfast_pg::query_scalar(SQL)
            .bind(delivery.tenant.as_uuid())
            .bind(delivery.session.as_uuid())
            .bind(approval.as_uuid())
            .fetch_optional(tx.conn())
            .await?;
        tx.finish_reading();
        Ok(found)
    }

    /// Records the outcome of an attempt. Returns whether further deliveries of the session can be
    /// sent now.
    ///
    /// A late `sent` may overwrite `unknown`, and `pending` while no other attempt has begun. A
    /// bridge that has lost the delivery can overwrite nothing else.
    ///
    /// # Errors
    ///
    /// After an error the outcome must be recorded again.
    pub async fn record_result(
        self,
        delivery: &Delivery,
        owner: RunnerId,
        sent: SendResult,
    ) -> Result<bool, Error> {
        const SQL: &str = "
            with settled as (
                update session.deliveries
                set state = $4, reason = $5, platform_id = coalesce($6, platform_id),
                    unsure_since = case
                        when $9 then coalesce(unsure_since, lease_until - $10 * interval '1 second')
                        else unsure_since end,
                    next_at = clock_timestamp() + $7 * interval '1 millisecond',
                    owner = null, lease_until = null,
                    finished_at = case when $4 = 'pending' then null else clock_timestamp() end
                where tenant_id = $1 and delivery_id = $2
                  and ((state = 'sending' and owner = $3 and attempt = $8)
                       or (state = 'pending' and attempt = $8 and $4 = 'sent')
                       or (state = 'unknown' and $4 = 'sent'))
                returning session_id),
            event as (
                insert into session.events (tenant_id, family, session_id, name, payload)
                select $1, 'deliveries', session_id, 'DeliverySettled',
                       jsonb_build_object('delivery', $2::uuid, 'state', $4::text)
                from settled where $4 <> 'pending')
            select exists (
                select from session.deliveries d join settled using (session_id)
                where d.tenant_id = $1 and d.state = 'pending' and d.delivery_id <> $2)
            from settled";

        let is_unsure = matches!(sent, SendResult::Unsure { .. });
        let (state, reason, platform_id, after) = match sent {
            SendResult::Sent { platform_id } => {
                (DeliveryState::Sent, None, Some(platform_id), Duration::ZERO)
            }
            SendResult::Retry { after, reason } | SendResult::Unsure { after, reason } => {
                (DeliveryState::Pending, Some(reason), None, after)
            }
            SendResult::Rejected { reason } => {
                (DeliveryState::Dead, Some(reason), None, Duration::ZERO)
            }
            SendResult::Unknown { reason } => {
                (DeliveryState::Unknown, Some(reason), None, Duration::ZERO)
            }
        };
        let mut tx = self.pools.tenant(delivery.tenant).await?;
        let more: Option<bool> = holdfast_pg::query_scalar(SQL)
            .bind(delivery.tenant.as_uuid())
            .bind(delivery.id.as_uuid())
            .bind(owner.as_uuid())
            .bind(state.as_str())
            .bind(reason)
            .bind(platform_id)
            .bind(i64::try_from(after.as_millis()).unwrap_or(i64::MAX))
            .bind(delivery.attempt)
            .bind(is_unsure)
            .bind(SEND_LEASE.as_secs_f64())
            .fetch_optional(tx.conn())
            .await?;
        tx.commit().await?;
        Ok(more.unwrap_or(false) && state != DeliveryState::Pending)
    }
}
