-- Any number of channels: which there are is known to the services (`directory::channel`).

alter table control.accounts
    drop constraint accounts_channel_check,
    add constraint accounts_channel_check check (channel ~ '^[a-z][a-z0-9_-]{0,31}$');

-- What the bridge that serves an account last knew about its platform.
create table control.account_status (
    tenant_id   uuid not null references control.tenants on delete cascade,
    account_id  uuid not null,
    state       text not null check (state in ('connecting', 'working', 'failing')),
    -- For people: as whom the account is signed in, or why it fails. No secrets.
    detail      text not null default '' check (length(detail) <= 500),
    -- When the state began.
    since       timestamptz not null default now(),
    checked_at  timestamptz not null default now(),

    primary key (tenant_id, account_id),
    foreign key (tenant_id, account_id) references control.accounts on delete cascade
);
alter table control.account_status enable row level security;
alter table control.account_status force row level security;
create policy one_tenant on control.account_status to holdfast_app
    using (tenant_id = control.tenant());
grant select, insert, update, delete on control.account_status to holdfast_app;

-- When the first attempt began whose outcome is not known. Platforms keep idempotency keys for a
-- limited time, which is measured from here.
alter table session.deliveries add column unsure_since timestamptz;
grant select (unsure_since), update (unsure_since) on session.deliveries to holdfast_system;
