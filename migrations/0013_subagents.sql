-- Subagents: what they were given, and who waits for their end. Chains: who does what after whom,
-- and how far each run of one has come.

alter table session.subagents
    -- The set of tools that it was given, by name.
    add column bundle        text not null default '' check (length(bundle) <= 128),
    -- What that came to; null is all that its agent has.
    add column tools         text[],
    -- Where its file tools may look and change; null is everywhere.
    add column fs_read       text[],
    add column fs_write      text[],
    -- Until when a call waits for its end: that is told then, and not the session.
    add column awaited_until timestamptz,
    -- When that call learned of it.
    add column heard_at      timestamptz,
    -- The run of a chain that it belongs to, and where in it.
    add column chain_run_id  uuid,
    add column stage         integer,
    add column step          text;
create index subagents_chain on session.subagents (chain_run_id) where chain_run_id is not null;
grant select (awaited_until, heard_at) on session.subagents to holdfast_system;

create table control.chains (
    tenant_id  uuid not null references control.tenants on delete cascade,
    name       text not null check (length(name) between 1 and 64),
    -- As `types::Chain`.
    spec       jsonb not null,
    version    bigint not null default 1,
    created_at timestamptz not null default clock_timestamp(),
    updated_at timestamptz not null default clock_timestamp(),

    primary key (tenant_id, name)
);
alter table control.chains enable row level security;
alter table control.chains force row level security;
create policy one_tenant on control.chains to holdfast_app using (tenant_id = control.tenant());
grant select, insert, update, delete on control.chains to holdfast_app;

create table session.chain_runs (
    tenant_id   uuid not null,
    run_id      uuid not null,
    -- The session that asked for it, and is told of its end.
    session_id  uuid not null,
    name        text not null check (length(name) <= 64),
    -- The chain as it was then; as `types::Chain`.
    spec        jsonb not null,
    input       text not null check (length(input) <= 100000),
    -- The stage that is under way.
    stage       integer not null default 0 check (stage >= 0),
    outcome     text check (outcome in ('ok', 'error')),
    started_at  timestamptz not null default clock_timestamp(),
    finished_at timestamptz,

    primary key (run_id, tenant_id)
);
create index chain_runs_of on session.chain_runs (tenant_id, session_id, started_at desc);
alter table session.chain_runs enable row level security;
alter table session.chain_runs force row level security;
create policy one_tenant on session.chain_runs to holdfast_app using (tenant_id = control.tenant());
grant select, insert, update, delete on session.chain_runs to holdfast_app;
