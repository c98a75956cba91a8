-- People of a tenant, however they sign in (decision 0107). Until here they were those of identity
-- providers only. A person without a provider has the issuer `invitation`, and as their subject the id of
-- the invitation, or `owner` for the first owner of a tenant.
alter table control.people
    -- Time zone and language, if the person chose any.
    add column zone text check (octet_length(zone) between 1 and 64),
    add column language text check (octet_length(language) between 1 and 35),
    -- Id of the key or the person who invited them, or `operator`.
    add column invited_by text check (octet_length(invited_by) between 1 and 64),
    -- Whether they operate the installation: they may do what needs the scope `platform`.
    add column operates boolean not null default false;

-- By what a person is known.
create table control.person_identities (
    tenant_id uuid not null references control.tenants on delete cascade,
    -- sign_in     issuer and subject, with a space between
    -- invitation  id of the invitation, or `owner`
    -- key         id of an API key that is bound to the person
    -- account     account of a channel: `telegram:42`
    -- mail        address
    -- api_user    user that a program names
    kind      text not null
              check (kind in ('sign_in', 'invitation', 'key', 'account', 'mail', 'api_user')),
    value     text not null check (octet_length(value) between 1 and 1300),
    person_id uuid not null,
    proven_at timestamptz not null default now(),

    primary key (tenant_id, kind, value),
    foreign key (tenant_id, person_id) references control.people on delete cascade
);
create index person_identities_person on control.person_identities (tenant_id, person_id);

-- An API key may be a person's: it is refused when they are, and its calls are theirs.
alter table control.keys
    add column person_id uuid,
    add constraint keys_person foreign key (tenant_id, person_id) references control.people on delete cascade;
create index keys_person on control.keys (tenant_id, person_id) where person_id is not null;

-- Invitations that were not accepted yet. Accepting one creates its person, and deletes the row.
create table control.invitations (
    tenant_id     uuid not null references control.tenants on delete cascade,
    invitation_id uuid not null,
    -- HMAC-SHA-256 of the link's secret with the platform's pepper.
    digest        bytea not null,
    name          text not null check (length(name) between 1 and 200),
    -- The role that the person gets.
    role          text not null check (octet_length(role) between 1 and 32),
    -- Id of the key or the person who invites.
    invited_by    text not null check (octet_length(invited_by) between 1 and 64),
    created_at    timestamptz not null default now(),
    expires_at    timestamptz not null,

    primary key (tenant_id, invitation_id),
    constraint invitations_id_key unique (invitation_id)
);

-- Sessions of the console and the links that begin them end with what they were made from.
alter table control.console_sessions
    -- Key with whose link it was begun for a person: it ends with the key too.
    add column via_key uuid,
    -- When its person proved themselves: with a key, an invitation, or at an identity provider. A session
    -- begun with the link of another session has the time of that one. Null: when it was created.
    add column signed_in_at timestamptz;
alter table control.console_links
    add column via_key uuid,
    add column signed_in_at timestamptz,
    -- End of the session that made it, which the new session has too; null if a key made it.
    add column session_expires_at timestamptz;

-- Refresh tokens of people who signed in at an identity provider: with it the provider is asked again
-- whether the person is one of its people. The newest of each person.
create table control.provider_sign_ins (
    tenant_id     uuid not null references control.tenants on delete cascade,
    person_id     uuid not null,
    issuer        text not null check (octet_length(issuer) between 1 and 1000),
    client_id     text not null check (octet_length(client_id) between 1 and 1000),
    -- Sealed with the tenant's data key.
    refresh_token bytea not null,
    -- When the provider was last asked, or a process began to ask it.
    checked_at    timestamptz not null default now(),

    primary key (tenant_id, person_id),
    foreign key (tenant_id, person_id) references control.people on delete cascade
);

-- A device is somebody's, beside whom its rights are from.
alter table control.devices
    -- Id of the key or the person with whose credential it asked to be paired.
    add column paired_by text check (octet_length(paired_by) <= 64),
    -- Whose it is: it ends with them.
    add column person_id uuid,
    add constraint devices_person foreign key (tenant_id, person_id) references control.people on delete cascade;
alter table control.device_requests
    add column asked_by text check (octet_length(asked_by) <= 64),
    add column person_id uuid;

-- Through what a person made a change: `console/<session>`, or `device/<device>/<its approver>`.
alter table control.audit add column via text check (octet_length(via) <= 256);
create or replace function control.complete_audit() returns trigger language plpgsql as
$$
begin
    new.request_id := coalesce(new.request_id, control.change_field(1));
    new.method := coalesce(new.method, control.change_field(2));
    new.via := coalesce(new.via, control.change_field(4));
    new.changes := coalesce(new.changes, nullif(current_setting('holdfast.noted', true), '')::jsonb);
    perform set_config('holdfast.noted', '', true);
    return new;
end
$$;

-- Each person has an identity from the beginning, whichever version of the gateway stores them.
create function control.note_first_identity() returns trigger language plpgsql as
$$
begin
    insert into control.person_identities (tenant_id, kind, value, person_id)
    values (new.tenant_id,
            case new.issuer when 'invitation' then 'invitation' else 'sign_in' end,
            case new.issuer when 'invitation' then new.subject else new.issuer || ' ' || new.subject end,
            new.person_id)
    on conflict do nothing;
    return null;
end
$$;
grant execute on function control.note_first_identity() to holdfast_app;
create trigger note_first_identity after insert on control.people
    for each row execute function control.note_first_identity();

-- The owner of the table is bound by its policies too.
alter table control.people no force row level security;
insert into control.person_identities (tenant_id, kind, value, person_id, proven_at)
select tenant_id, 'sign_in', issuer || ' ' || subject, person_id, created_at from control.people;
alter table control.people force row level security;

do $$
declare
    name text;
begin
    foreach name in array array['person_identities', 'invitations', 'provider_sign_ins'] loop
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

-- The one way from an invitation's token to its tenant; see `control.find_key`.
create policy find_invitation on control.invitations for select to current_user using (true);
create function control.find_invitation(wanted uuid) returns table (tenant_id uuid)
    language sql stable security definer set search_path = pg_catalog as
$$ select i.tenant_id from control.invitations i where i.invitation_id = wanted $$;
revoke all on function control.find_invitation(uuid) from public;
grant execute on function control.find_invitation(uuid) to holdfast_system;

-- As `control.find_key_with_limits`, with the key's person.
create policy find_key_person on control.people for select to current_user using (true);
create function control.find_key_with_person(wanted uuid)
    returns table (
        tenant_id uuid, name text, digest bytea, scopes text[], rate integer,
        live boolean, tenant_state text, concurrent_calls bigint, person_id uuid, role text
    )
    language sql stable security definer set search_path = pg_catalog as
$$
    select k.tenant_id, k.name, k.digest, k.scopes, t.rate,
           k.revoked_at is null and (k.expires_at is null or k.expires_at > now())
               and p.disabled_at is null,
           t.state, (t.limits ->> 'concurrent_calls')::bigint, k.person_id, p.role
    from control.keys k
    join control.tenants t using (tenant_id)
    left join control.people p on p.tenant_id = k.tenant_id and p.person_id = k.person_id
    where k.key_id = wanted
$$;
revoke all on function control.find_key_with_person(uuid) from public;
grant execute on function control.find_key_with_person(uuid) to holdfast_system;

-- The UUID in an id such as `per_…`; null if the text is no id of this kind.
create function control.id_of(prefix text, id text) returns uuid language sql immutable as
$$
    select case when id ~ ('^' || prefix || '_[0-9a-f]{32}$')
           then substring(id from length(prefix) + 2)::uuid end
$$;
grant execute on function control.id_of(text, text) to holdfast_app;

-- The name that people know behind an id; null if there is none.
create function control.name_of(tenant uuid, id text) returns text language sql stable as
$$
    select case split_part(id, '_', 1)
        when 'per' then (select name from control.people
                         where tenant_id = tenant and person_id = control.id_of('per', id))
        when 'key' then (select name from control.keys
                         where tenant_id = tenant and key_id = control.id_of('key', id))
        when 'agt' then (select name from control.agents
                         where tenant_id = tenant and agent_id = control.id_of('agt', id))
        when 'acc' then (select channel || ' ' || name from control.accounts
                         where tenant_id = tenant and account_id = control.id_of('acc', id))
        when 'inv' then (select name from control.invitations
                         where tenant_id = tenant and invitation_id = control.id_of('inv', id))
        when 'job' then (select name from schedule.jobs
                         where tenant_id = tenant and job_id = control.id_of('job', id))
        when 'apr' then (select tool from session.approvals
                         where tenant_id = tenant and approval_id = control.id_of('apr', id))
        else (select name from control.devices where tenant_id = tenant and device_id = id)
    end
$$;
grant execute on function control.name_of(uuid, text) to holdfast_app;
