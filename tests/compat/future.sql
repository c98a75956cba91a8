-- What a version after this one might have written, for tests/tests/chaos/versions.rs. Each block is
-- one statement; tenant t0 has the changed rows, t2 the policy, t1 none.

-- The words of the future are allowed: its migrations have replaced these constraints. Each is dropped
-- in a transaction of its own, since services that run hold locks of several tables in another order.
do $$
declare c record;
begin
    for c in select conrelid::regclass as tab, conname from pg_constraint
             where contype = 'c' and connamespace in ('session'::regnamespace, 'schedule'::regnamespace, 'control'::regnamespace)
    loop
        execute format('alter table %s drop constraint %I', c.tab, c.conname);
        commit;
    end loop;
end $$;

-- An agent's settings with words and fields that are not known.
update control.agents a
set settings = a.settings || '{"queue_mode": "braid", "kind": "swarm", "reactions": "loud", "dm_scope": "per-mood", "aura": {"level": 3}}'
from control.tenants t where t.tenant_id = a.tenant_id and t.name = 't0';

-- A tenant's product settings with a field that is not known.
update control.tenants set product = coalesce(product, '{}') || '{"aura": {"level": 3}}' where name = 't0';

-- A session's settings.
update session.sessions s set settings = '{"thinking": "galactic", "verbose": {"at": 3}, "aura": 1}'
from control.tenants t
where t.tenant_id = s.tenant_id and t.name = 't0' and s.key = 'agent:main:api:talk-0';

-- A journal with entries, notes and effects that are not known.
with l as (
    select l.* from session.session_lease l
    join session.sessions s using (tenant_id, session_id) join control.tenants t using (tenant_id)
    where t.name = 't0' and s.key = 'agent:main:api:talk-0'),
newer as (
    select * from jsonb_array_elements('[
        {"kind": "sealed", "seal": {"by": 7}},
        {"kind": "noted", "note": "foreseen", "text": "t", "more": [1, null]},
        {"kind": "thought", "text": "", "calls": [{"id": "future-1", "tool": "teleport", "input": "{}", "hand": "left"}], "model": "x:y", "aura": 1},
        {"kind": "called", "call": "future-1", "effect": "teleports", "mass": 3},
        {"kind": "returned", "call": "future-1", "output": "there", "record": {"aura": 1}, "aura": 1},
        {"kind": "thought", "text": "I am there", "aura": {"level": 3}}]') with ordinality as e (body, n)),
added as (
    insert into session.entries (tenant_id, session_id, seq, epoch, run_id, kind, body)
    select l.tenant_id, l.session_id, l.next_entry + n - 1, l.epoch, '00000000-0000-7000-8000-000000000001', body->>'kind', body
    from l, newer)
update session.session_lease u set next_entry = u.next_entry + 6
from l where u.tenant_id = l.tenant_id and u.session_id = l.session_id;

-- A message that waits, with a queue mode and fields that are not known.
update session.inbox set mode = 'braid', body = body || '{"hologram": {"beam": 1}}' where state = 'new';

-- A wait that is not known.
update session.session_lease l set state = 'WAIT_FOR_EVENT', wait = '{"for": "tide", "level": 3}'
from session.sessions s, control.tenants t
where s.tenant_id = l.tenant_id and s.session_id = l.session_id and t.tenant_id = l.tenant_id
  and t.name = 't0' and s.key like '%person-1';

-- A reply that is an action which is not known.
with d as (
    select d.*, l.next_out from session.deliveries d
    join session.session_lease l using (tenant_id, session_id)
    join session.sessions s using (tenant_id, session_id) join control.tenants t using (tenant_id)
    where t.name = 't0' and s.key like '%person-3' and d.channel = 'webhook' limit 1),
added as (
    insert into session.deliveries (tenant_id, session_id, out_seq, part, delivery_id, run_id, channel, account_id, target, body, act)
    select tenant_id, session_id, next_out, 0, '00000000-0000-7000-8000-000000000002', '00000000-0000-7000-8000-000000000001',
           channel, account_id, target || '{"beam": 1}', 'a hologram', '{"act": "hologram", "beam": {"x": 1}}'
    from d)
update session.session_lease u set next_out = u.next_out + 1
from d where u.tenant_id = d.tenant_id and u.session_id = d.session_id;

-- A provider, and accounts on a channel and with settings that are not known.
insert into control.providers (tenant_id, name, kind, base_url)
select tenant_id, 'quantum', 'quantum', 'http://127.0.0.1:9' from control.tenants where name = 't0';

insert into control.accounts (tenant_id, account_id, channel, name, enabled, settings, secrets)
select a.tenant_id, gen_random_uuid(), made.channel, made.name, true, a.settings || '{"aura": 1}', a.secrets
from control.accounts a join control.tenants t using (tenant_id),
     (values ('matrix', 'default'), ('webhook', 'newer'), ('telegram', 'newer')) as made (channel, name)
where t.name = 't0' and a.channel = 'webhook';

-- A policy with a field that is not known: what it forbids cannot be told.
insert into control.policies (tenant_id, agent_id, document)
select tenant_id, null, '{"aura": {"level": 3}}' from control.tenants where name = 't2';

-- An approval in a state that is not known.
insert into session.approvals
    (tenant_id, approval_id, slug, session_id, agent_id, run_id, step, call, tool, subject, subject_hash, summary, state, expires_at)
select s.tenant_id, '00000000-0000-7000-8000-000000000003', '00000003', s.session_id, s.agent_id,
       '00000000-0000-7000-8000-000000000001', 0, 'future-1', 'teleport', '{}', sha256('{}'), 'teleport', 'delegated',
       clock_timestamp() + interval '1 hour'
from session.sessions s join control.tenants t using (tenant_id)
where t.name = 't0' and s.key = 'agent:main:api:talk-0';

-- A reader of journals that is not known.
insert into session.journal_readers (tenant_id, session_id, reader, pending)
select s.tenant_id, s.session_id, 'aura', 1 from session.sessions s join control.tenants t using (tenant_id) where t.name = 't0';

-- Jobs that are due: with a kind, a schedule and a payload that are not known, and one that is known.
insert into schedule.jobs (tenant_id, job_id, external_id, kind, agent_id, name, spec, payload, session_target, wake_mode, slot_at, due_at)
select a.tenant_id, gen_random_uuid(), made.name, made.kind, a.agent_id, made.name,
       jsonb_set(made.spec::jsonb, '{schedule,anchor_ms}', to_jsonb(floor(extract(epoch from at) * 1000)::bigint)),
       made.payload::jsonb, 'isolated', 'next-heartbeat', at, at
from (values
    ('t0', 'tide', 'tide', '{"schedule": {"kind": "tide"}}', '{"kind": "agentTurn", "message": "t0m000901 say", "deliver": false}'),
    ('t0', 'spec', 'every', '{"schedule": {"kind": "spiral", "turns": 3}}', '{"kind": "agentTurn", "message": "t0m000902 say", "deliver": false}'),
    ('t0', 'payload', 'every', '{"missed": {"policy": "skip"}, "schedule": {"kind": "every", "every_ms": 3600000}}', '{"kind": "sing", "song": "x"}'),
    ('t1', 'known', 'every', '{"missed": {"policy": "skip"}, "schedule": {"kind": "every", "every_ms": 3600000}}',
     '{"kind": "agentTurn", "channel": "last", "deliver": false, "message": "t1m000900 say", "timeout_seconds": 3600, "best_effort_deliver": false}'))
    as made (tenant, name, kind, spec, payload)
join control.tenants t on t.name = made.tenant
join control.agents a on a.tenant_id = t.tenant_id and a.is_default,
     (select date_trunc('milliseconds', clock_timestamp()) as at) now;
