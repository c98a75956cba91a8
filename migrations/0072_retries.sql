-- Turns in a row that ended with a transient failure and made no progress: they decide how long the
-- session waits before its next turn.
alter table session.session_lease add column retries smallint not null default 0;
