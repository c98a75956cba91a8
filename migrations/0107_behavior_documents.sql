-- Behaviours as people write them (docs/decisions/0093-behaviours-as-data.md). Each change is a row
-- with a new version. The name has a current row unless it was deleted.
create table control.behaviors (
    tenant_id  uuid not null references control.tenants on delete cascade,
    -- Null is the layer of the tenant, for all its agents.
    agent_id   uuid,
    name       text not null constraint behaviors_name check (name ~ '^[a-z0-9][a-z0-9_-]{0,63}$'),
    version    bigint not null,
    -- YAML or JSON, as it was written.
    source     text not null check (octet_length(source) <= 262144),
    is_current boolean not null default true,
    created_at timestamptz not null default clock_timestamp(),

    constraint behaviors_key unique nulls not distinct (tenant_id, agent_id, name, version),
    constraint behaviors_agent_fkey foreign key (tenant_id, agent_id)
        references control.agents (tenant_id, agent_id) on delete cascade
);
create unique index behaviors_current on control.behaviors (tenant_id, agent_id, name)
    nulls not distinct where is_current;
alter table control.behaviors enable row level security;
alter table control.behaviors force row level security;
create policy one_tenant on control.behaviors to holdfast_app using (tenant_id = control.tenant());
grant select, insert, update, delete on control.behaviors to holdfast_app;
create trigger audit_1_note after insert or update or delete on control.behaviors
    for each row when (current_setting('holdfast.change', true) <> '')
    execute function control.note_change();
