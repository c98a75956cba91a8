-- What agents remember, as far as sessions and files must know of it (docs/memory-use.md): how far
-- what is worth remembering was taken from each conversation, and which agents' notes are to be
-- indexed. What is remembered itself is the memory service's.

-- One row for each conversation from which something was taken, or is being taken.
create table session.extractions (
    tenant_id   uuid not null,
    session_id  uuid not null,
    -- What was taken: all entries of the journal up to this one.
    upto        bigint not null default 0,
    -- What is being taken: all up to this one. It stays the same until it was taken, whoever does
    -- it, so that what is taken twice is known by its place.
    pending     bigint check (pending > upto),
    -- Until when nobody else takes it.
    lease_until timestamptz,
    tries       integer not null default 0,
    updated_at  timestamptz not null default clock_timestamp(),

    primary key (tenant_id, session_id)
);
alter table session.extractions enable row level security;
alter table session.extractions force row level security;
create policy one_tenant on session.extractions to holdfast_app using (tenant_id = control.tenant());
grant select, insert, update, delete on session.extractions to holdfast_app;
create policy all_tenants on session.extractions for select to holdfast_system using (true);
grant select (tenant_id, session_id, upto, pending, lease_until, tries) on session.extractions
    to holdfast_system;
-- Which conversations are anybody's own is found out before a tenant is known.
create policy all_tenants on session.sessions for select to holdfast_system using (true);
grant select (tenant_id, session_id, kind, label) on session.sessions to holdfast_system;
-- What was begun and not ended.
create index extractions_open on session.extractions (lease_until) where pending is not null;

alter table workspace.trees
    -- The revision that changed a note last (`MEMORY.md`, or what is under `memory/`), and up to which
    -- notes are indexed.
    add column noted       bigint not null default 0,
    add column indexed     bigint not null default 0,
    -- Until when nobody else indexes them.
    add column index_until timestamptz;
create index trees_to_index on workspace.trees (index_until) where noted > indexed;
grant update (noted, indexed, index_until) on workspace.trees to holdfast_app;
grant select (noted, indexed, index_until) on workspace.trees to holdfast_system;
