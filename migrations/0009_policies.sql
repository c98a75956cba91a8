-- Which tools a tenant and its agents may use, as they wrote it; and which tools there are at all.

create table control.policies (
    tenant_id   uuid not null references control.tenants on delete cascade,
    -- Null is the tenant's own, which holds for all its agents.
    agent_id    uuid,
    -- As docs/policy.md describes it. What is in it was checked by whoever wrote it.
    document    jsonb not null check (pg_column_size(document) <= 262144),
    -- Grows with each change: whoever changes what they read says which version that was.
    version     bigint not null default 1,
    updated_at  timestamptz not null default now(),

    constraint policies_key unique nulls not distinct (tenant_id, agent_id),
    constraint policies_agent_fkey foreign key (tenant_id, agent_id)
        references control.agents (tenant_id, agent_id) on delete cascade
);

alter table control.policies enable row level security;
alter table control.policies force row level security;
create policy one_tenant on control.policies to holdfast_app using (tenant_id = control.tenant());
grant select, insert, update, delete on control.policies to holdfast_app;

-- The tools that runners have, which they announce when they start: so that a policy can be checked
-- and explained by who runs none. Nobody's data: the same for all tenants.
create table control.tools (
    name        text primary key check (length(name) between 1 and 128),
    summary     text not null check (length(summary) <= 500),
    seen_at     timestamptz not null default now()
);
grant select, insert, update, delete on control.tools to holdfast_system;
