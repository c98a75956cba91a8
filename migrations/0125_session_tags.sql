-- Tags that people give a session, in place of those that its behaviours keep in session.behaviors. Without
-- a check, for which all rows would be read under a lock.
alter table session.sessions add column given_tags text[];
