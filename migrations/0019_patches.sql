-- Patches of subagents: a subagent may work on a copy of its requester's files, which that one
-- takes over or gives up afterwards (docs/subagents.md, decision 0024).

alter table workspace.trees
    -- The agent whose tree it is a copy of, and as of which revision; null for an agent's own.
    add column branch_of uuid,
    add column base      bigint check (base >= 0),
    -- Set once what was changed in it was taken over or given up, or its files are gone: nothing is
    -- changed in it then. The row of one that is gone stays for a week, so that a command that
    -- outlives it does not make it anew.
    add column closed    text check (closed in ('merged', 'discarded', 'gone')),
    add column closed_at timestamptz,
    add constraint trees_branch check ((branch_of is null) = (base is null)),
    add constraint trees_closed check ((closed is null) = (closed_at is null));
create index trees_branches on workspace.trees (branch_of) where branch_of is not null;
grant update (closed, closed_at) on workspace.trees to holdfast_app;

-- Which copies are to be removed is found out before a tenant is known.
grant usage on schema workspace to holdfast_system;
create policy all_tenants on workspace.trees for select to holdfast_system using (true);
grant select (tenant_id, agent_id, branch_of, closed, closed_at, created_at) on workspace.trees
    to holdfast_system;

-- The copy that a subagent works on; null is its agent's own tree.
alter table session.subagents add column branch uuid;
