-- Calls that need a person's word: one record for each, and what may be done without asking again.

create table session.approvals (
    tenant_id    uuid not null,
    approval_id  uuid not null,
    -- The end of its id, by which people call it.
    slug         text not null check (octet_length(slug) = 8),
    session_id   uuid not null,
    agent_id     uuid not null,
    run_id       uuid not null,
    -- Which thought of the run asked for the call, and what it called it.
    step         integer not null,
    call         text not null,
    tool         text not null check (octet_length(tool) <= 128),
    -- Exactly what is approved, and its SHA-256: a call with another is another call.
    subject      text not null check (octet_length(subject) <= 65536),
    subject_hash bytea not null check (octet_length(subject_hash) = 32),
    -- The same in a line, for the person who is asked.
    summary      text not null check (octet_length(summary) <= 4096),
    -- What "always" would allow; null is this subject and no other.
    pattern      text check (octet_length(pattern) <= 4096),
    state        text not null default 'pending'
                 check (state in ('pending', 'allowed_once', 'allowed_always', 'denied', 'expired')),
    -- Who decided: an API key's id, or `channel:sender`; null where nobody did.
    decided_by   text check (octet_length(decided_by) <= 512),
    asked_at     timestamptz not null default clock_timestamp(),
    expires_at   timestamptz not null,
    decided_at   timestamptz,

    primary key (tenant_id, approval_id),
    constraint approvals_call unique (tenant_id, run_id, step, call)
);
create index approvals_recent on session.approvals (tenant_id, asked_at desc);
create index approvals_pending on session.approvals (tenant_id, session_id) where state = 'pending';
create index approvals_of_session on session.approvals (tenant_id, session_id);

-- What "always" allowed an agent to do without asking.
create table session.approval_rules (
    tenant_id    uuid not null,
    rule_id      uuid not null,
    agent_id     uuid not null,
    tool         text not null,
    subject_hash bytea not null check (octet_length(subject_hash) = 32),
    -- As the tool said; null is the subject and no other.
    pattern      text,
    -- In a line, for people.
    summary      text not null,
    created_by   text,
    created_at   timestamptz not null default clock_timestamp(),
    last_used_at timestamptz,
    -- What it was used for last, in a line.
    last_used    text,

    primary key (tenant_id, rule_id)
);
create unique index approval_rules_once on session.approval_rules
    (tenant_id, agent_id, tool, coalesce(pattern, ''), (case when pattern is null then subject_hash end))
    nulls not distinct;

-- The approval that a message asks for, so that a platform with buttons can show them.
alter table session.deliveries add column approval_id uuid;

do $$
declare
    name text;
begin
    foreach name in array array['approvals', 'approval_rules'] loop
        execute format('alter table session.%I enable row level security', name);
        execute format('alter table session.%I force row level security', name);
        execute format(
            'create policy one_tenant on session.%I to holdfast_app using (tenant_id = control.tenant())',
            name);
        execute format('grant select, insert, update, delete on session.%I to holdfast_app', name);
    end loop;
end $$;
