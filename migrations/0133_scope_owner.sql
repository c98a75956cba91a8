-- The scope `admin` runs a tenant's installation; owning it is a scope of its own. Keys, and sign-ins
-- to the console, that had both until now keep both. Those that a version before this one creates
-- from here on have what they ask for.

-- The schema's owner sees no tenant's rows otherwise, where the owner is no superuser.
alter table control.keys no force row level security;
update control.keys set scopes = array_append(scopes, 'owner')
where 'admin' = any (scopes) and not 'owner' = any (scopes);
alter table control.keys force row level security;

alter table control.console_links no force row level security;
update control.console_links set scopes = array_append(scopes, 'owner')
where 'admin' = any (scopes) and not 'owner' = any (scopes);
alter table control.console_links force row level security;

alter table control.console_sessions no force row level security;
update control.console_sessions set scopes = array_append(scopes, 'owner')
where 'admin' = any (scopes) and not 'owner' = any (scopes);
alter table control.console_sessions force row level security;

-- Two more roles of people.
alter table control.people drop constraint people_role_check;
alter table control.people add constraint people_role_check
    check (role in ('guest', 'viewer', 'member', 'approver', 'operator', 'owner'));
