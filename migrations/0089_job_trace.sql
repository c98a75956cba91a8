-- The trace of the call that made a job, as a W3C traceparent: the last firing of a job, which is the
-- only one of a reminder, continues it.

alter table schedule.jobs add column trace text check (octet_length(trace) <= 64);
