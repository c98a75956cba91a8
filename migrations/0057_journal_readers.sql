-- Background readers of journals record their positions in one table: memory extraction, and the
-- index of conversation turns (docs/memory-use.md).

-- One row for each conversation and reader.
create table session.journal_readers (
    tenant_id   uuid not null,
    session_id  uuid not null,
    reader      text not null check (reader in ('extraction', 'turn_index')),
    -- `seq` of the last entry that was read.
    upto        bigint not null default 0,
    -- `seq` of the last entry of the claimed range. A range that is claimed again is the same.
    pending     bigint check (pending > upto),
    -- Until this time no other process claims the range.
    lease_until timestamptz,
    -- Failed claims of the range.
    tries       integer not null default 0,
    updated_at  timestamptz not null default clock_timestamp(),

    primary key (session_id, reader, tenant_id)
);

-- The owner of the tables is subject to their policies too.
alter table session.extractions no force row level security;
alter table session.turn_index no force row level security;
insert into session.journal_readers
select tenant_id, session_id, 'extraction', upto, pending, lease_until, tries, updated_at
from session.extractions;
-- A claim without a recorded range is claimed again for the next entry.
insert into session.journal_readers
select tenant_id, session_id, 'turn_index', upto,
       case when lease_until is not null then upto + 1 end, lease_until, 0, updated_at
from session.turn_index;
drop table session.extractions;
drop table session.turn_index;

alter table session.journal_readers enable row level security;
alter table session.journal_readers force row level security;
create policy one_tenant on session.journal_readers to holdfast_app
    using (tenant_id = control.tenant());
grant select, insert, update, delete on session.journal_readers to holdfast_app;
create policy all_tenants on session.journal_readers for select to holdfast_system using (true);
grant select (tenant_id, session_id, reader, upto, pending, lease_until)
    on session.journal_readers to holdfast_system;
-- Claims that were not finished.
create index journal_readers_open on session.journal_readers (lease_until)
    where pending is not null;
