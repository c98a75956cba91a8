-- Subagents: who asked for them, what bounds them, and whether their end was announced.

create table session.subagents (
    tenant_id    uuid not null,
    -- Its own session.
    session_id   uuid not null,
    -- The session that asked for it, and is told of its end.
    parent_id    uuid not null,
    label        text not null check (length(label) <= 200),
    task         text not null check (length(task) <= 100000),
    -- Whether its session goes once its end was announced.
    cleanup      text not null check (cleanup in ('keep', 'delete')),
    max_steps    integer check (max_steps > 0),
    max_tokens   bigint check (max_tokens > 0),
    deadline_at  timestamptz not null,
    outcome      text check (outcome in ('ok', 'error', 'timeout', 'unknown')),
    result       text not null default '',
    error        text not null default '',
    tokens       bigint not null default 0,
    started_at   timestamptz not null default clock_timestamp(),
    finished_at  timestamptz,
    announced_at timestamptz,

    primary key (session_id, tenant_id)
);
create index subagents_open on session.subagents (session_id) where announced_at is null;
create index subagents_children on session.subagents (parent_id) where outcome is null;

alter table session.subagents enable row level security;
alter table session.subagents force row level security;
create policy one_tenant on session.subagents to holdfast_app using (tenant_id = control.tenant());
create policy all_tenants on session.subagents for select to holdfast_system using (true);
grant select, insert, update, delete on session.subagents to holdfast_app;
grant select (tenant_id, session_id, deadline_at, outcome, announced_at) on session.subagents
    to holdfast_system;
