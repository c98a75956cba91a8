-- Duties: work for the whole installation that one runner does at a time, under a lease.
create table session.duties (
    name  text primary key,
    owner uuid not null,
    until timestamptz not null
);
alter table session.duties enable row level security;
alter table session.duties force row level security;
create policy all_duties on session.duties to holdfast_system using (true);
grant select, insert, update on session.duties to holdfast_system;

-- An end that could not be announced is announced later, after longer and longer delays.
alter table session.subagents
    add column announce_at    timestamptz,
    add column announce_tries integer not null default 0;
grant select (announce_at) on session.subagents to holdfast_system;

-- Retention of a tenant's rows, in days; null is the default of the installation.
alter table session.tenant_queue
    add column keep_messages_days   integer check (keep_messages_days between 1 and 36500),
    -- Idempotency keys, counted from the deletion of their message.
    add column keep_keys_days       integer check (keep_keys_days between 1 and 36500),
    add column keep_deliveries_days integer check (keep_deliveries_days between 1 and 36500),
    add column keep_runs_days       integer check (keep_runs_days between 1 and 36500),
    -- Null keeps journals as long as their session.
    add column keep_journals_days   integer check (keep_journals_days between 1 and 36500);

-- Pruning asks in one statement which tenants have rows that are old enough: times only, no content.
create policy all_tenants on session.tombstones for select to holdfast_system using (true);
create policy all_tenants on session.approvals for select to holdfast_system using (true);
create policy all_tenants on session.spending for select to holdfast_system using (true);
create policy all_tenants on session.system_events for select to holdfast_system using (true);
grant select (tenant_id, until) on session.tombstones to holdfast_system;
grant select (steps) on session.runs to holdfast_system;
grant select (tenant_id, expires_at) on session.approvals to holdfast_system;
grant select (tenant_id, day) on session.spending to holdfast_system;
grant select (tenant_id, gone_at) on session.system_events to holdfast_system;
grant select (created_at) on session.sessions to holdfast_system;
