-- Where an agent was last spoken to is looked up among its conversations alone: each run of a job
-- has a session of its own, and there may be any number of those.

create index sessions_spoken on session.sessions (agent_id, tenant_id, kind)
    where kind in ('main', 'dm');
drop index session.sessions_of_agent;

-- Sessions of runs are forgotten once they have been at rest for long.
create index sessions_of_runs on session.sessions (tenant_id, created_at) where kind = 'cron';
