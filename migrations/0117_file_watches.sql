-- Sessions that wait for a change of their agent's files
-- (docs/decisions/0100-shared-lists-and-moving-agents.md). The revisions are the queue: a session is told of
-- those after `revision`.
create table workspace.file_watches (
    tenant_id  uuid not null,
    session_id uuid not null,
    agent_id   uuid not null,
    -- Which files the conversation sees, as the runner has stored it.
    view       jsonb not null,
    -- Text that the path of a changed file must contain.
    part       text,
    revision   bigint not null,
    is_waiting boolean not null,

    primary key (tenant_id, session_id),
    constraint file_watches_session foreign key (tenant_id, session_id)
        references session.sessions (tenant_id, session_id) on delete cascade
);
create index file_watches_waiting on workspace.file_watches (tenant_id) where is_waiting;
alter table workspace.file_watches enable row level security;
alter table workspace.file_watches force row level security;
create policy one_tenant on workspace.file_watches to holdfast_app
    using (tenant_id = control.tenant());
grant select, insert, update, delete on workspace.file_watches to holdfast_app;
-- Which tenants have sessions that wait; no content.
create policy all_tenants on workspace.file_watches for select to holdfast_system using (true);
grant select (tenant_id, is_waiting) on workspace.file_watches to holdfast_system;
