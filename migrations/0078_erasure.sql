-- Counts the changes of entries that are in a session's journal already, which only an erasure makes:
-- runners read the journal again that they have cached.
alter table session.sessions add column journal_version integer not null default 0;
