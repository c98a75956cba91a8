-- Wallets of agents in the internal currency (docs/decisions/0096-economy-and-self.md). Amounts are
-- millionths of it.
create table work.wallets (
    tenant_id     uuid not null,
    agent_id      uuid not null,
    -- Whether the agent may spend at all.
    is_authorized boolean not null default false,
    balance       bigint not null default 0 check (balance >= 0),
    per_payment   bigint not null default 0 check (per_payment >= 0),
    per_day       bigint not null default 0 check (per_day >= 0),
    per_task      bigint not null default 0 check (per_task >= 0),
    -- What each subagent's session may spend in all; 0 is no wallet.
    per_subagent  bigint not null default 0 check (per_subagent >= 0),
    payees        text[] not null default '{}',
    updated_at    timestamptz not null default clock_timestamp(),

    primary key (tenant_id, agent_id),
    constraint wallets_agent_fkey foreign key (tenant_id, agent_id)
        references control.agents (tenant_id, agent_id) on delete cascade
);

-- Payments and incomes, each once for its key.
create table work.payments (
    tenant_id       uuid not null,
    payment_id      uuid not null,
    agent_id        uuid not null,
    -- Null for an income.
    session_id      uuid,
    run_id          uuid,
    key             text not null check (octet_length(key) between 1 and 512),
    kind            text not null check (kind in ('payment', 'income')),
    -- Payee or payer.
    party           text not null check (octet_length(party) between 1 and 256),
    amount          bigint not null check (amount > 0),
    purpose         text not null default '',
    alternatives    text not null default '',
    expected_saving text not null default '',
    risk            text not null default '',
    provider        text not null,
    receipt         text,
    -- Reserved until the provider has answered, then settled.
    state           text not null check (state in ('reserved', 'settled')),
    balance         bigint not null,
    created_at      timestamptz not null default clock_timestamp(),

    primary key (tenant_id, payment_id),
    constraint payments_key unique (tenant_id, agent_id, key),
    constraint payments_wallet_fkey foreign key (tenant_id, agent_id)
        references work.wallets (tenant_id, agent_id) on delete cascade
);
create index payments_by_day on work.payments (tenant_id, agent_id, created_at);

do $$
declare
    name text;
begin
    foreach name in array array['wallets', 'payments'] loop
        execute format('alter table work.%I enable row level security', name);
        execute format('alter table work.%I force row level security', name);
        execute format('create policy one_tenant on work.%I to holdfast_app using (tenant_id = control.tenant())', name);
        execute format('grant select, insert, update, delete on work.%I to holdfast_app', name);
    end loop;
end $$;
