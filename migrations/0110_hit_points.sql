-- Hit points of agents (docs/decisions/0096-economy-and-self.md).
create table work.hit_points (
    tenant_id   uuid not null,
    agent_id    uuid not null,
    -- In thousandths of a hit point, at the time `at`. What was recovered since then is computed.
    level       bigint not null check (level >= 0),
    at          timestamptz not null,
    -- When the level reached zero; null while the agent is enabled.
    disabled_at timestamptz,

    primary key (tenant_id, agent_id),
    constraint hit_points_agent_fkey foreign key (tenant_id, agent_id)
        references control.agents (tenant_id, agent_id) on delete cascade
);
alter table work.hit_points enable row level security;
alter table work.hit_points force row level security;
create policy one_tenant on work.hit_points to holdfast_app using (tenant_id = control.tenant());
grant select, insert, update, delete on work.hit_points to holdfast_app;

alter table work.ledger
    drop constraint ledger_kind_check,
    add constraint ledger_kind_check
        check (kind in ('period', 'model', 'tool', 'wallet', 'hit_points')),
    -- Of `hit_points` in thousandths of a hit point, of `wallet` in millionths of the currency. Null,
    -- and then not hashed, in other entries.
    add column amount bigint,
    -- Null if no session caused the entry.
    alter column session_id drop not null;
