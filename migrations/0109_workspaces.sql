-- Named workspaces (docs/decisions/0095-workspaces.md): folders of an agent's tree to which sessions are
-- bound. A session's local workspace is `session.session_lease.workspace`, by which claims exclude
-- each other.
create table workspace.named (
    tenant_id    uuid not null,
    workspace_id uuid not null,
    agent_id     uuid not null,
    name         text not null check (length(name) between 1 and 96),
    -- Path in the agent's tree.
    folder       text collate "C" not null,
    kind         text not null check (kind in ('folder', 'git')),
    -- Who made it: the agent, or a person.
    owner_kind   text not null check (owner_kind in ('agent', 'person')),
    owner        text not null,
    status       text not null default 'ready' check (status in ('ready', 'archived')),
    -- Until when a session keeps it: the end of its turn, or until its todos are finished, too.
    lock_mode    text not null default 'session' check (lock_mode in ('session', 'todo_drain')),
    created_at   timestamptz not null default clock_timestamp(),

    primary key (tenant_id, workspace_id),
    constraint named_folder unique (tenant_id, agent_id, folder)
);
alter table workspace.named enable row level security;
alter table workspace.named force row level security;
create policy one_tenant on workspace.named to holdfast_app using (tenant_id = control.tenant());
grant select, insert, delete on workspace.named to holdfast_app;
grant update (status) on workspace.named to holdfast_app;

-- Whether a session keeps the workspace after its turn, with the lease `infinity`, until its todos are
-- finished.
alter table session.workspace_lease add column drains boolean not null default false;

-- Session, behaviour, step and todo of a change that a step of a behaviour made.
alter table workspace.revisions add column step jsonb;
