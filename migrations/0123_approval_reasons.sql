-- Why a person denied a call: the model reads it.
alter table session.approvals add column if not exists reason text check (octet_length(reason) <= 4000);
