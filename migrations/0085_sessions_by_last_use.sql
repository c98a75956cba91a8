-- no-transaction
-- Sessions are listed by last use. An index on `updated_at` would be changed with each turn of every
-- session; this column changes once an hour, and within an hour rows are sorted by `updated_at`. It
-- is null in sessions that were not used since this migration: these come last. The condition keeps the
-- index out of the plans of turns.
alter table session.sessions add column if not exists used_hour timestamptz;
-- next statement
alter table session.sessions alter column used_hour
    set default date_bin('1 hour', now(), '2000-01-01 00:00:00+00');
-- next statement
create index concurrently if not exists sessions_used
    on session.sessions (tenant_id, used_hour desc nulls last) where kind <> '';
