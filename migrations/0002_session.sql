-- The session protocol's tables. Owned by crates/session; docs/architecture.md draws them.

create schema session;
grant usage on schema session to holdfast_app, holdfast_system;

-- What people see of a conversation.
create table session.sessions (
    tenant_id     uuid not null,
    session_id    uuid not null,
    key           text not null check (octet_length(key) <= 512),
    kind          text not null check (kind in ('main', 'dm', 'group', 'topic', 'subagent', 'cron',
                                                'heartbeat', 'work', 'api', 'global')),
    agent_id      uuid not null,
    parent_id     uuid,
    label         text not null default '',
    behavior      text,
    step          integer not null default 0,
    summary       text not null default '',
    last_step_summary text not null default '',
    input_tokens  bigint not null default 0,
    cached_tokens bigint not null default 0,
    output_tokens bigint not null default 0,
    turns         bigint not null default 0,
    -- Where it was last spoken to, as `types::Target`; internal doors do not count.
    last_target   jsonb,
    created_at    timestamptz not null default now(),
    updated_at    timestamptz not null default now(),

    primary key (tenant_id, session_id),
    constraint sessions_key unique (tenant_id, key)
) with (fillfactor = 80);
create index sessions_recent on session.sessions (tenant_id, created_at desc);
create index sessions_children on session.sessions (tenant_id, parent_id) where parent_id is not null;

-- Other names of a session (spec C-01).
create table session.session_alias (
    tenant_id   uuid not null,
    alias       text not null check (octet_length(alias) <= 512),
    session_id  uuid not null,

    primary key (tenant_id, alias),
    foreign key (tenant_id, session_id) references session.sessions on delete cascade
);

-- What the protocol needs of a session, and nothing else: this row's lock is the session's lock.
create table session.session_lease (
    tenant_id   uuid not null,
    session_id  uuid not null,
    state       text not null default 'WAIT'
                check (state in ('WAIT', 'WAIT_FOR_MSG', 'WAIT_FOR_EVENT', 'READY', 'RUNNING')),
    -- Why it is held, over whatever state is below.
    paused      text check (paused in ('user', 'parent', 'system')),
    -- What is waited for, as `types::Wait`; null is anything.
    wait        jsonb,
    wait_until  timestamptz,
    ended       boolean not null default false,
    -- The fence: grows with every claim and release; a write with another is refused.
    epoch       bigint not null default 0,
    owner       uuid,
    lease_until timestamptz,
    ready_at    timestamptz,
    -- Its place in the fair order; null while it waits in its tenant's own queue.
    fair_key    bigint,
    workspace   text,
    -- The next place in the inbox, and how many of the places before it are finished.
    next_in     bigint not null default 1,
    done_in     bigint not null default 0,
    next_out    bigint not null default 1,
    next_entry  bigint not null default 1,
    -- Claims since the journal last grew by a thought or a result.
    attempts    integer not null default 0,
    -- The run that its user no longer wants: everything up to this place in the inbox.
    cancel_upto bigint not null default 0,

    primary key (tenant_id, session_id),
    foreign key (tenant_id, session_id) references session.sessions on delete cascade
) with (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 500);
-- What a claim looks for.
create index lease_admitted on session.session_lease (fair_key)
    where state = 'READY' and fair_key is not null and paused is null;
-- What waits within its tenant.
create index lease_queued on session.session_lease (tenant_id, ready_at)
    where state = 'READY' and fair_key is null and paused is null;
-- What a sweep looks at. None on lease_until: it would be rewritten at each renewal.
create index lease_running on session.session_lease (tenant_id) where state = 'RUNNING';
create index lease_waiting on session.session_lease (wait_until) where wait_until is not null;

-- Messages that were accepted. No foreign key, here and below: its check would cost each message a
-- lock and a look-up, and sessions are only ever deleted whole, by crates/session.
create table session.inbox (
    tenant_id   uuid not null,
    session_id  uuid not null,
    seq         bigint not null,
    message_id  uuid not null,
    source      text not null,
    idem_key    text not null check (octet_length(idem_key) between 1 and 256),
    -- SHA-256 of the request: the same key with another request is refused.
    hash        bytea not null,
    body        jsonb not null,
    -- How it is taken while the session runs, as its agent said when it came.
    mode        text not null default 'steer'
                check (mode in ('steer', 'followup', 'collect', 'interrupt')),
    state       text not null default 'new' check (state in ('new', 'seen', 'done', 'dead')),
    outcome     text,
    reason      text,
    -- The turn that saw it.
    run_id      uuid,
    -- Where its answer goes, as `types::Target`; null to whoever asks.
    target      jsonb,
    -- The trace that it came in on, as a W3C traceparent.
    trace       text,
    accepted_at timestamptz not null default clock_timestamp(),
    finished_at timestamptz,

    primary key (tenant_id, session_id, seq),
    constraint inbox_message_key unique (tenant_id, message_id),
    constraint inbox_idem_key unique (tenant_id, source, idem_key)
) with (fillfactor = 85);
create index inbox_open on session.inbox (tenant_id, session_id, seq) where state in ('new', 'seen');
create index inbox_dead on session.inbox (tenant_id, finished_at desc) where state = 'dead';
create index inbox_finished on session.inbox (finished_at) where state in ('done', 'dead');

-- What is left of an inbox row that was pruned: enough to know a repetition.
create table session.tombstones (
    tenant_id   uuid not null,
    source      text not null,
    idem_key    text not null,
    hash        bytea not null,
    session_id  uuid not null,
    seq         bigint not null,
    message_id  uuid not null,
    until       timestamptz not null,

    primary key (tenant_id, source, idem_key)
);
create index tombstones_until on session.tombstones (until);

-- The journal, which is the transcript too. Append only.
create table session.entries (
    tenant_id   uuid not null,
    session_id  uuid not null,
    seq         bigint not null,
    epoch       bigint not null,
    run_id      uuid not null,
    kind        text not null check (kind in ('heard', 'thought', 'called', 'returned', 'noted')),
    body        jsonb not null,
    created_at  timestamptz not null default clock_timestamp(),

    primary key (tenant_id, session_id, seq)
);

-- Turns that have ended; one that has not is a row of session_lease.
create table session.runs (
    tenant_id   uuid not null,
    run_id      uuid not null,
    session_id  uuid not null,
    agent_id    uuid not null,
    epoch       bigint not null,
    outcome     text not null check (outcome in ('completed', 'interrupted', 'cancelled', 'failed', 'dead')),
    reason      text,
    -- Where in the journal the answer is; null if there is none.
    reply_seq   bigint,
    steps       integer not null default 0,
    model       text not null default '',
    input_tokens  bigint not null default 0,
    cached_tokens bigint not null default 0,
    output_tokens bigint not null default 0,
    started_at  timestamptz not null,
    finished_at timestamptz not null default clock_timestamp(),

    primary key (tenant_id, run_id)
);
create index runs_of_session on session.runs (tenant_id, session_id, finished_at desc);
create index runs_recent on session.runs (tenant_id, finished_at desc);

-- Replies on their way to a channel.
create table session.deliveries (
    tenant_id   uuid not null,
    session_id  uuid not null,
    out_seq     bigint not null,
    part        integer not null default 0,
    -- Also the idempotency key that a keyed channel is given.
    delivery_id uuid not null,
    run_id      uuid not null,
    channel     text not null,
    account_id  uuid not null,
    -- As `types::Target`.
    target      jsonb not null,
    body        text not null,
    -- False until the bridge has cut the text to what the platform takes.
    split       boolean not null default false,
    state       text not null default 'pending'
                check (state in ('pending', 'sending', 'sent', 'unknown', 'dead')),
    owner       uuid,
    lease_until timestamptz,
    attempt     integer not null default 0,
    next_at     timestamptz not null default now(),
    -- What the platform calls the message.
    platform_id text,
    reason      text,
    trace       text,
    created_at  timestamptz not null default clock_timestamp(),
    finished_at timestamptz,

    primary key (tenant_id, session_id, out_seq, part),
    constraint deliveries_id_key unique (tenant_id, delivery_id)
) with (fillfactor = 80);
create index deliveries_due on session.deliveries (channel, next_at) where state = 'pending';
create index deliveries_sending on session.deliveries (channel, lease_until) where state = 'sending';
create index deliveries_open on session.deliveries (tenant_id, session_id, out_seq, part)
    where state in ('pending', 'sending');
create index deliveries_finished on session.deliveries (finished_at)
    where state in ('sent', 'unknown', 'dead');

-- Things that others may like to know, on their way to the bus. Losing one costs nobody's correctness.
create table session.events (
    event_id    bigint generated always as identity primary key,
    tenant_id   uuid not null,
    family      text not null,
    session_id  uuid not null,
    name        text not null,
    -- Ids, counts and outcomes; never what was said.
    payload     jsonb not null,
    created_at  timestamptz not null default clock_timestamp()
);

-- The fair order's clock: the place of the session that was claimed last.
create sequence session.vclock minvalue 0 start 0;
select setval('session.vclock', 0);

-- Each tenant's share. `weight` of 1 is usual; twice the weight is twice the share. No row is the
-- same as one with the defaults.
create table session.tenant_queue (
    tenant_id   uuid primary key,
    weight      integer not null default 1 check (weight between 1 and 100),
    -- Sessions that may be ready or running at once.
    cap         integer not null default 64 check (cap > 0),
    -- Messages that may wait in one session.
    depth       integer not null default 200 check (depth > 0)
);

-- How many sessions of a tenant are ready or running, and how far its turns have come, in sixteen
-- rows of which a session changes one: one row would be where all of a tenant's sessions wait for
-- each other's commits. Only the sum of `in_flight` means anything; a row's own may be negative.
create table session.tenant_flight (
    tenant_id   uuid not null,
    shard       integer not null check (shard between 0 and 15),
    in_flight   integer not null default 0,
    vfinish     bigint not null default 0,

    primary key (tenant_id, shard)
) with (fillfactor = 30, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 500);

create function session.shard(session_id uuid) returns integer
    language sql immutable parallel safe as
    $$ select get_byte(uuid_send(session_id), 15) & 15 $$;

-- Where a tenant's next session would stand in the fair order, and whether there is room for it.
-- Read without a lock: two at once may find the same place, and the cap may be passed by as many
-- as are admitted at the same moment.
create function session.place(tenant uuid, turn bigint, out fair_key bigint, out step bigint, out room boolean)
    language sql stable as
$$
    select greatest(f.vfinish, (select last_value from session.vclock)),
           turn / coalesce(q.weight, 1),
           f.in_flight < coalesce(q.cap, 64)
    from (select coalesce(sum(in_flight), 0) as in_flight, coalesce(max(vfinish), 0) as vfinish
          from session.tenant_flight where tenant_id = tenant) f
    left join session.tenant_queue q on q.tenant_id = tenant
$$;

-- Who runs in a workspace that only one session may use at a time.
create table session.workspace_lease (
    tenant_id   uuid not null,
    workspace   text not null,
    session_id  uuid,
    lease_until timestamptz,

    primary key (tenant_id, workspace)
);

do $$
declare
    name text;
begin
    foreach name in array array[
        'sessions', 'session_alias', 'session_lease', 'inbox', 'tombstones', 'entries', 'runs',
        'deliveries', 'events', 'tenant_queue', 'tenant_flight', 'workspace_lease'
    ] loop
        execute format('alter table session.%I enable row level security', name);
        execute format('alter table session.%I force row level security', name);
        execute format(
            'create policy one_tenant on session.%I to holdfast_app using (tenant_id = control.tenant())',
            name);
        execute format('grant select, insert, update, delete on session.%I to holdfast_app', name);
    end loop;

    -- What is looked at before a tenant is known: leases and ids, never what was said.
    foreach name in array array['session_lease', 'tenant_queue', 'tenant_flight', 'workspace_lease', 'deliveries', 'inbox'] loop
        execute format('create policy all_tenants on session.%I for select to holdfast_system using (true)', name);
    end loop;
    foreach name in array array['session_lease', 'tenant_flight', 'workspace_lease', 'deliveries'] loop
        execute format('create policy all_tenants_update on session.%I for update to holdfast_system using (true)', name);
    end loop;
    create policy all_tenants_insert on session.workspace_lease for insert to holdfast_system with check (true);
    create policy all_tenants_relay on session.events to holdfast_system using (true);
end $$;

grant select on session.session_lease, session.tenant_queue, session.tenant_flight, session.workspace_lease
    to holdfast_system;
grant update (state, epoch, owner, lease_until, attempts, ready_at, fair_key, wait, wait_until)
    on session.session_lease to holdfast_system;
grant insert, update on session.tenant_flight to holdfast_system;
create policy all_tenants_insert on session.tenant_flight for insert to holdfast_system with check (true);
grant insert, update on session.workspace_lease to holdfast_system;
grant select (tenant_id, session_id, out_seq, part, delivery_id, channel, account_id, state, owner,
              lease_until, attempt, next_at, created_at, finished_at) on session.deliveries to holdfast_system;
grant update (state, owner, lease_until, attempt, next_at, reason, finished_at) on session.deliveries to holdfast_system;
grant select (tenant_id, session_id, seq, state, accepted_at, finished_at) on session.inbox to holdfast_system;
-- Updating is what taking a row for oneself asks for.
grant select, update, delete on session.events to holdfast_system;
grant usage, select, update on sequence session.vclock to holdfast_app, holdfast_system;
