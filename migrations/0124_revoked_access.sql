-- Rights that are taken away without a call of the API, such as at a sign-in with a lower role, are an
-- event as well: gateways then check their open connections.
create function control.announce_revocation() returns trigger language plpgsql as
$$
begin
    insert into control.tenant_events (tenant, name, kind, detail)
    select new.tenant_id, t.name, 'config.changed', jsonb_build_object('action', new.action)
    from control.tenants t where t.tenant_id = new.tenant_id;
    return null;
end
$$;
create trigger announce_revocation after insert on control.audit
    for each row when (new.outcome = 'ok' and new.changes is null and new.action in (
        'console.end', 'console.sign_out', 'device.remove', 'device.revoke', 'device.rotate',
        'key.revoke', 'person.disable', 'person.role'))
    execute function control.announce_revocation();
