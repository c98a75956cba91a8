-- What a firing became, so that its end can be asked for.

alter table schedule.firings
    -- The message that it became, by its place; null is none, or none that is waited for.
    add column session_id uuid,
    add column seq bigint,
    add constraint firings_message_whole check ((session_id is null) = (seq is null));

-- Whoever waits for a message's end asks for all that are out at once, whosever they are: which
-- turn it was, how it ended and how long it took, and never what was said.
grant select (outcome, run_id) on session.inbox to holdfast_system;
create policy all_tenants on session.runs for select to holdfast_system using (true);
grant select (tenant_id, run_id, started_at, finished_at) on session.runs to holdfast_system;
