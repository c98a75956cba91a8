-- What is erased while a tenant moves from one model to another leaves the former model's own table
-- too, which is there until the former's vectors are gone and is searched by nobody.

-- As in 0034, but rows are taken out of the own table of each model that has one.
create or replace function memory.mirror() returns trigger
    language plpgsql security definer set search_path = pg_catalog, public
as $$
declare
    space memory.spaces;
    gone text;
    name text;
begin
    -- Waits while the table is being made, or taken away, so that it misses nothing.
    select * into space from memory.spaces where tenant_id = control.tenant() for share;
    if space is null then
        return null;
    end if;
    if tg_op = 'INSERT' then
        if space.own is null then
            return null;
        end if;
        execute format(
            'insert into memory.%I select unit_id, agent_id, user_id, kind, group_safe, embedding
             from changed where tenant_id = $1 and model = $2 on conflict do nothing', space.own)
            using space.tenant_id, space.model;
        return null;
    end if;
    for gone in select distinct c.model from changed c where c.tenant_id = space.tenant_id loop
        name := format('own_%s_%s', replace(space.tenant_id::text, '-', ''), left(md5(gone), 8));
        if to_regclass(format('memory.%I', name)) is not null then
            execute format(
                'delete from memory.%I o using changed c
                 where o.unit_id = c.unit_id and c.tenant_id = $1 and c.model = $2', name)
                using space.tenant_id, gone;
        end if;
    end loop;
    return null;
end $$;

-- As in 0034, but the row of `spaces` is taken first, as by whoever takes rows out of the table: in
-- the other order each would wait for the other.
create or replace function memory.drop_own(model text) returns void
    language plpgsql security definer set search_path = pg_catalog, public
as $$
declare
    name text := format('own_%s_%s', replace(control.tenant()::text, '-', ''), left(md5(model), 8));
begin
    perform from memory.spaces s where s.tenant_id = control.tenant() for update;
    if exists (select from memory.spaces s where s.tenant_id = control.tenant() and s.own = name) then
        raise exception 'the tenant is searched there';
    end if;
    execute format('drop table if exists memory.%I', name);
end $$;
