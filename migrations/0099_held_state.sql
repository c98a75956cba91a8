-- State that the process of a runner holds for a conversation: background commands, browser windows
-- and MCP servers that run as processes (docs/decisions/0086-held-state.md). The claim of the version
-- before does not look at the holder: while both versions run, a conversation may still move.
alter table session.session_lease add column holder uuid;

-- Runners, and until when each counts as alive.
create table session.runners (
    runner_id  uuid primary key,
    live_until timestamptz not null,
    started_at timestamptz not null default clock_timestamp(),
    -- Set when it stops as it was told to.
    stopped_at timestamptz
);
alter table session.runners enable row level security;
alter table session.runners force row level security;
create policy all_runners on session.runners to holdfast_system using (true);
-- It names no tenant: whoever takes a session over asks whether its holder is alive.
create policy all_runners_read on session.runners for select to holdfast_app using (true);
grant select, insert, update, delete on session.runners to holdfast_system;
grant select on session.runners to holdfast_app;

create table session.held_state (
    tenant_id  uuid not null,
    session_id uuid not null,
    runner_id  uuid not null,
    agent_id   uuid not null,
    kind       text not null check (kind in ('command', 'browser', 'mcp')),
    -- Id of the command, name of the server.
    name       text not null,
    title      text not null default '',
    started_at timestamptz not null default clock_timestamp(),
    -- Set when another runner took the session over. The row stays for a day, so that tools can say
    -- what became of an id.
    lost_at    timestamptz,
    reason     text check (reason in ('died', 'stopped', 'busy')),

    primary key (session_id, runner_id, kind, name, tenant_id),
    foreign key (tenant_id, session_id) references session.sessions (tenant_id, session_id) on delete cascade
);
create index held_state_of_runner on session.held_state (runner_id);
create index held_state_servers on session.held_state (agent_id, name)
    where kind = 'mcp' and lost_at is null;
create index held_state_lost on session.held_state (lost_at) where lost_at is not null;
alter table session.held_state enable row level security;
alter table session.held_state force row level security;
create policy one_tenant on session.held_state to holdfast_app using (tenant_id = control.tenant());
grant select, insert, update, delete on session.held_state to holdfast_app;
-- A runner asks for what it holds, of all tenants: ids and times, not the text of a command.
create policy all_tenants on session.held_state to holdfast_system using (true);
grant select (tenant_id, session_id, runner_id, kind, name, lost_at), delete on session.held_state
    to holdfast_system;
