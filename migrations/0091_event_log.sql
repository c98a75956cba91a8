-- The log of tenants' events (decision 0081). The runner with the duty of upkeep moves committed rows
-- of the outboxes session.events and control.tenant_events here, in batches outside of turns.

-- Where the log of each tenant begins and ends. Positions are dense: 1, 2, 3, ...
create table session.event_positions (
    tenant_id   uuid primary key,
    -- Position of the newest event.
    newest      bigint not null default 0,
    -- Events up to here are past their retention and deleted.
    deleted     bigint not null default 0,
    -- Events up to here are published to JetStream.
    published   bigint not null default 0
) with (fillfactor = 70);
create index event_positions_unpublished on session.event_positions (tenant_id)
    where published < newest;

-- Events of one tenant that were logged together, oldest first: one row for many events.
create table session.event_log (
    tenant_id   uuid not null,
    -- Positions of the first and the last event of `events`.
    first       bigint not null,
    last        bigint not null,
    -- Ids, counts and outcomes, never what was said; see `session::LoggedEvent`.
    events      jsonb not null,
    created_at  timestamptz not null default clock_timestamp(),

    primary key (tenant_id, last),
    check (jsonb_array_length(events) = last - first + 1)
);
create index event_log_age on session.event_log (created_at);

-- Rows of session.events that the version before has published and deleted while it ran beside this
-- one. They are logged from here.
create table session.relayed_events (like session.events including defaults);
alter table session.relayed_events add primary key (event_id);

do $$
declare
    name text;
begin
    foreach name in array array['event_positions', 'event_log', 'relayed_events'] loop
        execute format('alter table session.%I enable row level security', name);
        execute format('alter table session.%I force row level security', name);
        execute format('create policy one_tenant on session.%I to holdfast_app using (tenant_id = control.tenant())', name);
        execute format('create policy all_tenants on session.%I to holdfast_system using (true)', name);
        execute format('grant select, delete on session.%I to holdfast_app', name);
        execute format('grant select, insert, update, delete on session.%I to holdfast_system', name);
    end loop;
end $$;
grant insert on session.events to holdfast_system;
-- For what an event tells of a message, a run and a delivery: ids, outcomes and counts.
grant select (message_id, source, run_id) on session.inbox to holdfast_system;
grant select (run_id) on session.deliveries to holdfast_system;
grant select (agent_id) on session.sessions to holdfast_system;
grant select (tenant_id, run_id, session_id, agent_id, outcome, reply_seq, steps, model, input_tokens,
              cached_tokens, output_tokens, cost_micros, messages, started_at, finished_at)
    on session.runs to holdfast_system;

-- Keeps what another than the log's writer takes out of the outbox. Rows that their tenant's role
-- deletes, with a session or with the tenant, are not wanted any more.
create function session.keep_relayed_events() returns trigger language plpgsql as
$$
begin
    if current_user::text like '%system' and coalesce(current_setting('holdfast.event_log', true), '') <> 'on' then
        insert into session.relayed_events select * from gone;
    end if;
    return null;
end
$$;
create trigger keep_relayed after delete on session.events
    referencing old table as gone for each statement execute function session.keep_relayed_events();

-- Events from before the log are not logged.
alter table control.tenant_events add column logged_at timestamptz default now();
alter table control.tenant_events alter column logged_at drop default;
create index tenant_events_unlogged on control.tenant_events (event_id) where logged_at is null;

-- As before, and an event of its own for each changed agent.
create or replace function control.announce_change() returns trigger language plpgsql as
$$
begin
    insert into control.tenant_events (tenant, name, kind, detail)
    select new.tenant_id, t.name, 'config.changed', jsonb_build_object(
        'action', new.action, 'method', new.method, 'request_id', new.request_id)
    from control.tenants t where t.tenant_id = new.tenant_id;
    if new.action like 'agent.%' then
        insert into control.tenant_events (tenant, name, kind, detail)
        select new.tenant_id, t.name, case
                when new.action = 'agent.delete' then 'agent.deleted'
                when jsonb_path_exists(new.changes, '$[*] ? (@.table == "control.agents" && !exists(@.before))')
                    then 'agent.created'
                else 'agent.changed'
            end, jsonb_build_object('agent', new.subject, 'request_id', new.request_id)
        from control.tenants t where t.tenant_id = new.tenant_id;
    end if;
    return null;
end
$$;
