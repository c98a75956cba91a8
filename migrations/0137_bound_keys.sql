-- Keys that talk to one agent only, and those that web pages of certain origins use.
alter table control.keys
    add column agent_id uuid,
    add column origins text[] not null default '{}',
    add constraint keys_agent foreign key (tenant_id, agent_id)
        references control.agents (tenant_id, agent_id) on delete cascade;
create index keys_agent on control.keys (tenant_id, agent_id) where agent_id is not null;

-- As `control.find_key_with_person`, with the name of the key's agent, and its origins.
create policy find_key_agent on control.agents for select to current_user using (true);
create function control.find_bound_key(wanted uuid)
    returns table (
        tenant_id uuid, name text, digest bytea, scopes text[], rate integer,
        live boolean, tenant_state text, concurrent_calls bigint, person_id uuid, role text,
        agent text, origins text[]
    )
    language sql stable security definer set search_path = pg_catalog as
$$
    select f.*, a.name, k.origins
    from control.find_key_with_person(wanted) f
    join control.keys k on k.key_id = wanted
    left join control.agents a on a.tenant_id = k.tenant_id and a.agent_id = k.agent_id
$$;
revoke all on function control.find_bound_key(uuid) from public;
grant execute on function control.find_bound_key(uuid) to holdfast_system;
