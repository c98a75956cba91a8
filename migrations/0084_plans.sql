-- Plans with limits, the life of tenants, and the events that tell of it (decision 0076).

-- Named sets of limits of the installation.
create table control.plans (
    name        text primary key check (name ~ '^[a-z0-9][a-z0-9_-]{0,63}$'),
    description text not null default '' check (length(description) <= 500),
    -- See `directory::PlanLimits`; an absent limit is the default of the installation.
    limits      jsonb not null default '{}',
    version     bigint not null default 1,
    updated_at  timestamptz not null default now()
);
alter table control.plans enable row level security;
alter table control.plans force row level security;
create policy all_plans on control.plans for select to holdfast_app using (true);
create policy all_plans_of_all on control.plans to holdfast_system using (true);
grant select on control.plans to holdfast_app, holdfast_system;
grant insert, update, delete on control.plans to holdfast_system;

alter table control.tenants
    add column plan text,
    -- Version of the plan whose limits are in effect.
    add column plan_version bigint,
    -- The limits of the plan, as they are in effect. Those with a column of their own (rate, and cap
    -- and max_sessions of session.tenant_queue) are copied there.
    add column limits jsonb not null default '{}',
    -- Limits that were set for this tenant alone; its plan does not change them.
    add column own_limits text[] not null default '{}',
    -- When it is suspended by itself.
    add column expires_at timestamptz;
create index tenants_of_plan on control.tenants (plan) where plan is not null;
grant select (plan, plan_version, limits, own_limits, expires_at) on control.tenants to holdfast_system;

alter table session.tenant_queue
    -- No session of the tenant is admitted.
    add column suspended boolean not null default false,
    add column open_cap  integer generated always as (case when suspended then 0 else cap end) stored;
-- Jobs of a suspended tenant keep their slots and are not due.
alter table schedule.jobs add column suspended boolean not null default false;
grant select (suspended) on schedule.jobs to holdfast_system;

-- A plan that tenants have cannot be deleted, and the plan of a tenant exists. Not a foreign key: the
-- owner of the tables, who would check it, sees no row of a tenant.
create function control.check_plan() returns trigger language plpgsql as
$$
begin
    if tg_op = 'DELETE' then
        perform pg_advisory_xact_lock(hashtext('control.plans'));
        if exists (select from control.tenants where plan = old.name) then
            raise exception 'tenants have this plan' using errcode = '23503', constraint = 'plans_in_use';
        end if;
        return old;
    end if;
    perform pg_advisory_xact_lock_shared(hashtext('control.plans'));
    if not exists (select from control.plans where name = new.plan) then
        raise exception 'there is no such plan' using errcode = '23503', constraint = 'tenants_plan';
    end if;
    return new;
end
$$;
create trigger plan_is_unused before delete on control.plans
    for each row execute function control.check_plan();
create trigger plan_exists before insert or update of plan on control.tenants
    for each row when (new.plan is not null) execute function control.check_plan();

-- Puts the limits of a tenant's plan into effect, except those that the tenant has of its own.
create function control.apply_plan(tenant uuid) returns void language plpgsql as
$$
declare
    l jsonb;
    own text[];
begin
    update control.tenants t
    set limits = coalesce(p.limits, '{}'), plan_version = p.version,
        rate = case when 'calls_per_minute' = any(t.own_limits) then t.rate
                    else coalesce((p.limits ->> 'calls_per_minute')::integer, 6000) end
    from (select) one left join control.plans p
        on p.name = (select plan from control.tenants where tenant_id = tenant)
    where t.tenant_id = tenant
    returning t.limits, t.own_limits into l, own;
    insert into session.tenant_queue as q (tenant_id, cap, max_sessions)
    values (tenant, coalesce((l ->> 'parallel_runs')::integer, 64),
            coalesce((l ->> 'sessions')::integer, 1000000))
    on conflict (tenant_id) do update
        set cap = case when 'parallel_runs' = any(own) then q.cap else excluded.cap end,
            max_sessions = case when 'sessions' = any(own) then q.max_sessions else excluded.max_sessions end;
end
$$;

-- A limit of a tenant; null for none.
create function control.tenant_limit(tenant uuid, wanted text) returns bigint language sql stable as
    $$ select (limits ->> wanted)::bigint from control.tenants where tenant_id = tenant $$;

-- A suspended tenant has no session admitted and no job due; what waits goes on when it is active.
create function control.apply_tenant_state() returns trigger language plpgsql as
$$
declare
    held boolean := new.state = 'suspended';
    change text := current_setting('holdfast.change', true);
begin
    -- The audit tells of the tenant's state, not of each job.
    perform set_config('holdfast.change', '', true);
    insert into session.tenant_queue (tenant_id, suspended) values (new.tenant_id, held)
    on conflict (tenant_id) do update set suspended = excluded.suspended;
    update schedule.jobs set suspended = held where tenant_id = new.tenant_id and suspended <> held;
    if held then
        with waiting as (
            select session_id from session.session_lease
            where tenant_id = new.tenant_id and state = 'READY' and fair_key is not null
              and paused is null
            order by session_id for update skip locked),
        moved as (
            update session.session_lease l set fair_key = null
            from waiting w where l.tenant_id = new.tenant_id and l.session_id = w.session_id
            returning 1)
        update session.tenant_flight set in_flight = in_flight - (select count(*) from moved)
        where tenant_id = new.tenant_id and shard = (
            select min(shard) from session.tenant_flight where tenant_id = new.tenant_id);
    end if;
    perform set_config('holdfast.change', coalesce(change, ''), true);
    return null;
end
$$;
create trigger state_changed after update of state on control.tenants
    for each row when (old.state is distinct from new.state)
    execute function control.apply_tenant_state();

-- As before, with the cap of a suspended tenant 0.
create or replace function session.place(tenant uuid, turn bigint, out fair_key bigint, out step bigint, out room boolean)
    language sql stable as
$$
    select greatest(f.vfinish, (select last_value from session.vclock)),
           turn / coalesce(q.weight, 1),
           f.in_flight < coalesce(q.open_cap, 64)
    from (select coalesce(sum(in_flight), 0) as in_flight, coalesce(max(vfinish), 0) as vfinish
          from session.tenant_flight where tenant_id = tenant) f
    left join session.tenant_queue q on q.tenant_id = tenant
$$;
create or replace function session.has_background_room(tenant uuid, leaving integer) returns boolean
    language sql stable as
$$
    select f.in_flight - leaving < coalesce(q.open_cap, 64) - coalesce(q.open_cap, 64) / 4
    from (select coalesce(sum(in_flight), 0) as in_flight
          from session.tenant_flight where tenant_id = tenant) f
    left join session.tenant_queue q on q.tenant_id = tenant
$$;
-- Whether a session that ends its turn may give its slot in flight to another: false above the cap,
-- which may have been lowered.
create function session.keeps_slot(tenant uuid) returns boolean language sql stable as
$$
    select f.in_flight <= coalesce(q.open_cap, 64)
    from (select coalesce(sum(in_flight), 0) as in_flight
          from session.tenant_flight where tenant_id = tenant) f
    left join session.tenant_queue q on q.tenant_id = tenant
$$;

-- Messages that a turn answered.
alter table session.runs add column messages integer not null default 0;

-- Commands that agents have begun, by UTC day.
create table session.command_counts (
    tenant_id   uuid not null,
    day         date not null,
    agent_id    uuid not null,
    commands    bigint not null,

    primary key (tenant_id, day, agent_id)
) with (fillfactor = 70);
-- The most that the files of an agent had, by UTC day.
create table workspace.storage_days (
    tenant_id   uuid not null,
    day         date not null,
    agent_id    uuid not null,
    bytes       bigint not null,

    primary key (tenant_id, day, agent_id)
) with (fillfactor = 70);
create index trees_of_tenant on workspace.trees (tenant_id);
-- Warnings and events about limits that were given, each once in a period.
create table control.limit_notices (
    tenant_id   uuid not null references control.tenants on delete cascade,
    limit_name  text not null check (octet_length(limit_name) <= 64),
    -- A UTC day or month: 2026-11-22, 2026-11.
    period      text not null check (octet_length(period) <= 10),
    level       text not null check (level in ('warning', 'exceeded')),
    created_at  timestamptz not null default clock_timestamp(),

    primary key (tenant_id, limit_name, period, level)
);
do $$
declare
    name text;
begin
    foreach name in array array['session.command_counts', 'workspace.storage_days', 'control.limit_notices'] loop
        execute format('alter table %s enable row level security', name);
        execute format('alter table %s force row level security', name);
        execute format('create policy one_tenant on %s to holdfast_app using (tenant_id = control.tenant())', name);
        execute format('create policy all_tenants on %s to holdfast_system using (true)', name);
        execute format('grant select, insert, update, delete on %s to holdfast_app', name);
        execute format('grant select, delete on %s to holdfast_system', name);
    end loop;
end $$;
grant insert, update on workspace.storage_days to holdfast_system;
grant select (tenant_id, agent_id, bytes) on workspace.trees to holdfast_system;
grant select (scope, tokens, micros) on session.spending to holdfast_system;

-- Events of tenants: a log, and the outbox from which they are published. The tenant's id has no
-- foreign key and another name, since the rows outlive a tenant that is deleted.
create table control.tenant_events (
    event_id    bigint generated always as identity primary key,
    tenant      uuid not null,
    name        text not null,
    kind        text not null check (octet_length(kind) <= 64),
    -- Names and numbers, never what was said.
    detail      jsonb not null default '{}',
    created_at  timestamptz not null default clock_timestamp(),
    published_at timestamptz
);
create index tenant_events_of on control.tenant_events (tenant, event_id);
create index tenant_events_unpublished on control.tenant_events (event_id) where published_at is null;
alter table control.tenant_events enable row level security;
alter table control.tenant_events force row level security;
create policy one_tenant on control.tenant_events to holdfast_app using (tenant = control.tenant());
create policy all_tenants on control.tenant_events to holdfast_system using (true);
grant select, insert on control.tenant_events to holdfast_app;
grant select, update, delete on control.tenant_events to holdfast_system;

-- Each change of settings that the audit records is an event too, without its subject, which may be
-- a person. The tenant's own are written by the
-- operations on tenants.
create function control.announce_change() returns trigger language plpgsql as
$$
begin
    insert into control.tenant_events (tenant, name, kind, detail)
    select new.tenant_id, t.name, 'config.changed', jsonb_build_object(
        'action', new.action, 'method', new.method, 'request_id', new.request_id)
    from control.tenants t where t.tenant_id = new.tenant_id;
    return null;
end
$$;
create trigger announce_change after insert on control.audit
    for each row when (new.outcome = 'ok' and new.changes is not null and not new.action like 'tenant.%')
    execute function control.announce_change();

-- Limits that were set before there were plans are the tenant's own.
alter table control.tenants no force row level security;
alter table session.tenant_queue no force row level security;
alter table schedule.jobs no force row level security;
update control.tenants t
set own_limits = array_remove(array[
        case when t.rate <> 6000 then 'calls_per_minute' end,
        case when q.cap <> 64 then 'parallel_runs' end,
        case when q.max_sessions <> 1000000 then 'sessions' end], null)
from control.tenants o left join session.tenant_queue q on q.tenant_id = o.tenant_id
where o.tenant_id = t.tenant_id;
insert into session.tenant_queue (tenant_id, suspended)
select tenant_id, true from control.tenants where state = 'suspended'
on conflict (tenant_id) do update set suspended = true;
update schedule.jobs set suspended = true
where tenant_id in (select tenant_id from control.tenants where state = 'suspended');
alter table schedule.jobs force row level security;
alter table session.tenant_queue force row level security;
alter table control.tenants force row level security;

-- As find_key and find_node, with how many calls the tenant may have open. The version before calls
-- those while it runs beside this one, and its prepared statements fail if their result changes.
create function control.find_key_with_limits(wanted uuid)
    returns table (
        tenant_id uuid, name text, digest bytea, scopes text[], rate integer,
        live boolean, tenant_state text, concurrent_calls bigint
    )
    language sql stable security definer set search_path = pg_catalog as
$$
    select k.tenant_id, k.name, k.digest, k.scopes, t.rate,
           k.revoked_at is null and (k.expires_at is null or k.expires_at > now()), t.state,
           (t.limits ->> 'concurrent_calls')::bigint
    from control.keys k join control.tenants t using (tenant_id)
    where k.key_id = wanted
$$;
revoke all on function control.find_key_with_limits(uuid) from public;
grant execute on function control.find_key_with_limits(uuid) to holdfast_system;
create function control.find_node_with_limits(wanted uuid)
    returns table (
        tenant_id uuid, name text, digest bytea, rate integer, live boolean, tenant_state text,
        concurrent_calls bigint
    )
    language sql stable security definer set search_path = pg_catalog as
$$
    select n.tenant_id, n.name, n.digest, t.rate, n.revoked_at is null, t.state,
           (t.limits ->> 'concurrent_calls')::bigint
    from control.nodes n join control.tenants t using (tenant_id)
    where n.node_id = wanted
$$;
revoke all on function control.find_node_with_limits(uuid) from public;
grant execute on function control.find_node_with_limits(uuid) to holdfast_system;
