-- Sessions of the web console, and one-time links that begin one (decision 0102).
-- A session has no rights of its own: it may do what the key or person behind it may do at the time of
-- the call, and of that what its scopes include.

create table control.console_sessions (
    tenant_id     uuid not null references control.tenants on delete cascade,
    session_id    uuid not null,
    -- HMAC-SHA-256 of its token's secret with the platform's pepper.
    digest        bytea not null,
    -- Whose rights it has: exactly one.
    holder_key    uuid,
    holder_person uuid,
    -- Scopes that limit it; null if nothing does.
    scopes        text[] check (cardinality(scopes) > 0),
    -- As people see its holder.
    name          text not null check (octet_length(name) between 1 and 800),
    method        text not null check (method in ('key', 'link', 'oidc')),
    created_at    timestamptz not null default now(),
    -- Exact to a few minutes.
    used_at       timestamptz not null default now(),
    expires_at    timestamptz not null,

    primary key (tenant_id, session_id),
    constraint console_sessions_id_key unique (session_id),
    constraint console_sessions_holder check (num_nonnulls(holder_key, holder_person) = 1)
);

-- Links that were not used yet. Using one deletes its row.
create table control.console_links (
    tenant_id     uuid not null references control.tenants on delete cascade,
    link_id       uuid not null,
    digest        bytea not null,
    holder_key    uuid,
    holder_person uuid,
    scopes        text[] check (cardinality(scopes) > 0),
    name          text not null check (octet_length(name) between 1 and 800),
    created_at    timestamptz not null default now(),
    expires_at    timestamptz not null,

    primary key (tenant_id, link_id),
    constraint console_links_id_key unique (link_id),
    constraint console_links_holder check (num_nonnulls(holder_key, holder_person) = 1)
);

do $$
declare
    name text;
begin
    foreach name in array array['console_sessions', 'console_links'] loop
        execute format('alter table control.%I enable row level security', name);
        execute format('alter table control.%I force row level security', name);
        execute format(
            'create policy one_tenant on control.%I to holdfast_app using (tenant_id = control.tenant())',
            name);
        execute format('grant select, insert, update, delete on control.%I to holdfast_app', name);
        execute format(
            'create trigger audit_1_note after insert or update or delete on control.%I
             for each row when (current_setting(''holdfast.change'', true) <> '''')
             execute function control.note_change()', name);
    end loop;
end $$;

-- The one way from a session's or a link's token to its tenant; see `control.find_key`.
create policy find_console_session on control.console_sessions for select to current_user using (true);
create function control.find_console_session(wanted uuid) returns table (tenant_id uuid)
    language sql stable security definer set search_path = pg_catalog as
$$ select s.tenant_id from control.console_sessions s where s.session_id = wanted $$;
revoke all on function control.find_console_session(uuid) from public;
grant execute on function control.find_console_session(uuid) to holdfast_system;

create policy find_console_link on control.console_links for select to current_user using (true);
create function control.find_console_link(wanted uuid) returns table (tenant_id uuid)
    language sql stable security definer set search_path = pg_catalog as
$$ select l.tenant_id from control.console_links l where l.link_id = wanted $$;
revoke all on function control.find_console_link(uuid) from public;
grant execute on function control.find_console_link(uuid) to holdfast_system;
