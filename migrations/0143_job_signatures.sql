-- Who made a job is signed (decision 0130): schedulers write the messages of jobs, and may write any
-- row of schedule.jobs.

-- HMAC of gateways and runners over the job's author and what the job does.
alter table schedule.jobs
    add column signature text check (octet_length(signature) <= 128);

-- Jobs from before, which a gateway signs if nobody has changed them since. Roles of schedulers have
-- no right to this table (crates/pg/src/service_rights.sql).
create table schedule.jobs_to_sign (
    tenant_id uuid not null,
    job_id    uuid not null,
    -- Of what the job does, and of its author.
    digest    bytea not null check (octet_length(digest) = 32),

    primary key (tenant_id, job_id)
);

alter table schedule.jobs no force row level security;
insert into schedule.jobs_to_sign (tenant_id, job_id, digest)
select tenant_id, job_id, sha256(convert_to(jsonb_build_array(
    agent_id, kind, owner, author, name, payload, session_target, wake_mode,
    isolation)::text, 'UTF8'))
from schedule.jobs where kind <> 'heartbeat';
alter table schedule.jobs force row level security;

alter table schedule.jobs_to_sign enable row level security;
alter table schedule.jobs_to_sign force row level security;
create policy one_tenant on schedule.jobs_to_sign to holdfast_app using (tenant_id = control.tenant());
create policy all_tenants on schedule.jobs_to_sign for select to holdfast_system using (true);
grant select, delete on schedule.jobs_to_sign to holdfast_app;
grant select on schedule.jobs_to_sign to holdfast_system;

-- Author and signature of the job that says an event, as `types::SignedAuthor`.
alter table session.system_events
    add column signed jsonb check (octet_length(signed::text) <= 8192);

-- What a scheduler says without a signature is from outside, also where its version knows of none.
create function session.mark_scheduler_events() returns trigger language plpgsql as $$
begin
    if new.signed is null and current_user in ('holdfast_scheduler_app', 'holdfast_scheduler_system') then
        new.outside := true;
    end if;
    return new;
end $$;
create trigger mark_scheduler_events before insert on session.system_events
    for each row execute function session.mark_scheduler_events();
