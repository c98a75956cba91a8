-- Where a session is among the behaviours of its agent (docs/decisions/0092-behaviours.md): written
-- in the transaction that stores a step, read when a turn begins.
create table session.behaviors (
    tenant_id  uuid not null,
    session_id uuid not null,
    state      jsonb not null,
    -- Title that the agent has given the session last.
    title      text,
    updated_at timestamptz not null default clock_timestamp(),

    primary key (session_id, tenant_id)
);
alter table session.behaviors enable row level security;
alter table session.behaviors force row level security;
create policy one_tenant on session.behaviors to holdfast_app using (tenant_id = control.tenant());
grant select, insert, update, delete on session.behaviors to holdfast_app;
