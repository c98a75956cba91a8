-- Heartbeats: which of them are to be looked at anew, and what came of the last ones.

-- Agents whose HEARTBEAT.md or settings have changed: whether their hearts beat is decided by a
-- scheduler, which takes the row away. Nothing that anybody said.
create table schedule.heartbeat_marks (
    tenant_id  uuid not null,
    agent_id   uuid not null,
    -- Grows with each change, so that one that comes meanwhile is not lost.
    version    bigint not null default 1,
    -- A scheduler looks at it, until then.
    held_until timestamptz,
    marked_at  timestamptz not null default clock_timestamp(),

    primary key (agent_id, tenant_id)
);

-- What came of each: the last hundred of an agent.
create table schedule.heartbeat_events (
    tenant_id   uuid not null,
    agent_id    uuid not null,
    event_id    bigint generated always as identity,
    -- The slot of its firing, by which it is told once.
    slot        text not null check (octet_length(slot) <= 64),
    at          timestamptz not null,
    status      text not null check (status in ('sent', 'ok-empty', 'ok-token', 'skipped', 'failed')),
    reason      text check (length(reason) <= 1000),
    channel     text,
    recipient   text,
    -- The beginning of what was said.
    preview     text check (length(preview) <= 100),
    duration_ms bigint not null check (duration_ms >= 0),
    has_media   boolean not null default false,
    run_id      uuid,

    primary key (agent_id, event_id, tenant_id),
    constraint heartbeat_events_slot_key unique (agent_id, slot, tenant_id)
);

do $$
declare
    name text;
begin
    foreach name in array array['heartbeat_marks', 'heartbeat_events'] loop
        execute format('alter table schedule.%I enable row level security', name);
        execute format('alter table schedule.%I force row level security', name);
        execute format(
            'create policy one_tenant on schedule.%I to holdfast_app using (tenant_id = control.tenant())',
            name);
        execute format('grant select, insert, update, delete on schedule.%I to holdfast_app', name);
    end loop;
end $$;
create policy all_tenants on schedule.heartbeat_marks to holdfast_system using (true);
grant select, update, delete on schedule.heartbeat_marks to holdfast_system;

-- Whoever changes the file or the settings marks the agent, in the same transaction. The function's
-- owner writes, since a tree that goes takes its files with it under its owner's name.
create policy by_change on schedule.heartbeat_marks to current_user using (true) with check (true);
create function schedule.mark_heartbeat() returns trigger
    language plpgsql security definer set search_path = pg_catalog as
$$
begin
    insert into schedule.heartbeat_marks as m (tenant_id, agent_id)
    select coalesce(new.tenant_id, old.tenant_id), coalesce(new.agent_id, old.agent_id)
    on conflict (agent_id, tenant_id) do update
        set version = m.version + 1, marked_at = clock_timestamp();
    return null;
end
$$;
revoke all on function schedule.mark_heartbeat() from public;

create trigger heartbeat_written after insert on workspace.files
    for each row when (new.path = 'HEARTBEAT.md') execute function schedule.mark_heartbeat();
create trigger heartbeat_changed after update of hash on workspace.files
    for each row when (new.path = 'HEARTBEAT.md' and new.hash is distinct from old.hash)
    execute function schedule.mark_heartbeat();
create trigger heartbeat_removed after delete on workspace.files
    for each row when (old.path = 'HEARTBEAT.md') execute function schedule.mark_heartbeat();
create trigger heartbeat_set after update of settings on control.agents
    for each row when (new.settings -> 'heartbeat' is distinct from old.settings -> 'heartbeat')
    execute function schedule.mark_heartbeat();

-- An agent's conversations: where it was last spoken to.
create index sessions_of_agent on session.sessions (agent_id, tenant_id);
