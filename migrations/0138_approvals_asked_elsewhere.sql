-- The conversation of a person in which an approval was asked for, if that is not the call's own.
alter table session.approvals add column asked_in uuid;
create index approvals_asked_in on session.approvals (tenant_id, asked_in) where asked_in is not null;
