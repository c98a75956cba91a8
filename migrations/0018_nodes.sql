-- Nodes: people's own machines, which connect to a gateway and run what their owners' agents ask.

create table control.nodes (
    tenant_id    uuid not null references control.tenants on delete cascade,
    node_id      uuid not null,
    name         text not null check (name ~ '^[a-z0-9][a-z0-9_-]{0,63}$'),
    -- In whose conversations it may be used: `owner`, `everyone`, or a person, as their sessions'
    -- keys end.
    used_by      text not null default 'owner' check (length(used_by) between 1 and 300),
    -- HMAC-SHA-256 of its token's secret with the platform's pepper.
    digest       bytea not null,
    -- What it said of itself when it last connected.
    platform     text not null default '',
    version      text not null default '',
    commands     text[] not null default '{}',
    -- The connection that counts; null where there is none. An older one that still stands ends.
    connection   uuid,
    -- When it last came or went.
    last_seen_at timestamptz,
    created_at   timestamptz not null default now(),
    revoked_at   timestamptz,

    primary key (tenant_id, node_id),
    constraint nodes_id_key unique (node_id)
);
-- A revoked node's name is free again.
create unique index nodes_name_key on control.nodes (tenant_id, name) where revoked_at is null;

alter table control.nodes enable row level security;
alter table control.nodes force row level security;
create policy one_tenant on control.nodes to holdfast_app
    using (tenant_id = control.tenant());
grant select, insert, update, delete on control.nodes to holdfast_app;

-- The one way from a node's token to its tenant; see `control.find_key`.
create policy find_node on control.nodes for select to current_user using (true);
create function control.find_node(wanted uuid)
    returns table (
        tenant_id uuid, name text, digest bytea, rate integer, live boolean, tenant_state text
    )
    language sql stable security definer set search_path = pg_catalog as
$$
    select n.tenant_id, n.name, n.digest, t.rate, n.revoked_at is null, t.state
    from control.nodes n join control.tenants t using (tenant_id)
    where n.node_id = wanted
$$;
revoke all on function control.find_node(uuid) from public;
grant execute on function control.find_node(uuid) to holdfast_system;
