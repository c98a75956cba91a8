-- A quarter of a tenant's sessions in flight is reserved for turns that a person waits for (priority
-- 0): jobs, heartbeats and subagents are not admitted to it.
create function session.has_background_room(tenant uuid, leaving integer) returns boolean
    language sql stable as
$$
    select f.in_flight - leaving < coalesce(q.cap, 64) - coalesce(q.cap, 64) / 4
    from (select coalesce(sum(in_flight), 0) as in_flight
          from session.tenant_flight where tenant_id = tenant) f
    left join session.tenant_queue q on q.tenant_id = tenant
$$;

-- As the function with two parameters, which processes of the version before use.
create function session.place(tenant uuid, turn bigint, priority smallint,
                              out fair_key bigint, out step bigint, out room boolean)
    language sql stable as
$$
    select p.fair_key, p.step,
           p.room and (priority = 0 or session.has_background_room(tenant, 0))
    from session.place(tenant, turn) p
$$;
