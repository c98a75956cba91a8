-- Up to where the turns of each conversation are indexed in the memory service, so that later
-- conversations of the same person find them (docs/memory-use.md).

-- One row for each conversation that was indexed, or is being indexed.
create table session.turn_index (
    tenant_id   uuid not null,
    session_id  uuid not null,
    -- `seq` of the last journal entry that is indexed, or that is none to index.
    upto        bigint not null default 0,
    -- Until this time no other runner indexes the conversation; null if nobody does.
    lease_until timestamptz,
    updated_at  timestamptz not null default clock_timestamp(),

    primary key (tenant_id, session_id)
);
alter table session.turn_index enable row level security;
alter table session.turn_index force row level security;
create policy one_tenant on session.turn_index to holdfast_app using (tenant_id = control.tenant());
grant select, insert, update, delete on session.turn_index to holdfast_app;
create policy all_tenants on session.turn_index for select to holdfast_system using (true);
grant select (tenant_id, session_id, upto, lease_until) on session.turn_index to holdfast_system;
-- Claims that were not finished.
create index turn_index_open on session.turn_index (lease_until) where lease_until is not null;
