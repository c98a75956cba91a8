-- What somebody set for one conversation, as `types::SessionSettings`.

alter table session.sessions add column settings jsonb not null default '{}';
