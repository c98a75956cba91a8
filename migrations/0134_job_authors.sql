-- Who wrote what a job does, as {"id": …, "roles": […]}: its runs have the rights of that author. Jobs
-- from before have none, and stay the agent's own, as the calls that made them were. A reminder has
-- had its author in the payload; there it stays, and is noted here too.

alter table schedule.jobs
    add column author jsonb check (octet_length(author::text) <= 4096);

alter table schedule.jobs no force row level security;
update schedule.jobs set author = payload->'author'
where kind = 'reminder' and payload->'author' is not null;
alter table schedule.jobs force row level security;
