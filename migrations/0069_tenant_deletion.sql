-- Deletion of tenants. A tenant that is deleted is suspended too, which the version before knows.
alter table control.tenants add column deleting_at timestamptz
    check (deleting_at is null or state = 'suspended');
grant select (deleting_at) on control.tenants to holdfast_system;

-- Records that nobody may change are deleted with their tenant only.
do $$
declare
    name text;
begin
    foreach name in array array[
        'control.audit', 'workspace.skill_policies', 'workspace.skill_changes'
    ] loop
        execute format('grant delete on %s to holdfast_app', name);
        execute format(
            'create policy with_its_tenant on %s as restrictive for delete to holdfast_app
             using (exists (select from control.tenants t
                            where t.tenant_id = %1$s.tenant_id and t.deleting_at is not null))',
            name);
    end loop;
end $$;
