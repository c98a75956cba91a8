-- Todos, worklogs, tasks and the ledger (docs/decisions/0094-todos-worklog-ledger.md).
create schema work;
grant usage on schema work to holdfast_app, holdfast_system;

-- The todo list and the worklog of a root session. Writers to either lock its row.
create table work.lists (
    tenant_id    uuid not null,
    -- Id of the root session.
    list_id      uuid not null,
    agent_id     uuid not null,
    workspace_id uuid,
    -- Highest number of a todo, and of a task; 0 if there is none.
    last_number  integer not null default 0,
    last_task    integer not null default 0,
    -- Number of todos in each status.
    counts       jsonb not null default '{}',
    -- Newest `seq` of todo_ops and of worklog.
    op_seq       bigint not null default 0,
    log_seq      bigint not null default 0,
    created_at   timestamptz not null default clock_timestamp(),

    primary key (tenant_id, list_id),
    constraint lists_session foreign key (tenant_id, list_id)
        references session.sessions (tenant_id, session_id) on delete cascade
);

create table work.todos (
    tenant_id uuid not null,
    list_id   uuid not null,
    -- 1 for T001.
    number    integer not null,
    kind      text not null check (kind in ('task', 'bench')),
    status    text not null
        check (status in ('WAIT', 'IN_PROGRESS', 'COMPLETE', 'FAILED', 'DONE', 'CHECK_FAILED')),
    priority  integer not null,
    assignee  text,
    -- Numbers of todos to be finished before.
    deps      integer[] not null,
    -- The whole todo; see `work::Todo`.
    body      jsonb not null,

    primary key (tenant_id, list_id, number),
    foreign key (tenant_id, list_id) references work.lists (tenant_id, list_id) on delete cascade
);
create index todos_by_status on work.todos (tenant_id, list_id, status, priority, number);
create index todos_unfinished on work.todos (tenant_id, list_id, number)
    where status not in ('COMPLETE', 'DONE');
create index todos_waiting_benches on work.todos (tenant_id, list_id, priority, number)
    where kind = 'bench' and status = 'WAIT';

-- Operations on todo lists, from which a list can be made again.
create table work.todo_ops (
    tenant_id  uuid not null,
    list_id    uuid not null,
    seq        bigint not null,
    op_id      text not null check (octet_length(op_id) between 1 and 256),
    session_id uuid not null,
    actor      jsonb not null,
    ops        jsonb not null,
    results    jsonb not null,
    at         timestamptz not null,

    primary key (tenant_id, list_id, seq),
    constraint todo_ops_op_id unique (tenant_id, list_id, op_id),
    foreign key (tenant_id, list_id) references work.lists (tenant_id, list_id) on delete cascade
);

-- Changes of todos that waiting sessions are not told of yet.
create table work.wakeups (
    tenant_id  uuid not null,
    wakeup_id  bigint generated always as identity,
    list_id    uuid not null,
    -- Session that made the change; null for a person.
    changed_by uuid,
    text       text not null,

    primary key (tenant_id, wakeup_id),
    foreign key (tenant_id, list_id) references work.lists (tenant_id, list_id) on delete cascade
);

create table work.worklog (
    tenant_id    uuid not null,
    list_id      uuid not null,
    seq          bigint not null,
    record_id    uuid not null,
    at           timestamptz not null default clock_timestamp(),
    type         text not null,
    scope        text not null check (scope in ('session', 'workspace', 'subagent')),
    agent_id     uuid not null,
    session_id   uuid not null,
    workspace_id uuid,
    run_id       uuid,
    behavior     text not null default '',
    step         integer not null default 0,
    todo         text,
    -- Level, domain and importance.
    impact_level text not null check (impact_level in ('external', 'internal', 'none')),
    domain       text not null default '',
    importance   smallint not null default 0,
    status       text not null check (status in ('OK', 'FAILED', 'PENDING')),
    trace        text,
    payload      jsonb not null default '{}',
    artifacts    jsonb not null default '[]',
    error        text,
    -- What a prompt may show: one line, and more.
    digest       text not null default '',
    detail       text not null default '',
    commit_state text not null check (commit_state in ('PENDING', 'COMMITTED', 'ABORTED')),

    primary key (tenant_id, list_id, seq),
    foreign key (tenant_id, list_id) references work.lists (tenant_id, list_id) on delete cascade
);
create index worklog_pending on work.worklog (tenant_id, session_id)
    where commit_state = 'PENDING';

-- Steps of behaviours, the model calls and the actions in them.
create table work.tasks (
    tenant_id     uuid not null,
    task_id       uuid not null,
    parent_id     uuid,
    session_id    uuid not null,
    run_id        uuid,
    kind          text not null check (kind in ('step', 'model', 'tool', 'action', 'result')),
    -- Behaviour, model or tool.
    name          text not null,
    step          integer not null,
    status        text not null check (status in ('OK', 'FAILED')),
    input_tokens  bigint not null default 0,
    cached_tokens bigint not null default 0,
    output_tokens bigint not null default 0,
    cost_micros   bigint not null default 0,
    error         text,
    -- What came of it, shortened.
    result        text not null default '',
    started_at    timestamptz not null,
    finished_at   timestamptz not null,

    primary key (tenant_id, session_id, task_id),
    constraint tasks_session foreign key (tenant_id, session_id)
        references session.sessions (tenant_id, session_id) on delete cascade
);

-- Append-only. A row gets its position and its hash once, from one writer, after its transaction.
create table work.ledger (
    tenant_id     uuid not null,
    entry_id      uuid not null,
    at            timestamptz not null default clock_timestamp(),
    kind          text not null check (kind in ('period', 'model', 'tool', 'wallet')),
    agent_id      uuid not null,
    session_id    uuid not null,
    run_id        uuid,
    -- Model or tool.
    name          text not null,
    -- Outcome, as a word.
    outcome       text not null,
    input_tokens  bigint not null default 0,
    cached_tokens bigint not null default 0,
    output_tokens bigint not null default 0,
    cost_micros   bigint not null default 0,
    duration_ms   bigint not null default 0,
    steps         integer not null default 0,
    trace         text,
    position      bigint,
    hash          bytea,

    primary key (tenant_id, entry_id),
    constraint ledger_position unique (tenant_id, position),
    check ((position is null) = (hash is null))
);
create index ledger_unchained on work.ledger (tenant_id, entry_id) where position is null;

-- End of each tenant's chain.
create table work.ledger_heads (
    tenant_id uuid primary key,
    position  bigint not null,
    hash      bytea not null
);

do $$
declare
    name text;
begin
    foreach name in array array[
        'lists', 'todos', 'todo_ops', 'wakeups', 'worklog', 'tasks', 'ledger', 'ledger_heads'
    ] loop
        execute format('alter table work.%I enable row level security', name);
        execute format('alter table work.%I force row level security', name);
        execute format('create policy one_tenant on work.%I to holdfast_app using (tenant_id = control.tenant())', name);
        execute format('grant select, insert, delete on work.%I to holdfast_app', name);
    end loop;
end $$;
grant update on work.lists, work.todos, work.ledger_heads to holdfast_app;
-- A record of the worklog is committed or aborted, and otherwise never changed.
grant update (commit_state) on work.worklog to holdfast_app;
grant update (position, hash) on work.ledger to holdfast_app;
create policy once on work.ledger as restrictive for update to holdfast_app
    using (position is null) with check (true);
-- The ledger is deleted with its tenant only.
create policy with_its_tenant on work.ledger as restrictive for delete to holdfast_app
    using (exists (select from control.tenants t
                   where t.tenant_id = ledger.tenant_id and t.deleting_at is not null));
create policy with_its_tenant on work.ledger_heads as restrictive for delete to holdfast_app
    using (exists (select from control.tenants t
                   where t.tenant_id = ledger_heads.tenant_id and t.deleting_at is not null));

-- Which tenants have something to do; no content.
create policy all_tenants on work.wakeups for select to holdfast_system using (true);
create policy all_tenants on work.ledger for select to holdfast_system using (true);
grant select (tenant_id, wakeup_id) on work.wakeups to holdfast_system;
grant select (tenant_id, entry_id, position) on work.ledger to holdfast_system;
