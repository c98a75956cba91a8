-- Where a channel account goes on reading at its platform: Matrix's `since`, a mailbox's UID.

create table control.account_positions (
    tenant_id   uuid not null references control.tenants on delete cascade,
    account_id  uuid not null,
    -- What the position is of: `sync`, `mailbox`.
    name        text not null check (name ~ '^[a-z_]{1,32}$'),
    -- As the channel writes it.
    position    text not null check (length(position) <= 4000),
    updated_at  timestamptz not null default now(),

    primary key (tenant_id, account_id, name),
    foreign key (tenant_id, account_id) references control.accounts on delete cascade
);
alter table control.account_positions enable row level security;
alter table control.account_positions force row level security;
create policy one_tenant on control.account_positions to holdfast_app
    using (tenant_id = control.tenant());
grant select, insert, update, delete on control.account_positions to holdfast_app;

-- Conversations of web widgets, for the visitors' pages: the widget's own platform.
create table control.widget_messages (
    tenant_id    uuid not null references control.tenants on delete cascade,
    account_id   uuid not null,
    seq          bigint generated always as identity,
    visitor      text not null check (length(visitor) <= 200),
    -- Makes a repeated message the same: the page's key, or the delivery's id.
    key          text not null check (length(key) <= 200),
    from_visitor boolean not null,
    text         text not null,
    created_at   timestamptz not null default now(),

    primary key (tenant_id, account_id, visitor, seq),
    unique (tenant_id, account_id, visitor, key),
    foreign key (tenant_id, account_id) references control.accounts on delete cascade
);
alter table control.widget_messages enable row level security;
alter table control.widget_messages force row level security;
create policy one_tenant on control.widget_messages to holdfast_app
    using (tenant_id = control.tenant());
grant select, insert, update, delete on control.widget_messages to holdfast_app;
