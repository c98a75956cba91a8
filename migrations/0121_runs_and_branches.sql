-- Where a turn came from, for lists and sums of runs: written in the statement that ends the turn. Null
-- in rows of the version before.
alter table session.runs
    -- Kind of channel of the message that began it; `api` for programs.
    add column channel text,
    -- Verified author of that message, as in its body: `telegram:42`, `api:key_…`, `person:per_…`.
    add column person text;

-- Sessions that were branched from another one. The journal
-- up to `branch_seq` is copied: both are read and deleted as any other.
alter table session.sessions
    add column branch_of uuid,
    add column branch_seq bigint,
    add constraint sessions_branch check ((branch_of is null) = (branch_seq is null));
create index sessions_branches on session.sessions (tenant_id, branch_of) where branch_of is not null;
