-- Time: jobs, the firings of their slots, and what became of those.
-- Schema `schedule` is owned by crates/jobs.
--
-- What says *when* (kind, spec, due_at) is seen by every scheduler; what says *what* (name, payload)
-- by its tenant alone. Indexes begin with what is selective; those that begin with the tenant are
-- for lists, and only a query that says their condition can use them.

create schema schedule;
grant usage on schema schedule to holdfast_app, holdfast_system;

create table schedule.jobs (
    tenant_id        uuid not null,
    job_id           uuid not null,
    -- What its maker calls it; an import brings its own.
    external_id      text not null check (octet_length(external_id) between 1 and 256),
    -- What lists show, and what people type.
    short_id         text not null generated always as (right(job_id::text, 8)) stored,
    kind             text not null check (kind in ('cron', 'every', 'at', 'heartbeat', 'reminder', 'timer')),
    agent_id         uuid not null,
    -- The user whose it is; null is the tenant's own.
    owner            text check (octet_length(owner) between 1 and 256),
    name             text not null default '' check (length(name) <= 200),
    description      text not null default '' check (length(description) <= 2000),
    -- When, as the kind says it. Nothing that anybody said.
    spec             jsonb not null check (octet_length(spec::text) <= 16384),
    -- What is done then.
    payload          jsonb not null check (octet_length(payload::text) <= 131072),
    session_target   text check (session_target in ('main', 'isolated')),
    wake_mode        text check (wake_mode in ('now', 'next-heartbeat')),
    isolation        jsonb check (octet_length(isolation::text) <= 16384),
    -- A slot that comes while an earlier one runs is skipped, waits for its end, or runs beside it.
    overlap          text not null default 'skip' check (overlap in ('skip', 'queue', 'allow')),
    delete_after_run boolean not null default false,
    state            text not null default 'active' check (state in ('active', 'paused', 'done', 'broken')),
    -- The next slot, and when it is due: that may be later, by a jitter or a back-off.
    slot_at          timestamptz,
    due_at           timestamptz,
    -- Which firing is out or runs, unless the job may overlap; past this time it counts no more.
    running_slot     text,
    running_until    timestamptz,
    -- How many lines its log ever had.
    logged           bigint not null default 0,
    -- Errors one after another.
    errors           integer not null default 0,
    last_at          timestamptz,
    last_status      text check (last_status in ('ok', 'error', 'skipped')),
    last_class       text,
    last_ms          bigint,
    version          bigint not null default 1,
    created_at       timestamptz not null default clock_timestamp(),
    updated_at       timestamptz not null default clock_timestamp(),

    primary key (job_id, tenant_id),
    constraint jobs_external_key unique (external_id, tenant_id),
    constraint jobs_due_whole check ((slot_at is null) = (due_at is null)),
    constraint jobs_due_active check (due_at is null or state = 'active')
) with (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 500);
create index jobs_due on schedule.jobs (due_at) where due_at is not null;
create index jobs_listed on schedule.jobs (tenant_id, job_id) where kind <> '';
create index jobs_of_agent on schedule.jobs (agent_id, job_id);
create index jobs_of_owner on schedule.jobs (owner, job_id) where owner is not null;
create index jobs_short on schedule.jobs (short_id);
create index jobs_done on schedule.jobs (updated_at) where state = 'done';

-- One row for each slot that is to fire: that it is there is why the slot cannot fire twice.
-- No foreign key, here and below: its check would cost each firing a look-up, and jobs are only
-- ever removed whole, by crates/jobs.
create table schedule.firings (
    tenant_id    uuid not null,
    job_id       uuid not null,
    -- A time, a time's retry, or somebody's "now"; see `jobs::Slot`.
    slot         text not null check (octet_length(slot) <= 64),
    slot_at      timestamptz not null,
    origin       text not null check (origin in ('due', 'forced', 'backfill', 'retry')),
    state        text not null default 'pending' check (state in ('pending', 'delivered', 'done', 'refused')),
    -- How often it was handed out: who holds an earlier number holds nothing.
    attempts     integer not null default 0,
    -- Somebody has it, until `offer_at`.
    held         boolean not null default false,
    -- How many of those who had it were never heard of again.
    lost         integer not null default 0,
    -- When it may be handed out (again); null waits for the end of the one that runs.
    offer_at     timestamptz,
    -- Until when what it became may run.
    until        timestamptz,
    -- What it became.
    run_id       uuid,
    created_at   timestamptz not null default clock_timestamp(),
    delivered_at timestamptz,
    closed_at    timestamptz,

    primary key (job_id, slot, tenant_id)
) with (fillfactor = 80, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 500);
create index firings_offered on schedule.firings (offer_at) where state = 'pending';
create index firings_waiting on schedule.firings (job_id, slot_at) where state = 'pending';
create index firings_running on schedule.firings (until) where state = 'delivered';
create index firings_of_run on schedule.firings (run_id) where run_id is not null;

-- The log: the last hundred of each job. Never what was said, only how it went.
create table schedule.runs (
    tenant_id   uuid not null,
    job_id      uuid not null,
    n           bigint not null,
    -- Null for slots that were skipped: those from `slot_at` to `slot_last`.
    slot        text,
    slot_at     timestamptz not null,
    slot_last   timestamptz not null,
    -- How many; null if nobody counted them.
    slots       integer check (slots > 0),
    origin      text not null,
    status      text not null check (status in ('ok', 'error', 'skipped')),
    class       text check (class ~ '^[a-z][a-z0-9_.-]{0,63}$'),
    duration_ms bigint check (duration_ms >= 0),
    run_id      uuid,
    finished_at timestamptz not null default clock_timestamp(),

    primary key (job_id, n, tenant_id)
);

do $$
declare
    name text;
begin
    foreach name in array array['jobs', 'firings', 'runs'] loop
        execute format('alter table schedule.%I enable row level security', name);
        execute format('alter table schedule.%I force row level security', name);
        execute format(
            'create policy one_tenant on schedule.%I to holdfast_app using (tenant_id = control.tenant())',
            name);
        execute format('create policy all_tenants on schedule.%I to holdfast_system using (true)', name);
        execute format('grant select, insert, update, delete on schedule.%I to holdfast_app', name);
    end loop;
end $$;

grant select (tenant_id, job_id, kind, spec, overlap, delete_after_run, state, slot_at, due_at, running_slot,
              running_until, logged, errors, last_at, last_status, last_class, last_ms, updated_at)
    on schedule.jobs to holdfast_system;
grant update (state, slot_at, due_at, running_slot, running_until, logged, errors, last_at, last_status,
              last_class, last_ms, updated_at)
    on schedule.jobs to holdfast_system;
grant delete on schedule.jobs to holdfast_system;
grant select, insert, update, delete on schedule.firings to holdfast_system;
grant select, insert, delete on schedule.runs to holdfast_system;
