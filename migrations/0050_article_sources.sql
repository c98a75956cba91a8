-- From which conversations the words of articles come: they go with the conversation, or with whoever
-- it was with (services/memory/src/keep/sources.rs). What was kept before this says so of none.

alter table memory.documents
    -- The highest number that a version of it had before this one: none is given twice, also where
    -- the newest was erased.
    add column last_version integer not null default 0;

alter table memory.versions
    -- Of an article for all agents: somebody who may change those wrote it or let it in. It stays
    -- when the conversation that brought it is forgotten, and names it no more.
    add column approved boolean not null default false;

create table memory.sources (
    tenant_id   uuid not null,
    document_id uuid not null,
    version     integer not null,
    -- The session in which it was written, and whose that is; empty is none.
    session     text not null default '' check (octet_length(session) <= 256),
    user_id     text not null default '' check (octet_length(user_id) <= 256),

    primary key (document_id, version, session, user_id, tenant_id),
    constraint sources_somebody check (session <> '' or user_id <> ''),
    constraint sources_version_fkey foreign key (document_id, version, tenant_id)
        references memory.versions on delete cascade
);
create index sources_of_session on memory.sources (session) where session <> '';
create index sources_of_user on memory.sources (user_id) where user_id <> '';

alter table memory.sources enable row level security;
alter table memory.sources force row level security;
create policy one_tenant on memory.sources to holdfast_app using (tenant_id = control.tenant());
create policy all_tenants on memory.sources to holdfast_system using (true);
-- For the foreign key where the owner is no superuser.
create policy owner on memory.sources to current_user using (true);
grant select, insert, update, delete on memory.sources to holdfast_app;
