-- What this adds to large tables is filled and indexed by 0068, in batches.

-- Turns that a person waits for run before those of subagents (1), and these before those of jobs
-- and heartbeats (2).
alter table session.session_lease add column priority smallint not null default 0;

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
