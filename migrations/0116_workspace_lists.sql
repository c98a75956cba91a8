-- Lists of workspaces (docs/decisions/0100-shared-lists-and-moving-agents.md). The sessions that work in a
-- workspace share its list: one with the id of the workspace, to which the session's own list is
-- renamed if the workspace has none.
alter table work.todos drop constraint todos_tenant_id_list_id_fkey,
    add constraint todos_list foreign key (tenant_id, list_id)
        references work.lists (tenant_id, list_id) on delete cascade on update cascade;
alter table work.todo_ops drop constraint todo_ops_tenant_id_list_id_fkey,
    add constraint todo_ops_list foreign key (tenant_id, list_id)
        references work.lists (tenant_id, list_id) on delete cascade on update cascade;
alter table work.wakeups drop constraint wakeups_tenant_id_list_id_fkey,
    add constraint wakeups_list foreign key (tenant_id, list_id)
        references work.lists (tenant_id, list_id) on delete cascade on update cascade;
alter table work.worklog drop constraint worklog_tenant_id_list_id_fkey,
    add constraint worklog_list foreign key (tenant_id, list_id)
        references work.lists (tenant_id, list_id) on delete cascade on update cascade;

-- A list is deleted with its session, or with its workspace.
alter table work.lists drop constraint lists_session,
    add column session_id uuid
        generated always as (case when workspace_id is null then list_id end) stored;
alter table work.lists
    add constraint lists_session foreign key (tenant_id, session_id)
        references session.sessions (tenant_id, session_id) on delete cascade,
    add constraint lists_workspace foreign key (tenant_id, workspace_id)
        references workspace.named (tenant_id, workspace_id) on delete cascade,
    add constraint lists_of_workspaces check (workspace_id is null or workspace_id = list_id);

-- Root sessions that work on the list of a workspace.
create table work.list_members (
    tenant_id  uuid not null,
    session_id uuid not null,
    list_id    uuid not null,

    primary key (tenant_id, session_id),
    constraint list_members_session foreign key (tenant_id, session_id)
        references session.sessions (tenant_id, session_id) on delete cascade,
    constraint list_members_list foreign key (tenant_id, list_id)
        references work.lists (tenant_id, list_id) on delete cascade
);
create index list_members_of_list on work.list_members (tenant_id, list_id);
alter table work.list_members enable row level security;
alter table work.list_members force row level security;
create policy one_tenant on work.list_members to holdfast_app
    using (tenant_id = control.tenant());
grant select, insert, update, delete on work.list_members to holdfast_app;

-- Root session of a record in the worklog of a workspace. The record is deleted with it, and shown in
-- prompts of its own family only.
alter table work.worklog add column member_id uuid;
alter table work.worklog add constraint worklog_member foreign key (tenant_id, member_id)
    references session.sessions (tenant_id, session_id) on delete cascade;
create index worklog_of_member on work.worklog (tenant_id, member_id) where member_id is not null;
grant update (member_id) on work.worklog to holdfast_app;
