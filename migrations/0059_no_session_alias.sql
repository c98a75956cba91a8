-- Every form of a session key is read as the canonical one (docs/decisions/0050-no-session-alias.md),
-- so that no session needs another name.
drop table session.session_alias;
