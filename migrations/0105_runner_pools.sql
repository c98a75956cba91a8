-- Pools of runners (docs/decisions/0090-runner-pools.md). A runner works for the tenants of its pool;
-- null is the default pool. The version before takes sessions of all tenants: give a tenant a pool
-- when the last runner of that version has ended.
alter table session.tenant_queue
    add column pool text check (pool ~ '^[a-z0-9]([a-z0-9-]{0,38}[a-z0-9])?$');
create index tenant_queue_pool on session.tenant_queue (pool) where pool is not null;

alter table session.runners add column pool text;

-- A change of the pool is in the audit log, too.
drop trigger audit_1_note on session.tenant_queue;
drop trigger audit_2_record on session.tenant_queue;
create trigger audit_1_note after insert or update of weight, cap, max_sessions, pool
    on session.tenant_queue
    for each row when (current_setting('holdfast.change', true) <> '')
    execute function control.note_change();
create trigger audit_2_record after insert or update of weight, cap, max_sessions, pool
    on session.tenant_queue
    for each row when (current_setting('holdfast.change', true) <> '')
    execute function control.record_change('tenant_share', 'tenant_id', 'ten_');
