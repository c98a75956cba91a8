-- Text from outside must not become an instruction without a person's decision. A conversation that
-- has read such text is marked until it begins anew; so is what it writes for others.

-- Null as long as the conversation has read no text from outside.
alter table session.sessions add column outside_since timestamptz;
alter table session.system_events add column outside boolean not null default false;

-- Files that came from outside, or that a conversation wrote which has read text from outside.
alter table workspace.files add column outside boolean not null default false;
grant update (outside) on workspace.files to holdfast_app;
