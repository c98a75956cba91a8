-- What people had erased stays erased: what was under way of it and was kept afterwards goes as well,
-- and what was said before is not looked through again (services/memory/src/store/late.rs).

alter table memory.erasures
    -- Of one that people asked for: what was said or noted up to then is meant. Null is all, also
    -- what comes later: a session or an agent that is no more.
    add column until timestamptz,
    drop constraint erasures_what_check,
    add constraint erasures_what_check check (what in ('session', 'agent', 'user'));

-- As in 0038; but what people had erased before, and is deleted now, is looked for anew, and whole.
create or replace function memory.forget_later(what text, subject text) returns void
    language sql volatile security definer set search_path = pg_catalog, public
as $$
    insert into memory.erasures as e (tenant_id, what, subject)
    values (control.tenant(), what, subject)
    on conflict (subject, what, tenant_id) do update
        set until = null, passes = 0, due_at = clock_timestamp(), asked_at = clock_timestamp()
        where e.until is not null
$$;
