-- "Always" allows a command with these words and no others. The rules that were made before allow
-- more, such as any arguments of `bash`: people are asked again.

-- The schema's owner sees no tenant's rows otherwise, where the owner is no superuser.
alter table session.approval_rules no force row level security;
alter table session.approvals no force row level security;
delete from session.approval_rules where tool = 'exec' and pattern is not null;
update session.approvals set pattern = null
where tool = 'exec' and pattern is not null and state = 'pending';
alter table session.approval_rules force row level security;
alter table session.approvals force row level security;
