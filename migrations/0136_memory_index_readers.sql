-- As in 0044, but the roles that read memory.vectors read the copy too: those of single services as well
-- as the one of all services, which alone could read it until the next migration.
create or replace function memory.make_own() returns bigint
    language plpgsql security definer
    set search_path = pg_catalog, public
    set maintenance_work_mem = '256MB' set enable_bitmapscan = on
as $$
declare
    space memory.spaces;
    name text;
    made bigint;
    readers text;
begin
    select * into space from memory.spaces where tenant_id = control.tenant() for update;
    if space is null or space.dimension > 4000 then
        return 0;
    end if;
    name := format('own_%s_%s', replace(space.tenant_id::text, '-', ''), left(md5(space.model), 8));
    if space.own = name then
        return 0;
    end if;
    execute format('drop table if exists memory.%I', name);
    execute format(
        'create table memory.%I (
            unit_id uuid primary key, agent_id uuid not null, user_id text not null,
            kind smallint not null, group_safe boolean not null, embedding halfvec(%s) not null
        ) with (toast_tuple_target = 8160)', name, space.dimension);
    execute format('alter table memory.%I enable row level security', name);
    execute format('alter table memory.%I force row level security', name);
    select string_agg(distinct quote_ident(role::regrole::text), ', ') into readers
    from pg_policy p cross join unnest(p.polroles) role
    where p.polrelid = 'memory.vectors'::regclass and p.polname = 'one_tenant';
    execute format('create policy one_tenant on memory.%I to %s using (control.tenant() = %L)',
        name, readers, space.tenant_id);
    execute format('create policy owner on memory.%I to current_user using (true)', name);
    select string_agg(distinct quote_ident(a.grantee::regrole::text), ', ') into readers
    from pg_class c cross join aclexplode(c.relacl) a
    where c.oid = 'memory.vectors'::regclass and a.privilege_type = 'SELECT' and a.grantee > 0;
    execute format('grant select on memory.%I to %s', name, readers);
    execute format(
        'insert into memory.%I select unit_id, agent_id, user_id, kind, group_safe, embedding
         from memory.vectors where tenant_id = $1 and model = $2', name)
        using space.tenant_id, space.model;
    get diagnostics made = row_count;
    execute format(
        'create index on memory.%I using hnsw (embedding halfvec_ip_ops) with (m = 24, ef_construction = 128)',
        name);
    execute format('analyze memory.%I', name);
    update memory.spaces set own = name where tenant_id = space.tenant_id;
    return made;
end $$;
