-- Skills: who installed which, from where; what a tenant allows of that; which were used (SKL-012,
-- SKL-017, CTX-012). Owned by crates/workspace: an installation is one commit of a tree.
--
-- The skills themselves are files: an agent's in its own tree, its tenant's in a tree of its own
-- that has the tenant's id for an agent's (decision 0034).

-- What a tenant allows; none is what is usual.
create table workspace.skill_policies (
    tenant_id   uuid not null,
    document    jsonb not null check (octet_length(document::text) <= 16384),
    updated_by  text not null check (length(updated_by) between 1 and 200),
    updated_at  timestamptz not null default clock_timestamp(),

    primary key (tenant_id)
);

-- One row for each change that somebody made to a skill by name. Written in the transaction that
-- changes the tree, and never again.
create table workspace.skill_changes (
    tenant_id   uuid not null,
    change_id   uuid not null,
    -- Whose tree: the agent's, or the tenant's.
    agent_id    uuid not null,
    action      text not null check (action in ('install', 'put', 'remove')),
    skill       text not null check (length(skill) between 1 and 64),
    -- The revision of the tree that it made.
    revision    bigint not null,
    -- A person's or a key's id, or an agent's name.
    actor       text not null check (length(actor) between 1 and 200),
    registry    text not null default '' check (length(registry) <= 64),
    version     text not null default '' check (length(version) <= 64),
    -- Over paths and contents, in hexadecimal; empty where it was removed.
    sha256      text not null default '' check (length(sha256) in (0, 64)),
    -- What the registry warned of.
    warning     text not null default '' check (length(warning) <= 2000),
    -- The key that it was asked for with: asked again, it is answered by this row.
    idem_key    text not null check (octet_length(idem_key) between 1 and 256),
    created_at  timestamptz not null default clock_timestamp(),

    primary key (change_id, tenant_id)
);
create unique index skill_changes_key on workspace.skill_changes (idem_key, agent_id, tenant_id);
-- For lists: only a query that says its condition can use it.
create index skill_changes_listed on workspace.skill_changes (tenant_id, change_id) where skill <> '';

-- That a skill was read in a session: how often, and when last.
create table workspace.skill_uses (
    tenant_id   uuid not null,
    agent_id    uuid not null,
    skill       text not null check (length(skill) between 1 and 64),
    session_id  uuid not null,
    uses        bigint not null default 1,
    first_at    timestamptz not null default clock_timestamp(),
    last_at     timestamptz not null default clock_timestamp(),
    -- The call that read it last, which counts once however often it is made.
    last_key    text not null check (octet_length(last_key) <= 512),

    primary key (agent_id, skill, session_id, tenant_id)
) with (fillfactor = 80);

do $$
declare
    name text;
begin
    foreach name in array array['skill_policies', 'skill_changes', 'skill_uses'] loop
        execute format('alter table workspace.%I enable row level security', name);
        execute format('alter table workspace.%I force row level security', name);
        execute format(
            'create policy one_tenant on workspace.%I to holdfast_app using (tenant_id = control.tenant())',
            name);
        execute format('grant select, insert on workspace.%I to holdfast_app', name);
    end loop;
end $$;

grant update (document, updated_by, updated_at) on workspace.skill_policies to holdfast_app;
grant update (uses, last_at, last_key), delete on workspace.skill_uses to holdfast_app;

-- A rule that came with a package leads nowhere until somebody approves it (SKL-014).
alter table control.rules add column disabled boolean not null default false;
