-- no-transaction
-- Sessions that wait for a person or an event, or are paused: for the list of what goes on, and for the
-- count of questions. It changes when a wait or a pause begins or ends, and not with other turns.
create index concurrently if not exists lease_held on session.session_lease (tenant_id, session_id)
    where state in ('WAIT_FOR_MSG', 'WAIT_FOR_EVENT') or paused is not null;
