-- What memory holds of sessions and agents that were deleted goes as well, whether the memory
-- service is there at that moment or not: who deletes one says so in the same transaction
-- (memory.forget_later), and the service erases what it finds (services/memory/src/eraser.rs).

create table memory.erasures (
    tenant_id  uuid not null,
    erasure_id uuid not null default gen_random_uuid(),
    -- What was deleted: `session` or `agent`, and its id as the rows of memory have it.
    what       text not null check (what in ('session', 'agent')),
    subject    text not null check (octet_length(subject) between 1 and 256),
    asked_at   timestamptz not null default clock_timestamp(),
    -- When it is looked for it next; null is done.
    due_at     timestamptz default clock_timestamp(),
    -- How often it was looked for, when last, what went by table, and what was left: zeros.
    passes     integer not null default 0,
    erased_at  timestamptz,
    erased     jsonb not null default '{}',
    left_over  jsonb not null default '{}',

    primary key (erasure_id, tenant_id),
    constraint erasures_subject unique (subject, what, tenant_id)
);
create index erasures_listed on memory.erasures (tenant_id, asked_at);
create index erasures_due on memory.erasures (due_at) where due_at is not null;

alter table memory.erasures enable row level security;
alter table memory.erasures force row level security;
create policy one_tenant on memory.erasures to holdfast_app using (tenant_id = control.tenant());
create policy all_tenants on memory.erasures for select to holdfast_system using (true);
-- For the function below where the owner is no superuser; it names the tenant itself.
create policy owner on memory.erasures to current_user using (true);
grant select, insert, update, delete on memory.erasures to holdfast_app;
grant select (tenant_id, erasure_id, due_at) on memory.erasures to holdfast_system;

-- Has memory forget what was deleted, once the transaction is committed. The tenant is the
-- transaction's, and no argument.
create function memory.forget_later(what text, subject text) returns void
    language sql volatile security definer set search_path = pg_catalog, public
as $$
    insert into memory.erasures (tenant_id, what, subject)
    values (control.tenant(), what, subject)
    on conflict do nothing
$$;
revoke all on function memory.forget_later(text, text) from public;
grant execute on function memory.forget_later(text, text) to holdfast_app;
