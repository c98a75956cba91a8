-- What agents know: things, documents, articles, and the units by which all of it is found.
-- Schema `memory` is owned by services/memory.
--
-- A row belongs to an agent, or to all of the tenant's (the UUID of zeros), and to a user, or to
-- none (the empty text): so that `in ('', $user)` is two ranges of one index and no `or`.
--
-- Units hold only what may be found now: what was superseded, deactivated or has expired keeps its
-- row in `items` and has no unit. Whatever has text names where it comes from (`provenance`).

create extension if not exists vector;

create schema memory;
grant usage on schema memory to holdfast_app, holdfast_system;

-- Per tenant: how its units are searched.
create table memory.spaces (
    tenant_id    uuid primary key,
    -- The model of the vectors that questions are compared with.
    model        text not null,
    dimension    integer not null check (dimension between 1 and 16000),
    -- The table of its own with an index, once it has so many vectors; null is the exact scan.
    own          text,
    -- The model before, whose vectors are taken away a minute after the change.
    former       text,
    changed_at   timestamptz not null default clock_timestamp()
);

-- Things that were told: typed memories, values by key, facts, events.
create table memory.items (
    tenant_id     uuid not null,
    item_id       uuid not null,
    -- 1 memory, 2 value, 3 fact, 4 event.
    kind          smallint not null check (kind between 1 and 4),
    agent_id      uuid not null,
    user_id       text not null check (octet_length(user_id) <= 256),
    session       text not null default '' check (octet_length(session) <= 256),
    type          text not null default '' check (length(type) <= 64),
    subject       text not null default '' check (length(subject) <= 512),
    predicate     text not null default '' check (length(predicate) <= 512),
    content       text not null check (octet_length(content) <= 262144),
    confidence    double precision check (confidence between 0 and 1),
    importance    double precision check (importance between 0 and 1),
    tags          text[] not null default '{}',
    group_safe    boolean not null default false,
    active        boolean not null default true,
    at            timestamptz not null,
    expires_at    timestamptz,
    provenance    jsonb not null check (octet_length(provenance::text) <= 8192),
    -- The request that made it, and its place there.
    request       text check (octet_length(request) between 1 and 256),
    request_n     integer not null default 0,
    superseded_by uuid,
    superseded_at timestamptz,
    created_at    timestamptz not null default clock_timestamp(),

    primary key (item_id, tenant_id),
    constraint items_typed check (kind <> 1 or type in ('preference', 'fact', 'event', 'commitment')),
    constraint items_request unique (request, request_n, tenant_id)
);
-- The one that counts of a key, and of a subject's predicate.
create unique index items_current on memory.items (subject, predicate, kind, user_id, agent_id, tenant_id)
    where kind in (2, 3) and superseded_at is null;
create index items_listed on memory.items (tenant_id, item_id) where kind > 0;
create index items_of_user on memory.items (user_id, item_id) where user_id <> '';
create index items_of_session on memory.items (session) where session <> '';
create index items_subject on memory.items (subject) where subject <> '';
create index items_expiring on memory.items (expires_at) where expires_at is not null and active;

-- Documents of agents' workspaces (6) and articles of the knowledge base (7).
create table memory.documents (
    tenant_id   uuid not null,
    document_id uuid not null,
    kind        smallint not null check (kind in (6, 7)),
    agent_id    uuid not null,
    user_id     text not null check (octet_length(user_id) <= 256),
    -- 1 tenant, 2 workspace; 0 is none.
    scope       smallint not null default 0 check (scope between 0 and 2),
    -- Of a document its path, of an article its title.
    path        text not null check (octet_length(path) between 1 and 1024),
    hash        text not null check (octet_length(hash) <= 128),
    group_safe  boolean not null default false,
    -- The day of a daily note.
    dated       timestamptz,
    tags        text[] not null default '{}',
    version     integer not null default 1,
    provenance  jsonb not null check (octet_length(provenance::text) <= 8192),
    request     text check (octet_length(request) between 1 and 256),
    created_at  timestamptz not null default clock_timestamp(),
    updated_at  timestamptz not null default clock_timestamp(),

    primary key (document_id, tenant_id),
    constraint documents_request unique (request, tenant_id)
);
create unique index documents_path on memory.documents (path, user_id, agent_id, tenant_id) where kind = 6;
create index documents_listed on memory.documents (tenant_id, kind, document_id) where version > 0;
create index documents_of_user on memory.documents (user_id) where user_id <> '';

-- What an article said, version by version.
create table memory.versions (
    tenant_id   uuid not null,
    document_id uuid not null,
    version     integer not null,
    title       text not null,
    text        text not null check (octet_length(text) <= 4194304),
    tags        text[] not null default '{}',
    provenance  jsonb not null check (octet_length(provenance::text) <= 8192),
    author      text not null default '' check (length(author) <= 200),
    confidence  double precision check (confidence between 0 and 1),
    -- What the privacy policy masked: kinds and counts.
    masked      jsonb not null default '{}',
    created_at  timestamptz not null default clock_timestamp(),

    primary key (document_id, version, tenant_id),
    constraint versions_document_fkey foreign key (document_id, tenant_id)
        references memory.documents on delete cascade
);

-- What is found: an item, a turn, a chunk of a document or an article.
create table memory.units (
    tenant_id  uuid not null,
    unit_id    uuid not null,
    -- 1 memory, 2 value, 3 fact, 4 event, 5 turn, 6 document, 7 knowledge.
    kind       smallint not null check (kind between 1 and 7),
    -- The item or the document; a turn's own id.
    source_id  uuid not null,
    agent_id   uuid not null,
    user_id    text not null,
    session    text not null default '' check (octet_length(session) <= 256),
    type       text not null default '',
    scope      smallint not null default 0,
    author     text not null default '' check (length(author) <= 200),
    -- A turn's name with its caller.
    ref        text not null default '' check (octet_length(ref) <= 256),
    -- The turn's place in its session, the chunk's in its document.
    place      integer not null default 0,
    path       text not null default '',
    headings   text[] not null default '{}',
    starts     integer not null default 0,
    ends       integer not null default 0,
    tags       text[] not null default '{}',
    text       text not null,
    group_safe boolean not null,
    at         timestamptz not null,
    -- Age counts against it.
    dated      boolean not null default false,
    expires_at timestamptz,
    -- How many terms it has of its own, and how many with those of its context.
    terms      integer not null,
    length     integer not null,
    -- Its terms and those of the turn before it, with `@…` for whose it is (see memory.words).
    words      tsvector not null,
    -- SHA-256 of what is embedded.
    hash       bytea not null,
    provenance jsonb not null,
    created_at timestamptz not null default clock_timestamp(),

    primary key (unit_id, tenant_id)
) with (toast_tuple_target = 8160);
create unique index units_turn on memory.units (ref, session, user_id, agent_id, tenant_id) where kind = 5;
create index units_turns on memory.units (session, place) where kind = 5;
create index units_of_source on memory.units (source_id);
create index units_of_session on memory.units (session) where session <> '';
create index units_of_user on memory.units (user_id) where user_id <> '';
create index units_listed on memory.units (tenant_id, unit_id) where place >= 0;
-- Without a list of pending entries: a search would read all of it each time.
create index units_words on memory.units using gin (words) with (fastupdate = off);

-- What a unit means, by the model that said so. `agent_id` to `group_safe` are the unit's own.
create table memory.vectors (
    tenant_id  uuid not null,
    unit_id    uuid not null,
    model      text not null,
    dimension  integer not null,
    agent_id   uuid not null,
    user_id    text not null,
    kind       smallint not null,
    group_safe boolean not null,
    -- The unit's: the same text is not embedded twice in a tenant.
    hash       bytea not null,
    -- Of length 1, so that the inner product is the cosine.
    embedding  vector not null,

    primary key (unit_id, tenant_id, model),
    constraint vectors_unit_fkey foreign key (unit_id, tenant_id)
        references memory.units on delete cascade
) with (toast_tuple_target = 8160);
create index vectors_seen on memory.vectors (tenant_id, model, agent_id, user_id);
create index vectors_hash on memory.vectors (hash);

-- What is still to be embedded. A row goes in the transaction that writes the vector.
create table memory.queue (
    tenant_id  uuid not null,
    unit_id    uuid not null,
    attempts   integer not null default 0,
    -- When it may be taken; whoever takes it moves it a minute on. Infinity has been given up.
    ready_at   timestamptz not null default clock_timestamp(),

    primary key (unit_id, tenant_id),
    constraint queue_unit_fkey foreign key (unit_id, tenant_id)
        references memory.units on delete cascade
) with (fillfactor = 80, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 500);
create index queue_ready on memory.queue (tenant_id, ready_at);

-- Who said something, by name: a question that names one of them is read so.
create table memory.authors (
    tenant_id uuid not null,
    agent_id  uuid not null,
    user_id   text not null,
    name      text not null check (length(name) between 1 and 200),

    primary key (tenant_id, agent_id, user_id, name)
);

do $$
declare
    name text;
begin
    foreach name in array array[
        'spaces', 'items', 'documents', 'versions', 'units', 'vectors', 'queue', 'authors'
    ] loop
        execute format('alter table memory.%I enable row level security', name);
        execute format('alter table memory.%I force row level security', name);
        execute format(
            'create policy one_tenant on memory.%I to holdfast_app using (tenant_id = control.tenant())',
            name);
        execute format('create policy all_tenants on memory.%I to holdfast_system using (true)', name);
        -- For the functions below where the owner is no superuser; each names the tenant itself.
        execute format('create policy owner on memory.%I to current_user using (true)', name);
        execute format('grant select, insert, update, delete on memory.%I to holdfast_app', name);
    end loop;
end $$;

-- Of other tenants' rows the service sees that something waits, and by which model they are searched.
grant select on memory.queue, memory.spaces to holdfast_system;
grant update (attempts, ready_at) on memory.queue to holdfast_system;
grant select (tenant_id, item_id, expires_at, active) on memory.items to holdfast_system;

-- Whether a unit is within the rarer filters of a search; what they do not name is all.
create function memory.is_within(u memory.units, narrow jsonb) returns boolean
    language sql immutable parallel safe as
$$
    select (narrow->'types' is null or narrow->'types' ? u.type)
       and (narrow->'session' is null or narrow->>'session' = u.session)
       and (narrow->'not_sessions' is null or not narrow->'not_sessions' ? u.session)
       and (narrow->'since' is null or extract(epoch from u.at) >= (narrow->'since')::float8)
       and (narrow->'until' is null or extract(epoch from u.at) < (narrow->'until')::float8)
       and (narrow->'path_prefix' is null or starts_with(u.path, narrow->>'path_prefix'))
       and (narrow->'tags' is null or exists (select from unnest(u.tags) t where narrow->'tags' ? t))
       and (narrow->'scope' is null or (narrow->'scope')::smallint = u.scope)
$$;
grant execute on function memory.is_within(memory.units, jsonb) to holdfast_app;

-- The units that hold the words of a question, and how many hold each of them.
--
-- Under the plain policy a query on `words` cannot use its index: `@@` is not leakproof, so each
-- row's tenant would be checked before. This runs as the owner and checks the tenant itself; it is
-- the transaction's, and no argument. `whose` holds the `@…` of those whose units are seen, which
-- is what makes the index read theirs alone; the columns decide.
--
-- The rarest is always looked for, others as long as they add up to 3,000 units and none is held by
-- more than 1,000: what many hold tells little of any. The order is by `ts_rank`, which knows no rarity; the caller makes a better one of
-- what comes back.
create function memory.words(
        asked tsquery[], whose tsquery, agents uuid[], users text[], kinds smallint[],
        in_group boolean, narrow jsonb, most integer
    )
    returns table (unit_id uuid, held_by integer[])
    language plpgsql stable security definer
    set search_path = pg_catalog, public set enable_bitmapscan = on
as $$
declare
    one tsquery;
    ask tsquery;
    total integer := 0;
    count integer;
    counts integer[] := '{}';
begin
    foreach one in array asked loop
        select count(*) into count from (
            select from memory.units u
            where u.words @@ (whose && one) and u.tenant_id = control.tenant() limit 1001
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
        where u.words @@ (whose && ask) and u.tenant_id = control.tenant()
          and u.agent_id = any (agents) and u.user_id = any (users) and u.kind = any (kinds)
          and (u.group_safe or not in_group) and (u.expires_at is null or u.expires_at > now())
          and (narrow is null or memory.is_within(u, narrow))
        order by ts_rank(u.words, ask, 1) desc, 1
        limit most;
end $$;
revoke all on function memory.words(tsquery[], tsquery, uuid[], text[], smallint[], boolean, jsonb, integer) from public;
grant execute on function memory.words(tsquery[], tsquery, uuid[], text[], smallint[], boolean, jsonb, integer) to holdfast_app;

-- Gives the transaction's tenant a table of its own vectors with an index, and has them searched
-- there from its commit on. Others wait for nothing; what would write vectors of this tenant, or
-- take some away, waits until it is done.
create function memory.make_own() returns bigint
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
    if space is null or space.dimension > 2000 then
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
            kind smallint not null, group_safe boolean not null, embedding vector(%s) not null
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
        'create index on memory.%I using hnsw (embedding vector_ip_ops) with (m = 16, ef_construction = 100)',
        name);
    execute format('analyze memory.%I', name);
    update memory.spaces set own = name where tenant_id = space.tenant_id;
    return made;
end $$;
revoke all on function memory.make_own() from public;
grant execute on function memory.make_own() to holdfast_app;

-- Takes away the tenant's own table of a model that is searched by no longer.
create function memory.drop_own(model text) returns void
    language plpgsql security definer set search_path = pg_catalog, public
as $$
declare
    name text := format('own_%s_%s', replace(control.tenant()::text, '-', ''), left(md5(model), 8));
begin
    if exists (select from memory.spaces s where s.tenant_id = control.tenant() and s.own = name) then
        raise exception 'the tenant is searched there';
    end if;
    execute format('drop table if exists memory.%I', name);
end $$;
revoke all on function memory.drop_own(text) from public;
grant execute on function memory.drop_own(text) to holdfast_app;

-- Keeps a tenant's own table the same as its rows in `vectors`, statement by statement.
create function memory.mirror() returns trigger
    language plpgsql security definer set search_path = pg_catalog, public
as $$
declare
    space memory.spaces;
begin
    -- Waits while the table is being made, so that it misses nothing.
    select * into space from memory.spaces where tenant_id = control.tenant() for share;
    if space.own is null then
        return null;
    end if;
    if tg_op = 'INSERT' then
        execute format(
            'insert into memory.%I select unit_id, agent_id, user_id, kind, group_safe, embedding
             from changed where tenant_id = $1 and model = $2 on conflict do nothing', space.own)
            using space.tenant_id, space.model;
    else
        execute format(
            'delete from memory.%I o using changed c
             where o.unit_id = c.unit_id and c.tenant_id = $1 and c.model = $2', space.own)
            using space.tenant_id, space.model;
    end if;
    return null;
end $$;
revoke all on function memory.mirror() from public;
create trigger mirror_added after insert on memory.vectors
    referencing new table as changed for each statement execute function memory.mirror();
create trigger mirror_removed after delete on memory.vectors
    referencing old table as changed for each statement execute function memory.mirror();
