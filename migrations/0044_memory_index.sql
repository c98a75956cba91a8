-- Large tenants are searched sooner: their own tables hold numbers of two bytes, and the words of a
-- question are looked for in the index of words alone.

-- Tables of the former kind; each is made anew when something of its tenant is embedded, which until
-- then is searched exactly.
do $$
declare
    name text;
begin
    for name in select own from memory.spaces where own is not null loop
        execute format('drop table if exists memory.%I', name);
    end loop;
    update memory.spaces set own = null where own is not null;
end $$;

-- As in 0034, but for two things. `is true` keeps the planner from reading all of the tenant's ids
-- out of another index beside: the mark in `whose` has chosen the tenant already, and the column is
-- there to be sure.
create or replace function memory.words(
        asked tsquery[], whose tsquery, agents uuid[], users text[], kinds smallint[],
        in_group boolean, narrow jsonb, most integer
    )
    returns table (unit_id uuid, held_by integer[])
    language plpgsql stable security definer
    set search_path = pg_catalog, public set enable_bitmapscan = on
as $$
declare
    tenant uuid := control.tenant();
    one tsquery;
    ask tsquery;
    total integer := 0;
    count integer;
    counts integer[] := '{}';
begin
    foreach one in array asked loop
        select count(*) into count from (
            select from memory.units u
            where u.words @@ (whose && one) and (u.tenant_id = tenant) is true limit 1001
        ) holders;
        counts := counts || count;
    end loop;
    for one, count in
        select a.q, a.n from unnest(asked, counts) as a (q, n) where a.n > 0 order by a.n
    loop
        exit when ask is not null and (count > 1000 or total + count > 3000);
        ask := case when ask is null then one else ask || one end;
        total := total + count;
    end loop;
    if ask is null then
        return;
    end if;
    return query
        select u.unit_id, counts
        from memory.units u
        where u.words @@ (whose && ask) and (u.tenant_id = tenant) is true
          and u.agent_id = any (agents) and u.user_id = any (users) and u.kind = any (kinds)
          and (u.group_safe or not in_group) and (u.expires_at is null or u.expires_at > now())
          and (narrow is null or memory.is_within(u, narrow))
        order by ts_rank(u.words, ask, 1) desc, 1
        limit most;
end $$;

-- As in 0034, but its numbers have two bytes: half as much to read, and the answers are the same,
-- since what was found is put in order by the whole vectors.
create or replace function memory.make_own() returns bigint
    language plpgsql security definer
    set search_path = pg_catalog, public
    set maintenance_work_mem = '256MB' set enable_bitmapscan = on
as $$
declare
    space memory.spaces;
    name text;
    made bigint;
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
    execute format('create policy one_tenant on memory.%I to holdfast_app using (control.tenant() = %L)',
        name, space.tenant_id);
    execute format('create policy owner on memory.%I to current_user using (true)', name);
    execute format('grant select on memory.%I to holdfast_app', name);
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
