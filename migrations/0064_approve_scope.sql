-- Decisions about tool calls need the scope `approve`. Keys that could decide until now keep that;
-- new keys get it only if it is asked for.

-- The schema's owner sees no tenant's rows otherwise, where the owner is no superuser.
alter table control.keys no force row level security;
update control.keys set scopes = array_append(scopes, 'approve')
where 'chat' = any (scopes) and not 'approve' = any (scopes);
alter table control.keys force row level security;
