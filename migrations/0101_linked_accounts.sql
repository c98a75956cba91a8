-- Accounts that people link themselves (decision 0087). The links are rows of control.identities, with
-- a canonical of the form `=telegram:42`.

-- A code that a person asked for on one account, to be sent from another.
create table control.link_codes (
    tenant_id  uuid not null references control.tenants on delete cascade,
    -- SHA-256 of the tenant's id and the code.
    code_hash  bytea not null check (octet_length(code_hash) = 32),
    -- The account that asked.
    channel    text not null check (octet_length(channel) between 1 and 256),
    account    text not null check (octet_length(account) between 1 and 256),
    peer       text not null check (octet_length(peer) between 1 and 256),
    -- Name of the person to whom the other account will be linked.
    person     text not null check (octet_length(person) between 1 and 256),
    -- Names by which the person was known before.
    former     text[] not null,
    -- Roles of the account that asked.
    roles      text[] not null,
    -- Where the account that asked is told.
    target     jsonb not null,
    expires_at timestamptz not null,
    -- SHA-256 of the account that sent the code: a repetition after a crash finds it.
    used_by    bytea check (octet_length(used_by) = 32),

    primary key (tenant_id, code_hash),
    constraint link_codes_account_key unique (tenant_id, channel, account, peer)
);

-- Codes that did not exist, by the account that sent them.
create table control.link_attempts (
    tenant_id    uuid not null references control.tenants on delete cascade,
    account_hash bytea not null check (octet_length(account_hash) = 32),
    failures     integer not null,
    since        timestamptz not null default clock_timestamp(),

    primary key (tenant_id, account_hash)
);

do $$
declare
    name text;
begin
    foreach name in array array['link_codes', 'link_attempts'] loop
        execute format('alter table control.%I enable row level security', name);
        execute format('alter table control.%I force row level security', name);
        execute format(
            'create policy one_tenant on control.%I to holdfast_app using (tenant_id = control.tenant())',
            name);
        execute format('grant select, insert, update, delete on control.%I to holdfast_app', name);
    end loop;
end $$;

create index zones_of_person on session.zones (tenant_id, person);

-- Gives everything that is remembered of one user to another: they are the same person. Of values and
-- facts that both have, the other user's counts; the first user's stays in its history. Runs as the
-- owner, because a tenant's own table of vectors is written by nobody else; the tenant is the
-- transaction's, and no argument. Returns the number of items and turns.
create function memory.move_user(former text, latter text) returns bigint
    language plpgsql security definer
    set search_path = pg_catalog, public
as $$
declare
    tenant uuid := control.tenant();
    own text;
    moved bigint;
    rows bigint;
begin
    if former = '' or latter = '' or former = latter then
        return 0;
    end if;
    -- As everybody who writes vectors: the space first.
    perform from memory.spaces s where s.tenant_id = tenant for share;
    perform from memory.items i where i.tenant_id = tenant and i.user_id in (former, latter)
        order by i.item_id for update;
    with known as (
        update memory.items f set superseded_by = t.item_id, superseded_at = clock_timestamp()
        from memory.items t
        where f.tenant_id = tenant and f.user_id = former and f.kind in (2, 3)
          and f.superseded_at is null
          and t.tenant_id = tenant and t.user_id = latter and t.superseded_at is null
          and (t.subject, t.predicate, t.kind, t.agent_id) = (f.subject, f.predicate, f.kind, f.agent_id)
        returning f.item_id)
    delete from memory.units u using known k where u.tenant_id = tenant and u.source_id = k.item_id;
    update memory.items i set user_id = latter where i.tenant_id = tenant and i.user_id = former;
    get diagnostics moved = row_count;
    update memory.documents d set user_id = latter
    where d.tenant_id = tenant and d.user_id = former
      and not exists (
          select from memory.documents t
          where t.tenant_id = tenant and t.user_id = latter and t.kind = d.kind
            and t.agent_id = d.agent_id and t.path = d.path);
    -- The same turn is stored twice if a conversation was continued under both names.
    delete from memory.units u using memory.units t
    where u.tenant_id = tenant and u.user_id = former and u.kind = 5
      and t.tenant_id = tenant and t.user_id = latter and t.kind = 5
      and (t.ref, t.session, t.agent_id) = (u.ref, u.session, u.agent_id);
    update memory.vectors v set user_id = latter
    where v.tenant_id = tenant and v.user_id = former;
    for own in
        select relname::text from pg_class
        where relnamespace = 'memory'::regnamespace and relkind = 'r'
          and relname like 'own\_' || replace(tenant::text, '-', '') || '\_%'
    loop
        execute format('update memory.%I set user_id = $2 where user_id = $1', own)
            using former, latter;
    end loop;
    update memory.units u
    set user_id = latter,
        words = ts_delete(u.words, btrim(memory.mark(tenant, u.agent_id, former), ''''))
                || memory.mark(tenant, u.agent_id, latter)::tsvector
    where u.tenant_id = tenant and u.user_id = former;
    get diagnostics rows = row_count;
    insert into memory.authors (tenant_id, agent_id, user_id, name)
    select a.tenant_id, a.agent_id, latter, a.name from memory.authors a
    where a.tenant_id = tenant and a.user_id = former
    on conflict do nothing;
    delete from memory.authors a where a.tenant_id = tenant and a.user_id = former;
    return moved + rows;
end $$;
revoke all on function memory.move_user(text, text) from public;
grant execute on function memory.move_user(text, text) to holdfast_app;
