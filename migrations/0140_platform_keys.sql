-- Providers and keys of the installation, which plans allow to tenants.

create table control.platform_providers (
    name          text primary key check (name ~ '^[a-z0-9][a-z0-9_-]{0,63}$' and name <> 'demo'),
    kind          text not null check (
        kind in ('openai', 'openai-responses', 'anthropic', 'gemini', 'ollama', 'azure', 'vertex',
                 'bedrock')
    ),
    -- The only host to which its keys are sent; empty is that of the kind or the name.
    base_url      text not null default '' check (octet_length(base_url) <= 2000),
    -- `provider:id`, for tenants and agents that have no model of their own.
    default_model text check (octet_length(default_model) <= 257),
    updated_at    timestamptz not null default now()
);

create table control.platform_keys (
    provider   text not null,
    name       text not null check (name ~ '^[a-z0-9][a-z0-9_-]{0,63}$'),
    -- The API key, sealed with the installation's key-encryption key.
    secret     bytea not null,
    -- As in control.auth_stats, for all tenants together.
    changed    bigint not null default 0,
    stats      jsonb not null default '{}',
    created_at timestamptz not null default now(),
    updated_at timestamptz not null default now(),

    primary key (provider, name),
    constraint platform_keys_provider foreign key (provider)
        references control.platform_providers on delete cascade
);

-- Providers of the installation whose keys tenants of the plan may use.
alter table control.plans add column platform_providers text[] not null default '{}';

-- Whether the tenant's plan allows a provider of the installation. Read of the plan itself, so that
-- a change of either holds at once.
create function control.allows_platform_provider(wanted text) returns boolean
    language sql stable as
$$
    select exists (
        select from control.tenants t join control.plans p on p.name = t.plan
        where t.tenant_id = control.tenant() and wanted = any(p.platform_providers))
$$;

do $$
declare
    r record;
begin
    for r in select * from (values ('platform_providers', 'name'), ('platform_keys', 'provider'))
        t (relation, provider)
    loop
        execute format('alter table control.%s enable row level security', r.relation);
        execute format('alter table control.%s force row level security', r.relation);
        execute format(
            'create policy of_plan on control.%s for select to holdfast_app '
            'using (control.allows_platform_provider(%s))', r.relation, r.provider);
        execute format(
            'create policy all_rows on control.%s to holdfast_system using (true)', r.relation);
        execute format('grant select on control.%s to holdfast_app', r.relation);
        execute format('grant select, insert, update, delete on control.%s to holdfast_system', r.relation);
    end loop;
end $$;

-- The part of cost_micros that was used with keys of the installation.
alter table session.runs add column platform_micros bigint not null default 0;
