-- Connections: accounts at outside services (calendars, mail, notes) that agents use for people.

create table control.connections (
    tenant_id   uuid not null references control.tenants on delete cascade,
    name        text not null check (name ~ '^[a-z0-9][a-z0-9_-]{0,63}$'),
    kind        text not null check (kind in ('caldav', 'smtp', 'notion')),
    -- The agent that uses it; null is every agent of the tenant.
    agent_id    uuid,
    -- In whose conversations: `owner`, `everyone`, or a person, as their sessions' keys end.
    used_by     text not null default 'owner' check (length(used_by) between 1 and 300),
    -- What is no secret; see `types::connection`.
    settings    jsonb not null default '{}',
    -- What is: sealed with the tenant's data key; null where none is needed.
    secret      bytea,
    created_at  timestamptz not null default now(),
    updated_at  timestamptz not null default now(),

    primary key (tenant_id, name),
    -- A connection without its agent is nobody's.
    foreign key (tenant_id, agent_id) references control.agents on delete cascade
);
create index connections_agent on control.connections (agent_id) where agent_id is not null;

alter table control.connections enable row level security;
alter table control.connections force row level security;
create policy one_tenant on control.connections to holdfast_app
    using (tenant_id = control.tenant());
grant select, insert, update, delete on control.connections to holdfast_app;
