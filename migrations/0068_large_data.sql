-- no-transaction
-- Fills what 0061 added, in batches, and creates indexes while rows are written. Each statement may
-- be run again.

-- The owner of the tables is subject to their policies otherwise, where it is no superuser.
alter table session.sessions no force row level security;
-- next statement
alter table session.session_lease no force row level security;
-- next statement
alter table session.tenant_flight no force row level security;

-- next statement
-- Turns of subagents (1), jobs and heartbeats (2) run after those that a person waits for.
do $$
declare
    last uuid := '00000000-0000-0000-0000-000000000000';
    ids  uuid[];
begin
    loop
        select array_agg(session_id order by session_id) into ids
        from (select session_id from session.sessions
              where session_id > last order by session_id limit 5000) batch;
        exit when ids is null;
        update session.session_lease l set priority = case s.kind when 'subagent' then 1 else 2 end
        from session.sessions s
        where s.session_id = any(ids) and s.kind in ('subagent', 'cron', 'heartbeat')
          and l.tenant_id = s.tenant_id and l.session_id = s.session_id and l.priority = 0;
        last := ids[cardinality(ids)];
        commit;
    end loop;
end $$;

-- next statement
-- Numbers of sessions, tenant by tenant. The rows that the trigger of 0061 changes are locked before
-- the sessions are counted: one that is made or deleted meanwhile waits, and is counted after. Rows
-- that did not exist then hold only what the trigger has counted.
do $$
declare
    tenant uuid := '00000000-0000-0000-0000-000000000000';
    locked integer[];
begin
    loop
        select tenant_id into tenant from session.sessions
        where tenant_id > tenant and kind <> '' order by tenant_id limit 1;
        exit when not found;
        insert into session.tenant_flight (tenant_id, shard)
        select distinct tenant_id, session.shard(session_id) from session.sessions
        where tenant_id = tenant and kind <> '' order by 2
        on conflict do nothing;
        select array_agg(shard) into locked
        from (select shard from session.tenant_flight where tenant_id = tenant
              order by shard for update) rows;
        update session.tenant_flight f set sessions = coalesce(c.sessions, 0)
        from unnest(locked) as l (shard) left join (
            select session.shard(session_id) as shard, count(*) as sessions
            from session.sessions where tenant_id = tenant and kind <> '' group by 1) c using (shard)
        where f.tenant_id = tenant and f.shard = l.shard;
        commit;
    end loop;
end $$;

-- next statement
alter table session.tenant_flight force row level security;
-- next statement
alter table session.session_lease force row level security;
-- next statement
alter table session.sessions force row level security;

-- Claims by priority, and the queue of a tenant.
-- next statement
create index concurrently if not exists lease_admitted_by_priority
    on session.session_lease (priority, fair_key)
    where state = 'READY' and fair_key is not null and paused is null;
-- next statement
create index concurrently if not exists lease_queued_by_priority
    on session.session_lease (tenant_id, priority, ready_at)
    where state = 'READY' and fair_key is null and paused is null;

-- Deliveries are claimed account by account.
-- next statement
create index concurrently if not exists deliveries_due_by_account
    on session.deliveries (channel, account_id, next_at) where state = 'pending';
-- Counted for metrics.
-- next statement
create index concurrently if not exists deliveries_failed
    on session.deliveries (state) where state in ('unknown', 'dead');

-- Old rows of a tenant.
-- next statement
create index concurrently if not exists inbox_old
    on session.inbox (tenant_id, finished_at) where state in ('done', 'dead');
-- next statement
create index concurrently if not exists deliveries_old
    on session.deliveries (tenant_id, finished_at) where state in ('sent', 'unknown', 'dead');
-- next statement
create index concurrently if not exists tombstones_old on session.tombstones (tenant_id, until);
-- next statement
create index concurrently if not exists subagents_old
    on session.subagents (tenant_id, announced_at) where announced_at is not null;
-- next statement
create index concurrently if not exists approvals_old on session.approvals (tenant_id, expires_at);
-- next statement
create index concurrently if not exists system_events_old
    on session.system_events (tenant_id, gone_at) where gone_at is not null;
-- next statement
create index concurrently if not exists spending_old on session.spending (tenant_id, day);
-- By creation, which never changes: an index on `updated_at` would cost each turn of every session.
-- next statement
create index concurrently if not exists sessions_ephemeral
    on session.sessions (tenant_id, created_at) where kind = 'api' and label = 'ephemeral';
-- next statement
create index concurrently if not exists sessions_of_heartbeats
    on session.sessions (tenant_id, session_id) where kind = 'heartbeat';

-- The version before uses the new indexes instead of these.
-- next statement
drop index concurrently if exists session.inbox_finished;
-- next statement
drop index concurrently if exists session.deliveries_finished;
-- next statement
drop index concurrently if exists session.tombstones_until;
-- next statement
drop index concurrently if exists session.system_events_gone;
