-- Webhooks to which events of a tenant are sent (decision 0081).
create table control.event_webhooks (
    tenant_id   uuid not null references control.tenants on delete cascade,
    webhook_id  uuid not null,
    name        text not null check (name ~ '^[a-z0-9][a-z0-9_-]{0,63}$'),
    url         text not null check (octet_length(url) <= 2000),
    -- Sealed with the tenant's data key.
    secret      bytea not null,
    -- The secret before the last rotation, with which requests are signed too until then.
    old_secret  bytea,
    old_secret_until timestamptz,
    -- See `session::EventFilter`.
    types       text[] not null default '{}',
    agent_id    uuid,
    session_id  uuid,
    channel     text,
    include_content boolean not null default false,
    state       text not null default 'active' check (state in ('active', 'disabled')),
    -- Why it is disabled.
    reason      text not null default '',
    created_at  timestamptz not null default now(),

    primary key (tenant_id, webhook_id),
    constraint event_webhooks_name unique (tenant_id, name)
);
grant select, insert, update, delete on control.event_webhooks to holdfast_app;
grant select (tenant_id, webhook_id, state) on control.event_webhooks to holdfast_system;
create trigger audit_1_note after insert or update or delete on control.event_webhooks
    for each row when (current_setting('holdfast.change', true) <> '')
    execute function control.note_change('url');

-- Up to where a webhook has been served, and how it fares. The table is of crates/session.
create table session.webhook_cursors (
    tenant_id   uuid not null,
    webhook_id  uuid not null,
    -- Events up to here were accepted, are held, or are not wanted.
    position    bigint not null,
    -- No further event is sent before this time.
    next_at     timestamptz not null default now(),
    -- Attempts that failed since the last one that succeeded, and when the first of them did.
    failures    integer not null default 0,
    failing_since timestamptz,
    last_error  text not null default '',
    succeeded_at timestamptz,

    primary key (tenant_id, webhook_id)
);
-- Events that a webhook has not accepted, and later ones of the same session, which wait for them.
create table session.webhook_events (
    tenant_id   uuid not null,
    webhook_id  uuid not null,
    position    bigint not null,
    -- All zeros if the event has no session.
    session_id  uuid not null,
    event       jsonb not null,
    attempts    integer not null default 0,
    -- When the first attempt failed; null before that.
    failed_at   timestamptz,
    next_at     timestamptz not null default now(),
    -- When it was given up.
    dead_at     timestamptz,
    reason      text not null default '',

    primary key (tenant_id, webhook_id, position)
);
create index webhook_events_due on session.webhook_events (next_at) where dead_at is null;
create index webhook_events_dead on session.webhook_events (dead_at) where dead_at is not null;

do $$
declare
    name text;
begin
    foreach name in array array['control.event_webhooks', 'session.webhook_cursors', 'session.webhook_events'] loop
        execute format('alter table %s enable row level security', name);
        execute format('alter table %s force row level security', name);
        execute format('create policy one_tenant on %s to holdfast_app using (tenant_id = control.tenant())', name);
        execute format('create policy all_tenants on %s to holdfast_system using (true)', name);
    end loop;
end $$;
grant select, insert, update, delete on session.webhook_cursors, session.webhook_events to holdfast_app;
grant select (tenant_id, webhook_id, position, next_at) on session.webhook_cursors to holdfast_system;
grant select (tenant_id, webhook_id, next_at, dead_at), delete on session.webhook_events to holdfast_system;
