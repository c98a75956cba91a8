-- Proposals of agents to change themselves (docs/decisions/0099-a-self-under-control.md). Owned by
-- crates/proposals.
create table work.proposals (
    tenant_id   uuid not null,
    proposal_id uuid not null,
    agent_id    uuid not null,
    -- Session in which it was made, and the root session, whose worklog tells of it.
    session_id  uuid not null,
    list_id     uuid not null,
    -- Key of the call that made it.
    key         text not null check (octet_length(key) between 1 and 256),
    kind        text not null check (kind in ('self', 'behavior', 'skill')),
    -- Name of the behaviour or the skill; `self.md`.
    target      text not null check (octet_length(target) between 1 and 128),
    goal        text not null check (length(goal) <= 2000),
    risk        text not null check (length(risk) <= 2000),
    benefit     text not null check (length(benefit) <= 2000),
    -- The whole new text, and the whole text on which it is based; null if there is none.
    content     text not null check (octet_length(content) <= 65536),
    before      text,
    -- Hash of the file or version of the behaviour on which it is based; `none`.
    base        text not null,
    diff        text not null,
    -- The conversation had read text from outside.
    outside     boolean not null,
    state       text not null default 'proposed' check (state in (
                    'proposed', 'approved', 'rejected', 'applied', 'rolled_back', 'failed')),
    -- Why it was rejected or has failed.
    reason      text not null default '',
    -- Key, person or agent that decided last.
    decided_by  text,
    decided_at  timestamptz,
    -- Revision of the files or version of the behaviour that has the change.
    applied_as  text,
    created_at  timestamptz not null default clock_timestamp(),

    primary key (tenant_id, proposal_id),
    constraint proposals_key unique (tenant_id, key),
    constraint proposals_agent_fkey foreign key (tenant_id, agent_id)
        references control.agents (tenant_id, agent_id) on delete cascade
);
create index proposals_of_agent on work.proposals (tenant_id, agent_id, created_at desc);
alter table work.proposals enable row level security;
alter table work.proposals force row level security;
create policy one_tenant on work.proposals to holdfast_app using (tenant_id = control.tenant());
grant select, insert, update, delete on work.proposals to holdfast_app;

-- Agents whose settings let them look after themselves while they rest, and their newest runs. Owned
-- by crates/session; rows follow the settings.
create table session.self_improvements (
    tenant_id     uuid not null,
    agent_id      uuid not null,
    idle_s        integer not null,
    max_per_day   integer not null,
    -- UTC day of the newest run, and the number of runs on it.
    day           date,
    runs          integer not null default 0,
    started_at    timestamptz,
    next_check_at timestamptz not null default clock_timestamp(),

    primary key (tenant_id, agent_id),
    constraint self_improvements_agent_fkey foreign key (tenant_id, agent_id)
        references control.agents (tenant_id, agent_id) on delete cascade
);
create index self_improvements_due on session.self_improvements (next_check_at);
alter table session.self_improvements enable row level security;
alter table session.self_improvements force row level security;
create policy one_tenant on session.self_improvements to holdfast_app
    using (tenant_id = control.tenant());
create policy all_tenants on session.self_improvements to holdfast_system using (true);
grant select, insert, update, delete on session.self_improvements to holdfast_app;
grant select, update on session.self_improvements to holdfast_system;

create function control.set_self_improvement() returns trigger language plpgsql as
$$
begin
    if jsonb_typeof(new.settings -> 'self_improve') = 'object' then
        insert into session.self_improvements as i (tenant_id, agent_id, idle_s, max_per_day)
        values (new.tenant_id, new.agent_id,
                coalesce((new.settings -> 'self_improve' ->> 'idle_s')::integer, 3600),
                coalesce((new.settings -> 'self_improve' ->> 'max_per_day')::integer, 1))
        on conflict (tenant_id, agent_id) do update
            set idle_s = excluded.idle_s, max_per_day = excluded.max_per_day,
                next_check_at = clock_timestamp();
    else
        delete from session.self_improvements
        where tenant_id = new.tenant_id and agent_id = new.agent_id;
    end if;
    return null;
end
$$;
create trigger self_improvement_made after insert on control.agents
    for each row when (new.settings ? 'self_improve')
    execute function control.set_self_improvement();
create trigger self_improvement_set after update of settings on control.agents
    for each row when (new.settings -> 'self_improve' is distinct from old.settings -> 'self_improve')
    execute function control.set_self_improvement();
