-- Searches that filters narrow, and searches of one user among many, in less time and with nothing
-- missed.

-- As in 0034, but written so that it becomes a part of the statement that calls it (25 µs a row
-- otherwise): nothing that depends on a session's settings, and no query in it.
create or replace function memory.is_within(u memory.units, narrow jsonb) returns boolean
    language sql immutable parallel safe as
$$
    select (narrow->'types' is null or narrow->'types' ? u.type)
       and (narrow->'session' is null or narrow->>'session' = u.session)
       and (narrow->'not_sessions' is null or not narrow->'not_sessions' ? u.session)
       and (narrow->'since' is null or u.at >= to_timestamp((narrow->>'since')::float8))
       and (narrow->'until' is null or u.at < to_timestamp((narrow->>'until')::float8))
       and (narrow->'path_prefix' is null or starts_with(u.path, narrow->>'path_prefix'))
       and (narrow->'tags' is null or narrow->'tags' ?| u.tags)
       and (narrow->'scope' is null or (narrow->>'scope')::smallint = u.scope)
$$;

-- What says whose a unit is: one agent's and one user's. Before, it was the agent alone, so that
-- one user's question read what all the others' units hold, and what many of those held was not
-- looked for. (The zero tells the mark of an agent's units that are of no user from the former one.)
create function memory.mark(tenant uuid, agent uuid, owner text) returns text
    language sql immutable parallel safe
as $$
    select '''@' || left(encode(sha256(
        uuid_send(tenant) || uuid_send(agent) || '\x00' || convert_to(owner, 'UTF8')), 'hex'), 20) || ''''
$$;

-- Whoever writes the unit: one of a former version does not know of it.
create function memory.mark_unit() returns trigger
    language plpgsql set search_path = pg_catalog, public
as $$
begin
    new.words := new.words || memory.mark(new.tenant_id, new.agent_id, new.user_id)::tsvector;
    return new;
end $$;
create trigger mark_unit before insert on memory.units
    for each row execute function memory.mark_unit();
update memory.units u
set words = u.words || memory.mark(u.tenant_id, u.agent_id, u.user_id)::tsvector;

-- The marks of those whose units are seen, of the transaction's tenant.
create function memory.marks(agents uuid[], users text[]) returns tsquery
    language sql stable parallel safe
as $$
    select string_agg(memory.mark(control.tenant(), a.id, u.name), ' | ')::tsquery
    from unnest(agents) as a (id), unnest(users) as u (name)
$$;

-- How many of the units that are seen hold each of these, up to 1,001; what is `known` is not
-- counted again (in the order of `asked`; null is not known).
--
-- Under the plain policy a query on `words` cannot use its index: `@@` is not leakproof, so each
-- row's tenant would be checked before. This runs as the owner and checks the tenant itself; it is
-- the transaction's, and no argument. `is true` keeps the planner from reading all of the tenant's
-- ids out of another index beside: the mark has chosen the tenant already.
create function memory.held_by(asked tsquery[], agents uuid[], users text[], known integer[])
    returns integer[]
    language plpgsql stable security definer
    set search_path = pg_catalog, public set enable_bitmapscan = on
as $$
declare
    tenant uuid := control.tenant();
    whose tsquery := memory.marks(agents, users);
    count integer;
    counts integer[] := '{}';
begin
    for n in 1 .. cardinality(asked) loop
        count := known[n];
        if count is null then
            select count(*) into count from (
                select from memory.units u
                where u.words @@ (whose && asked[n]) and (u.tenant_id = tenant) is true limit 1001
            ) holders;
        end if;
        counts := counts || count;
    end loop;
    return counts;
end $$;

-- The units that hold the words of a question, and how many hold each of them.
--
-- The rarest is always looked for, others as long as they add up to 1,500 units and none is held by
-- more than 1,000: what many hold tells little of any. Where filters leave a part of them they may
-- add up to 4,500, since few of them are put in their places then. The order is by `ts_rank`, which knows no
-- rarity; the caller makes a better one of what comes back. As in 0051, but by the marks above; the
-- former one stays for processes of the former version.
create function memory.words(
        asked tsquery[], agents uuid[], users text[], kinds smallint[],
        in_group boolean, narrow jsonb, most integer, known integer[]
    )
    returns table (unit_id uuid, held_by integer[])
    language plpgsql stable security definer
    set search_path = pg_catalog, public set enable_bitmapscan = on
as $$
declare
    tenant uuid := control.tenant();
    whose tsquery := memory.marks(agents, users);
    counts integer[] := memory.held_by(asked, agents, users, known);
    one tsquery;
    ask tsquery;
    total integer := 0;
    together integer := case when narrow - 'not_sessions' <> '{}' then 4500 else 1500 end;
    count integer;
begin
    for one, count in
        select a.q, a.n from unnest(asked, counts) as a (q, n) where a.n > 0 order by a.n
    loop
        exit when ask is not null and (count > 1000 or total + count > together);
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

do $$
declare
    signature text;
begin
    foreach signature in array array[
        'mark(uuid, uuid, text)',
        'marks(uuid[], text[])',
        'held_by(tsquery[], uuid[], text[], integer[])',
        'words(tsquery[], uuid[], text[], smallint[], boolean, jsonb, integer, integer[])'
    ] loop
        execute format('revoke all on function memory.%s from public', signature);
        execute format('grant execute on function memory.%s to holdfast_app', signature);
    end loop;
end $$;
revoke all on function memory.mark_unit() from public;

-- What filters leave is looked for here. Who plans takes tenant, agent, user and kind for
-- independent of each other and expects a row or two: only a query that says `place >= 0` can use
-- the first.
create index units_seen on memory.units (tenant_id, agent_id, user_id, kind, at, type) where place >= 0;
create index units_at_path on memory.units (tenant_id, path collate "C") where path <> '';
create index units_tagged on memory.units (tenant_id, agent_id, user_id) where tags <> '{}';

-- The vectors that are seen, by kind: of somebody's fifty thousand turns and hundred memories the
-- hundred are compared and no other.
create index vectors_of_kind on memory.vectors (tenant_id, model, agent_id, user_id, kind);
-- Last of all: from here to the end of the migration nobody else reads vectors.
drop index memory.vectors_seen;
