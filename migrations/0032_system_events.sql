-- System events: short texts that wait for a conversation's next turn and are read with it, without
-- a turn of their own (docs/schedules.md, decision 0031).

create table session.system_events (
    tenant_id  uuid not null,
    event_id   bigint generated always as identity,
    -- The conversation, by its canonical key: there may be events before anybody spoke in it.
    key        text not null check (octet_length(key) between 1 and 512),
    -- What makes it the same one when it is told again.
    idem_key   text not null check (octet_length(idem_key) between 1 and 256),
    text       text not null check (length(text) between 1 and 16384),
    created_at timestamptz not null default clock_timestamp(),
    -- When a turn had read it, or newer ones had taken its place. It stays for a while, so that it is
    -- known when it is told again.
    gone_at    timestamptz,

    primary key (event_id, tenant_id),
    constraint system_events_idem_key unique (idem_key, tenant_id)
);
create index system_events_waiting on session.system_events (key, event_id) where gone_at is null;
create index system_events_gone on session.system_events (gone_at) where gone_at is not null;

alter table session.system_events enable row level security;
alter table session.system_events force row level security;
create policy one_tenant on session.system_events to holdfast_app using (tenant_id = control.tenant());
grant select, insert, update, delete on session.system_events to holdfast_app;
