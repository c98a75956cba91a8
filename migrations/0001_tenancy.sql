-- Who reaches rows, and how: the two roles, the tenant setting, the tenants.
-- Schema `control` is owned by crates/directory.
--
-- holdfast_app     sees one tenant's rows, the one that the transaction names (TenantTx)
-- holdfast_system  sees leases and ids of all tenants, never what was said (SystemTx)
--
-- Neither owns anything and neither bypasses row-level security. Services log in
-- as a role that is a member of both and take one of them on each connection.

do $$
begin
    -- Roles belong to the cluster: another database may have made them, even at this moment.
    begin
        create role holdfast_app nologin;
    exception when duplicate_object or unique_violation then null;
    end;
    begin
        create role holdfast_system nologin;
    exception when duplicate_object or unique_violation then null;
    end;
    if exists (select from pg_roles where rolname = 'holdfast') then
        begin
            grant holdfast_app, holdfast_system to holdfast;
        exception when unique_violation then null;
        end;
    end if;
exception when others then
    -- Two migrations of two databases may update the same membership row at once.
    if sqlerrm not like '%concurrently updated%' then
        raise;
    end if;
end $$;

create schema control;
grant usage on schema control to holdfast_app, holdfast_system;

-- `nullif`, since a connection that has once set the tenant reports '' and not null.
create function control.tenant() returns uuid language sql stable parallel safe as
    $$ select nullif(current_setting('holdfast.tenant_id', true), '')::uuid $$;
grant execute on function control.tenant() to holdfast_app, holdfast_system;

create table control.tenants (
    tenant_id   uuid primary key,
    name        text not null constraint tenants_name check (name ~ '^[a-z0-9][a-z0-9_-]{0,63}$'),
    state       text not null default 'active' check (state in ('active', 'suspended')),
    -- Requests a minute that its keys may make together.
    rate        integer not null default 6000 check (rate > 0),
    -- Its data key, sealed with the platform's key-encryption key.
    data_key    bytea not null,
    created_at  timestamptz not null default now(),

    constraint tenants_name_key unique (name)
);

create table control.keys (
    tenant_id   uuid not null references control.tenants on delete cascade,
    key_id      uuid not null,
    name        text not null check (length(name) between 1 and 100),
    -- HMAC-SHA-256 of the secret with the platform's pepper.
    digest      bytea not null,
    scopes      text[] not null,
    created_at  timestamptz not null default now(),
    expires_at  timestamptz,
    revoked_at  timestamptz,

    primary key (tenant_id, key_id),
    constraint keys_id_key unique (key_id)
);

create table control.agents (
    tenant_id    uuid not null references control.tenants on delete cascade,
    agent_id     uuid not null,
    name         text not null constraint agents_name check (name ~ '^[a-z0-9][a-z0-9_-]{0,63}$'),
    description  text not null default '' check (length(description) <= 2000),
    instructions text not null default '' check (length(instructions) <= 100000),
    -- `provider:model`; null takes the tenant's default.
    model        text,
    is_default   boolean not null default false,
    -- Queue mode, scopes and limits; see `directory::Settings`.
    settings     jsonb not null default '{}',
    version      bigint not null default 1,
    created_at   timestamptz not null default now(),
    updated_at   timestamptz not null default now(),

    primary key (tenant_id, agent_id),
    constraint agents_name_key unique (tenant_id, name)
);
create unique index agents_one_default on control.agents (tenant_id) where is_default;

create table control.providers (
    tenant_id   uuid not null references control.tenants on delete cascade,
    name        text not null check (name ~ '^[a-z0-9][a-z0-9_-]{0,63}$'),
    kind        text not null check (kind in ('openai', 'demo')),
    base_url    text not null default '',
    -- The API key, sealed with the tenant's data key; null where none is needed.
    api_key     bytea,
    -- The model that agents without one of their own use, as `provider:model`; on one row.
    default_model text,
    updated_at  timestamptz not null default now(),

    primary key (tenant_id, name)
);

create table control.accounts (
    tenant_id   uuid not null references control.tenants on delete cascade,
    account_id  uuid not null,
    channel     text not null check (channel in ('telegram', 'webhook')),
    name        text not null check (name ~ '^[a-z0-9][a-z0-9_-]{0,63}$'),
    enabled     boolean not null default true,
    -- What is no secret: mode, allow list, URLs; see `directory::account`.
    settings    jsonb not null default '{}',
    -- What is: a JSON object, sealed with the tenant's data key.
    secrets     bytea not null,
    version     bigint not null default 1,
    created_at  timestamptz not null default now(),
    updated_at  timestamptz not null default now(),

    primary key (tenant_id, account_id),
    constraint accounts_id_key unique (account_id),
    constraint accounts_name_key unique (tenant_id, channel, name)
);

-- The binding cascade: which agent answers whom (spec RTE-004).
create table control.bindings (
    tenant_id   uuid not null references control.tenants on delete cascade,
    binding_id  uuid not null,
    position    integer not null default 0,
    channel     text not null,
    -- Empty is the account called `default`, `*` is any.
    account     text not null default '',
    peer_kind   text,
    peer_id     text,
    guild       text,
    team        text,
    agent_id    uuid not null,
    created_at  timestamptz not null default now(),

    primary key (tenant_id, binding_id)
);

-- The rule router (spec RTE-001).
create table control.rules (
    tenant_id   uuid not null references control.tenants on delete cascade,
    rule_id     uuid not null,
    position    integer not null default 0,
    channel     text,
    user_id     text,
    pattern     text check (length(pattern) <= 1000),
    agent_id    uuid not null,
    tools       text[],
    created_at  timestamptz not null default now(),

    primary key (tenant_id, rule_id)
);

-- One person, several ids (spec SES-007).
create table control.identities (
    tenant_id   uuid not null references control.tenants on delete cascade,
    -- Empty is any channel.
    channel     text not null default '',
    peer        text not null,
    canonical   text not null,

    primary key (tenant_id, channel, peer)
);

-- Who changed what; written in the same transaction, never changed.
create table control.audit (
    tenant_id   uuid not null references control.tenants on delete cascade,
    audit_id    uuid not null,
    actor       text not null,
    action      text not null,
    subject     text not null,
    created_at  timestamptz not null default now(),

    primary key (tenant_id, audit_id)
);

do $$
declare
    name text;
begin
    foreach name in array array[
        'tenants', 'keys', 'agents', 'providers', 'accounts', 'bindings', 'rules', 'identities', 'audit'
    ] loop
        execute format('alter table control.%I enable row level security', name);
        execute format('alter table control.%I force row level security', name);
        execute format(
            'create policy one_tenant on control.%I to holdfast_app using (tenant_id = control.tenant())',
            name);
        execute format('grant select, insert on control.%I to holdfast_app', name);
        if name <> 'audit' then
            execute format('grant update, delete on control.%I to holdfast_app', name);
        end if;
    end loop;
end $$;

-- Before a tenant is known: an operator lists tenants, a bridge finds the accounts to serve.
create policy all_tenants on control.tenants for select to holdfast_system using (true);
grant select (tenant_id, name, state, rate, created_at) on control.tenants to holdfast_system;
create policy all_tenants on control.accounts for select to holdfast_system using (true);
grant select (tenant_id, account_id, channel, name, enabled, version) on control.accounts to holdfast_system;

-- The one way from a key to its tenant. It returns the digest and compares nothing, so that
-- the caller can compare in constant time; it finds only what it is given whole.
-- It runs as the schema's owner, whom row-level security binds too where that is no superuser.
create policy find_key on control.keys for select to current_user using (true);
create policy find_key on control.tenants for select to current_user using (true);
create function control.find_key(wanted uuid)
    returns table (
        tenant_id uuid, name text, digest bytea, scopes text[], rate integer,
        live boolean, tenant_state text
    )
    language sql stable security definer set search_path = pg_catalog as
$$
    select k.tenant_id, k.name, k.digest, k.scopes, t.rate,
           k.revoked_at is null and (k.expires_at is null or k.expires_at > now()), t.state
    from control.keys k join control.tenants t using (tenant_id)
    where k.key_id = wanted
$$;
revoke all on function control.find_key(uuid) from public;
grant execute on function control.find_key(uuid) to holdfast_system;
