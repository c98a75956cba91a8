-- States and versions of agents (docs/decisions/0099-a-self-under-control.md).
alter table control.agents
    -- A disabled agent takes no turns, and its messages wait. An archived one is disabled for good.
    add column state text not null default 'enabled'
        constraint agents_state check (state in ('enabled', 'disabled', 'archived')),
    -- Grows with each change of what defines the agent: settings, behaviours, role.md, self.md.
    add column definition_version bigint not null default 1;

create function control.count_agent_change() returns trigger language plpgsql as
$$
begin
    new.definition_version := old.definition_version + 1;
    return new;
end
$$;
create trigger count_change before update on control.agents
    for each row when (
        (old.name, old.description, old.instructions, old.model, old.settings)
        is distinct from (new.name, new.description, new.instructions, new.model, new.settings))
    execute function control.count_agent_change();

-- For tables whose rows define an agent. A row of the tenant's layer has no agent, and a copy of an
-- agent's files is none.
create function control.count_definition_change() returns trigger language plpgsql as
$$
declare
    change text := current_setting('holdfast.change', true);
begin
    -- The audit tells of the row itself.
    perform set_config('holdfast.change', '', true);
    update control.agents set definition_version = definition_version + 1
    where tenant_id = coalesce(new.tenant_id, old.tenant_id)
      and agent_id = coalesce(new.agent_id, old.agent_id);
    perform set_config('holdfast.change', coalesce(change, ''), true);
    return null;
end
$$;
create trigger count_change after insert or update of is_current on control.behaviors
    for each row execute function control.count_definition_change();
create trigger definition_written after insert on workspace.files
    for each row when (new.path in ('role.md', 'self.md'))
    execute function control.count_definition_change();
create trigger definition_changed after update of hash on workspace.files
    for each row when (new.path in ('role.md', 'self.md') and new.hash is distinct from old.hash)
    execute function control.count_definition_change();
create trigger definition_removed after delete on workspace.files
    for each row when (old.path in ('role.md', 'self.md'))
    execute function control.count_definition_change();

-- The heartbeat of a disabled agent is switched off.
create trigger heartbeat_agent after update of state on control.agents
    for each row when (new.state is distinct from old.state)
    execute function schedule.mark_heartbeat();

-- As before (0091), and events of their own for an agent that a person disables or enables.
create or replace function control.announce_change() returns trigger language plpgsql as
$$
begin
    insert into control.tenant_events (tenant, name, kind, detail)
    select new.tenant_id, t.name, 'config.changed', jsonb_build_object(
        'action', new.action, 'method', new.method, 'request_id', new.request_id)
    from control.tenants t where t.tenant_id = new.tenant_id;
    if new.action in ('agent.disable', 'agent.archive', 'agent.enable') then
        insert into control.tenant_events (tenant, name, kind, detail)
        select new.tenant_id, t.name,
            case new.action when 'agent.enable' then 'agent.enabled' else 'agent.disabled' end,
            jsonb_build_object('agent', new.subject,
                'reason', case new.action when 'agent.archive' then 'archived' else 'person' end)
        from control.tenants t where t.tenant_id = new.tenant_id;
    elsif new.action like 'agent.%' then
        insert into control.tenant_events (tenant, name, kind, detail)
        select new.tenant_id, t.name, case
                when new.action = 'agent.delete' then 'agent.deleted'
                when jsonb_path_exists(new.changes, '$[*] ? (@.table == "control.agents" && !exists(@.before))')
                    then 'agent.created'
                else 'agent.changed'
            end, jsonb_build_object('agent', new.subject, 'request_id', new.request_id)
        from control.tenants t where t.tenant_id = new.tenant_id;
    end if;
    return null;
end
$$;

-- An agent whose hit points reach zero is disabled.
create function work.announce_hit_points() returns trigger language plpgsql as
$$
begin
    insert into control.tenant_events (tenant, name, kind, detail)
    select new.tenant_id, t.name,
        case when new.disabled_at is null then 'agent.enabled' else 'agent.disabled' end,
        jsonb_build_object('agent', 'agt_' || replace(new.agent_id::text, '-', ''),
                           'reason', 'hit_points')
    from control.tenants t where t.tenant_id = new.tenant_id;
    return null;
end
$$;
create trigger announce_disabled after insert on work.hit_points
    for each row when (new.disabled_at is not null) execute function work.announce_hit_points();
create trigger announce_changed after update on work.hit_points
    for each row when ((new.disabled_at is null) <> (old.disabled_at is null))
    execute function work.announce_hit_points();
