-- Steps of behaviours that can be rolled back (docs/decisions/0097-rolling-back-a-step.md): written in
-- the transaction that saves a step, the newest 16 of a session.
create table session.behavior_steps (
    tenant_id     uuid not null,
    session_id    uuid not null,
    -- 1, 2, … in the order of the session's steps.
    number        bigint not null,
    run_id        uuid not null,
    -- Name of the behaviour with its parameters, and the step in it.
    behavior      text not null,
    step          integer not null,
    -- First entry of the journal that the step was the first to read.
    first_entry   bigint not null,
    -- Number of the run's thoughts before the step. With the run it is the step's id, and the keys of
    -- what the step changed have both.
    first_thought integer not null,
    -- Newest record of the worklog after the step.
    log_seq       bigint not null,
    -- State of behaviours, label and local workspace of the session before the step.
    state         jsonb not null,
    label         text,
    workspace     text,
    saved_at      timestamptz not null default clock_timestamp(),
    -- What the rollback has done; null if the step is not rolled back.
    rollback      jsonb,

    primary key (session_id, number, tenant_id),
    constraint behavior_steps_id unique (tenant_id, session_id, run_id, first_thought)
);
alter table session.behavior_steps enable row level security;
alter table session.behavior_steps force row level security;
create policy one_tenant on session.behavior_steps to holdfast_app
    using (tenant_id = control.tenant());
grant select, insert, delete on session.behavior_steps to holdfast_app;
grant update (rollback) on session.behavior_steps to holdfast_app;

alter table work.ledger
    drop constraint ledger_kind_check,
    add constraint ledger_kind_check
        check (kind in ('period', 'model', 'tool', 'wallet', 'hit_points', 'rollback'));
