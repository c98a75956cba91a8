-- Keys of a provider, what is known of models, and budgets.

-- Further keys of a provider; its own, in control.providers, is the one called `default`.
create table control.auth_profiles (
    tenant_id   uuid not null,
    provider    text not null,
    name        text not null check (name ~ '^[a-z0-9][a-z0-9_-]{0,63}$' and name <> 'default'),
    kind        text not null check (kind in ('api_key', 'token', 'oauth')),
    -- What is presented, as a JSON object, sealed with the tenant's data key.
    secret      bytea not null,
    -- When a token ends; null is never.
    expires_at  timestamptz,
    created_at  timestamptz not null default now(),
    updated_at  timestamptz not null default now(),

    primary key (tenant_id, provider, name),
    constraint auth_profiles_provider foreign key (tenant_id, provider)
        references control.providers on delete cascade
);

-- The order in which a provider's keys are tried, where somebody wrote one down.
create table control.auth_orders (
    tenant_id   uuid not null,
    provider    text not null,
    -- Those that take part.
    names       text[] not null,
    -- Whether they are tried in this order; else the one that rested longest comes first.
    strict      boolean not null default false,

    primary key (tenant_id, provider),
    foreign key (tenant_id, provider) references control.providers on delete cascade
);

-- What is remembered of a key that failed, as `llm::credentials::Stats`. Redis has it too.
create table control.auth_stats (
    tenant_id   uuid not null,
    provider    text not null,
    name        text not null,
    -- When it changed, in milliseconds since 1970, and always above what it was: the later one counts.
    changed     bigint not null,
    stats       jsonb not null,

    primary key (tenant_id, provider, name),
    constraint auth_stats_provider foreign key (tenant_id, provider)
        references control.providers on delete cascade
);

-- What a tenant knows of models better, or besides: as `llm::Card`.
create table control.models (
    tenant_id   uuid not null references control.tenants on delete cascade,
    model       text not null check (length(model) <= 257),
    card        jsonb not null,
    updated_at  timestamptz not null default now(),

    primary key (tenant_id, model)
);

-- Short names of models.
create table control.model_aliases (
    tenant_id   uuid not null references control.tenants on delete cascade,
    alias       text not null check (alias ~ '^[a-z0-9][a-z0-9._-]{0,63}$'),
    model       text not null check (length(model) <= 257),
    updated_at  timestamptz not null default now(),

    primary key (tenant_id, alias)
);

-- What may be used in a day, by the whole tenant (agent null) or by one agent.
create table control.budgets (
    tenant_id   uuid not null references control.tenants on delete cascade,
    agent_id    uuid,
    -- Tokens read and written; null is any number.
    tokens      bigint check (tokens > 0),
    -- Millionths of a US dollar; null is any amount.
    micros      bigint check (micros > 0),
    updated_at  timestamptz not null default now(),

    constraint budgets_key unique nulls not distinct (tenant_id, agent_id),
    constraint budgets_agent foreign key (tenant_id, agent_id)
        references control.agents on delete cascade,
    check (tokens is not null or micros is not null)
);

-- What was used in a day of UTC, where there is a budget; written with the thought that it paid for.
create table session.spending (
    tenant_id   uuid not null,
    -- The agent; the nil id is the whole tenant.
    scope       uuid not null,
    day         date not null,
    tokens      bigint not null,
    micros      bigint not null,

    primary key (tenant_id, scope, day)
) with (fillfactor = 70);

-- What a turn cost, in millionths of a US dollar, by the prices that were known then.
alter table session.runs add column cost_micros bigint not null default 0;

do $$
declare
    name text;
begin
    foreach name in array array[
        'control.auth_profiles', 'control.auth_orders', 'control.auth_stats', 'control.models',
        'control.model_aliases', 'control.budgets', 'session.spending'
    ] loop
        execute format('alter table %s enable row level security', name);
        execute format('alter table %s force row level security', name);
        execute format(
            'create policy one_tenant on %s to holdfast_app using (tenant_id = control.tenant())', name);
        execute format('grant select, insert, update, delete on %s to holdfast_app', name);
    end loop;
end $$;
