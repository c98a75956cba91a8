-- A run whose answer was to be delivered has ended well only once it has arrived.

alter table schedule.firings
    -- Whether that it was answered is not enough: what was said must have arrived.
    add column arrives boolean not null default false,
    -- Since when what was said is on its way; the job's next firing need not wait for it.
    add column answered_at timestamptz;

-- Whether what a turn said has arrived is asked for many tenants at once; never what it was.
grant select (run_id) on session.deliveries to holdfast_system;
