-- Deliveries are claimed account by account.
create index deliveries_due_by_account on session.deliveries (channel, account_id, next_at)
    where state = 'pending';
drop index session.deliveries_due;

-- Turns that a person waits for run before those of subagents (1), and these before those of jobs
-- and heartbeats (2).
alter table session.session_lease add column priority smallint not null default 0;
update session.session_lease l set priority = case s.kind when 'subagent' then 1 else 2 end
from session.sessions s
where s.tenant_id = l.tenant_id and s.session_id = l.session_id
  and s.kind in ('subagent', 'cron', 'heartbeat');
create index lease_admitted_by_priority on session.session_lease (priority, fair_key)
    where state = 'READY' and fair_key is not null and paused is null;
create index lease_queued_by_priority on session.session_lease (tenant_id, priority, ready_at)
    where state = 'READY' and fair_key is null and paused is null;

-- What only decorates a message (a reaction, buttons that are removed) holds up no reply.
alter table session.deliveries add column is_cosmetic boolean not null default false;
grant select (is_cosmetic) on session.deliveries to holdfast_system;

-- A tenant's sessions are limited. Their number is kept beside the other counters of a tenant, by a
-- trigger, so that processes of the version before count too.
alter table session.tenant_queue
    add column max_sessions integer not null default 1000000 check (max_sessions > 0);
alter table session.tenant_flight
    -- As `in_flight`: only the sum of a tenant's rows means anything.
    add column sessions bigint not null default 0;

create function session.count_sessions() returns trigger language plpgsql as
$$
declare
    direction integer := case tg_op when 'INSERT' then 1 else -1 end;
begin
    insert into session.tenant_flight as f (tenant_id, shard, sessions)
    select tenant_id, session.shard(session_id), direction * count(*) from changed
    group by 1, 2 order by 1, 2
    on conflict (tenant_id, shard) do update set sessions = f.sessions + excluded.sessions;
    return null;
end
$$;
create trigger sessions_made after insert on session.sessions
    referencing new table as changed for each statement execute function session.count_sessions();
create trigger sessions_deleted after delete on session.sessions
    referencing old table as changed for each statement execute function session.count_sessions();

insert into session.tenant_flight as f (tenant_id, shard, sessions)
select tenant_id, session.shard(session_id), count(*) from session.sessions group by 1, 2
on conflict (tenant_id, shard) do update set sessions = excluded.sessions;
