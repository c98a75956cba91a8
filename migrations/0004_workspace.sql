-- The agents' files: a versioned tree each. Owned by crates/workspace.
--
-- What is here is kept until its agent is forgotten: history is what makes every change undoable,
-- so a revision, its changes and the contents that it names stay (docs/operating.md).
--
-- As 0003 explains, each index begins with what is selective.

create schema workspace;
grant usage on schema workspace to holdfast_app;

-- One row for each tree: its lock, where its history ends, and what is in it, so that a limit is
-- checked without counting.
create table workspace.trees (
    tenant_id   uuid not null,
    agent_id    uuid not null,
    head        bigint not null default 0,
    files       integer not null default 0 check (files >= 0),
    bytes       bigint not null default 0 check (bytes >= 0),
    created_at  timestamptz not null default now(),

    primary key (agent_id, tenant_id)
) with (fillfactor = 80);

-- What files say, each text once in a tenant and never shared between two.
create table workspace.contents (
    tenant_id   uuid not null,
    -- SHA-256 of the content.
    hash        bytea not null check (octet_length(hash) = 32),
    content     bytea not null,
    created_at  timestamptz not null default now(),

    primary key (hash, tenant_id)
);

-- The trees as they are now, so that reading and listing fold no history.
create table workspace.files (
    tenant_id   uuid not null,
    agent_id    uuid not null,
    -- By bytes, so that what is in a folder stands together.
    path        text collate "C" not null check (octet_length(path) between 1 and 512),
    hash        bytea not null,
    size        bigint not null check (size >= 0),
    -- The revision that changed it last, and when that was.
    revision    bigint not null,
    changed_at  timestamptz not null,

    primary key (agent_id, path, tenant_id)
) with (fillfactor = 85);

-- Who changed a tree, in which run, and why.
create table workspace.revisions (
    tenant_id   uuid not null,
    agent_id    uuid not null,
    revision    bigint not null check (revision > 0),
    author      text not null check (length(author) between 1 and 200),
    run_id      uuid,
    reason      text not null check (length(reason) <= 2000),
    -- The same key again answers with this revision; with another request it is refused.
    idem_key    text check (octet_length(idem_key) between 1 and 256),
    request     bytea not null,
    -- How many files it changed; none if it only remembers its key.
    changed     integer not null,
    created_at  timestamptz not null default clock_timestamp(),

    primary key (agent_id, revision, tenant_id)
);
create unique index revisions_idem_key on workspace.revisions (idem_key, agent_id, tenant_id)
    where idem_key is not null;

-- What each revision did. A hash that is null is no file.
create table workspace.changes (
    tenant_id   uuid not null,
    agent_id    uuid not null,
    revision    bigint not null,
    path        text collate "C" not null,
    old_hash    bytea,
    old_size    bigint,
    new_hash    bytea,
    new_size    bigint,

    primary key (agent_id, path, revision, tenant_id),
    check (old_hash is distinct from new_hash)
);
create index changes_of_revision on workspace.changes (agent_id, revision, path);
-- Whether somebody still needs a content.
create index changes_of_content on workspace.changes (new_hash, tenant_id) where new_hash is not null;

do $$
declare
    name text;
begin
    foreach name in array array['trees', 'contents', 'files', 'revisions', 'changes'] loop
        execute format('alter table workspace.%I enable row level security', name);
        execute format('alter table workspace.%I force row level security', name);
        execute format(
            'create policy one_tenant on workspace.%I to holdfast_app using (tenant_id = control.tenant())',
            name);
        -- Deleting: a file that was, and a tree whose agent is forgotten.
        execute format('grant select, insert, delete on workspace.%I to holdfast_app', name);
    end loop;
end $$;

-- History is written once: what a revision said and did, and what a file said, cannot be changed.
grant update (head, files, bytes) on workspace.trees to holdfast_app;
grant update (hash, size, revision, changed_at) on workspace.files to holdfast_app;
