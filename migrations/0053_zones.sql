-- Where people said that they are (`/timezone`): whichever conversation they say it in, it is so in all
-- that they have with the agent. Conversations that are nobody's keep it in their own settings.

create table session.zones (
    tenant_id  uuid not null,
    agent_id   uuid not null,
    -- Who, as their memory is kept: `owner`, `telegram:42`, `api:anna`.
    person     text not null check (octet_length(person) between 1 and 256),
    -- A name of the tz database.
    zone       text not null check (octet_length(zone) between 1 and 64),
    changed_at timestamptz not null default clock_timestamp(),

    primary key (agent_id, person, tenant_id),
    foreign key (tenant_id, agent_id) references control.agents on delete cascade
);
alter table session.zones enable row level security;
alter table session.zones force row level security;
create policy one_tenant on session.zones to holdfast_app using (tenant_id = control.tenant());
grant select, insert, update, delete on session.zones to holdfast_app;
