-- The audit log: which request made a change, by which method, and what was before and after.
--
-- A call of the gateway that changes something sets `holdfast.change` to `request method actor` in
-- each of its transactions. Then triggers note the changed rows, and the audit's row of the same
-- transaction takes them up. Without the setting (turns, schedules, upkeep) the triggers do nothing.

alter table control.audit
    add column request_id text check (octet_length(request_id) <= 64),
    -- `Service/Method` of the gateway's API.
    add column method     text check (octet_length(method) <= 128),
    -- `ok`, or the name of the gRPC status of a call that changed nothing.
    add column outcome    text not null default 'ok' check (octet_length(outcome) <= 32),
    -- [{"table", "key", "before", "after", "hidden"}]: fields that differ. `hidden` names those whose
    -- values are secret or were said by people, and long values are replaced by their SHA-256.
    add column changes    jsonb check (octet_length(changes::text) <= 262144);

-- The n-th word of the setting: request, method, actor.
create function control.change_field(n integer) returns text language sql stable as
    $$ select nullif(split_part(current_setting('holdfast.change', true), ' ', n), '') $$;
grant execute on function control.change_field(integer) to holdfast_app;

-- A UUIDv7, as the services make them: the order of the ids is that of the time.
create function control.new_id() returns uuid language sql volatile as
$$
    select encode(set_bit(set_bit(
        overlay(uuid_send(gen_random_uuid())
                placing substring(int8send((extract(epoch from clock_timestamp()) * 1000)::bigint) from 3)
                from 1 for 6),
        52, 1), 53, 1), 'hex')::uuid
$$;
grant execute on function control.new_id() to holdfast_app;

-- A row as the audit shows it, without its secrets. Bytes are sealed, hashed or files.
create function control.audit_view(whole jsonb, hidden text[]) returns jsonb language sql immutable as
$$
    select coalesce(jsonb_object_agg(key, case
        when octet_length(value::text) <= 2000 then value
        else jsonb_build_object('sha256', encode(sha256(convert_to(value::text, 'UTF8')), 'hex'),
                                'bytes', octet_length(value::text))
    end), '{}')
    from jsonb_each(whole)
    where not key = any(hidden || array['tenant_id', 'created_at', 'updated_at', 'version'])
$$;
grant execute on function control.audit_view(jsonb, text[]) to holdfast_app;

-- Adds a changed row to `holdfast.noted`. The arguments are columns that are not shown.
create function control.note_change() returns trigger language plpgsql as
$$
declare
    hidden text[] := array(select attname::text from pg_catalog.pg_attribute
                           where attrelid = tg_relid and attnum > 0 and atttypid = 'bytea'::regtype)
                     || coalesce(tg_argv[0:], '{}');
    old_row jsonb := case when tg_op <> 'INSERT' then to_jsonb(old) end;
    new_row jsonb := case when tg_op <> 'DELETE' then to_jsonb(new) end;
    before jsonb := control.audit_view(old_row, hidden);
    after jsonb := control.audit_view(new_row, hidden);
    concealed text[];
    noted text := coalesce(nullif(current_setting('holdfast.noted', true), ''), '[]');
    change jsonb;
begin
    -- The audit keeps nothing of what an erasure deletes.
    if control.change_field(2) = 'Memories/EraseMemories' then
        return null;
    end if;
    concealed := array(
        select h from unnest(hidden) h
        where coalesce(old_row -> h, 'null') is distinct from coalesce(new_row -> h, 'null')
        order by 1);
    if tg_op = 'UPDATE' then
        select coalesce(jsonb_object_agg(key, value) filter (where value is distinct from after -> key), '{}'),
               coalesce(jsonb_object_agg(key, after -> key) filter (where value is distinct from after -> key), '{}')
        into before, after
        from jsonb_each(before);
        if before = '{}' and concealed = '{}' then
            return null;
        end if;
    end if;
    change := jsonb_strip_nulls(jsonb_build_object(
        'table', tg_table_schema || '.' || tg_table_name,
        'key', (select jsonb_object_agg(key, value)
                from jsonb_each(control.audit_view(coalesce(new_row, old_row), hidden))
                where key in ('name', 'provider', 'model', 'alias', 'skill', 'channel', 'peer') or key like '%\_id'),
        'hidden', nullif(to_jsonb(concealed), '[]')))
        -- Nulls inside the rows are kept: they are values.
        || case when tg_op <> 'INSERT' then jsonb_build_object('before', before) else '{}' end
        || case when tg_op <> 'DELETE' then jsonb_build_object('after', after) else '{}' end;
    -- A list of rules or an import may change many rows.
    if octet_length(noted) < 128000 then
        perform set_config('holdfast.noted', (noted::jsonb || change)::text, true);
    end if;
    return null;
end
$$;
grant execute on function control.note_change() to holdfast_app;

-- Completes a row of the audit from the setting, and takes the noted changes.
create function control.complete_audit() returns trigger language plpgsql as
$$
begin
    new.request_id := coalesce(new.request_id, control.change_field(1));
    new.method := coalesce(new.method, control.change_field(2));
    new.changes := coalesce(new.changes, nullif(current_setting('holdfast.noted', true), '')::jsonb);
    perform set_config('holdfast.noted', '', true);
    return new;
end
$$;
grant execute on function control.complete_audit() to holdfast_app;

create trigger complete_audit before insert on control.audit
    for each row when (current_setting('holdfast.change', true) <> '')
    execute function control.complete_audit();

-- Writes the audit's row for tables of other crates. Arguments: kind, column and prefix of the id.
create function control.record_change() returns trigger language plpgsql as
$$
declare
    changed jsonb := to_jsonb(case when tg_op = 'DELETE' then old else new end);
begin
    if coalesce(current_setting('holdfast.noted', true), '') <> '' then
        insert into control.audit (tenant_id, audit_id, actor, action, subject)
        values ((changed ->> 'tenant_id')::uuid, control.new_id(),
                coalesce(control.change_field(3), 'unknown'),
                tg_argv[0] || '.' || lower(tg_op),
                tg_argv[2] || replace(changed ->> tg_argv[1], '-', ''));
    end if;
    return null;
end
$$;
grant execute on function control.record_change() to holdfast_app;

do $$
declare
    one text[];
begin
    -- Tables of crates/directory, whose operations write the audit's row. Hidden: addresses and
    -- arguments may contain a password.
    foreach one slice 1 in array array[
        ['tenants', ''], ['keys', ''], ['agents', ''], ['providers', ''], ['accounts', ''],
        ['bindings', ''], ['rules', ''], ['identities', ''], ['policies', ''],
        ['auth_profiles', ''], ['auth_orders', ''], ['models', ''], ['model_aliases', ''],
        ['budgets', ''], ['chains', ''], ['connections', ''], ['mcp_servers', '''url'', ''args'''],
        ['nodes', ''], ['skill_env', ''], ['people', '']
    ] loop
        execute format(
            'create trigger audit_1_note after insert or update or delete on control.%I
             for each row when (current_setting(''holdfast.change'', true) <> '''')
             execute function control.note_change(%s)', one[1], one[2]);
    end loop;
    -- Tables of others. What jobs are called, and their payloads, are what was said: erasure deletes
    -- them, and keeps the audit.
    foreach one slice 1 in array array[
        ['schedule.jobs', 'insert or update or delete', '''payload'', ''description'', ''name'', ''external_id''', '''job'', ''job_id'', ''job_'''],
        ['session.approval_rules', 'delete', '''pattern'', ''summary'', ''last_used''', '''approval_rule'', ''rule_id'', '''''],
        ['session.tenant_queue', 'insert or update of weight, cap, max_sessions', '', '''tenant_share'', ''tenant_id'', ''ten_'''],
        ['workspace.skill_policies', 'insert or update or delete', '', '''skill_policy'', ''tenant_id'', ''ten_'''],
        ['workspace.revisions', 'insert', '''reason''', '''files'', ''agent_id'', ''agt_''']
    ] loop
        execute format(
            'create trigger audit_1_note after %s on %s
             for each row when (current_setting(''holdfast.change'', true) <> '''')
             execute function control.note_change(%s)', one[2], one[1], one[3]);
        execute format(
            'create trigger audit_2_record after %s on %s
             for each row when (current_setting(''holdfast.change'', true) <> '''')
             execute function control.record_change(%s)', one[2], one[1], one[4]);
    end loop;
end $$;
