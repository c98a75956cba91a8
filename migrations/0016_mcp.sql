-- MCP servers whose tools a tenant's agents may use.

create table control.mcp_servers (
    tenant_id    uuid not null references control.tenants on delete cascade,
    -- The middle of its tools' names: `mcp_<name>_<tool>`.
    name         text not null check (name ~ '^[a-z0-9_]{1,32}$'),
    transport    text not null check (transport in ('http', 'stdio')),
    -- Where it is, if it is reached by HTTP.
    url          text,
    -- How it is started in a sandbox, if it is a process.
    command      text,
    args         text[] not null default '{}',
    network      boolean not null default false,
    -- Headers, or variables: a JSON object, sealed with the tenant's data key; null where there
    -- are none. Their names are no secret.
    secrets      bytea,
    secret_names text[] not null default '{}',
    -- Who may use it; null is every agent.
    agents       uuid[],
    enabled      boolean not null default true,
    -- Another one after each change, so that whoever is connected sees it.
    version      uuid not null,
    updated_at   timestamptz not null default now(),

    primary key (tenant_id, name),
    constraint mcp_servers_place check (
        case transport when 'http' then url is not null and command is null
                       else command is not null and url is null end
    )
);

alter table control.mcp_servers enable row level security;
alter table control.mcp_servers force row level security;
create policy one_tenant on control.mcp_servers to holdfast_app
    using (tenant_id = control.tenant());
grant select, insert, update, delete on control.mcp_servers to holdfast_app;
