-- Devices: programs that people connect over WebSocket with an Ed25519 key of their own (decision 0088).
-- A token of a device has no rights of its own: it may do what it was approved for and what the key or
-- person that approved it may do at the time of the call.

create table control.devices (
    tenant_id    uuid not null references control.tenants on delete cascade,
    -- SHA-256 of its public key, in hex: the same in each tenant.
    device_id    text not null check (device_id ~ '^[0-9a-f]{64}$'),
    public_key   bytea not null check (octet_length(public_key) = 32),
    -- What it says of itself.
    name         text not null check (octet_length(name) <= 800),
    platform     text not null check (octet_length(platform) <= 800),
    family       text not null check (octet_length(family) <= 800),
    client_id    text not null check (octet_length(client_id) <= 800),
    client_mode  text not null check (octet_length(client_mode) <= 800),
    -- Scopes of OpenClaw's protocol, as `operator.read`.
    scopes       text[] not null,
    -- Who approved it: exactly one.
    approver_key    uuid,
    approver_person uuid,
    -- Public part of its token, by which the tenant is found.
    token_id     uuid not null,
    -- HMAC-SHA-256 of its token's secret with the platform's pepper; null until the token is issued.
    digest       bytea,
    issued_at    timestamptz,
    -- Set if its token was revoked. Rotation lifts it.
    revoked_at   timestamptz,
    approved_at  timestamptz not null default now(),

    primary key (tenant_id, device_id),
    constraint devices_token_key unique (token_id),
    constraint devices_approver check (num_nonnulls(approver_key, approver_person) = 1)
);

-- Requests of devices to be paired, or to be given further scopes; the newest of each device.
create table control.device_requests (
    tenant_id    uuid not null references control.tenants on delete cascade,
    request_id   uuid not null,
    device_id    text not null check (device_id ~ '^[0-9a-f]{64}$'),
    public_key   bytea not null check (octet_length(public_key) = 32),
    name         text not null check (octet_length(name) <= 800),
    platform     text not null check (octet_length(platform) <= 800),
    family       text not null check (octet_length(family) <= 800),
    client_id    text not null check (octet_length(client_id) <= 800),
    client_mode  text not null check (octet_length(client_mode) <= 800),
    scopes       text[] not null,
    requested_at timestamptz not null default now(),
    expires_at   timestamptz not null,
    -- Set if it was rejected. The row stays until it expires, so that the device does not ask again.
    rejected_at  timestamptz,

    primary key (tenant_id, request_id),
    constraint device_requests_device unique (tenant_id, device_id)
);

do $$
declare
    name text;
begin
    foreach name in array array['devices', 'device_requests'] loop
        execute format('alter table control.%I enable row level security', name);
        execute format('alter table control.%I force row level security', name);
        execute format(
            'create policy one_tenant on control.%I to holdfast_app using (tenant_id = control.tenant())',
            name);
        execute format('grant select, insert, update, delete on control.%I to holdfast_app', name);
        execute format(
            'create trigger audit_1_note after insert or update or delete on control.%I
             for each row when (current_setting(''holdfast.change'', true) <> '''')
             execute function control.note_change()', name);
    end loop;
end $$;

-- The one way from a device's token to its tenant; see `control.find_key`.
create policy find_device on control.devices for select to current_user using (true);
create function control.find_device(wanted uuid) returns table (tenant_id uuid)
    language sql stable security definer set search_path = pg_catalog as
$$ select d.tenant_id from control.devices d where d.token_id = wanted $$;
revoke all on function control.find_device(uuid) from public;
grant execute on function control.find_device(uuid) to holdfast_system;

-- What people call a session, beside the label with which a program made it; and whether they pinned it.
-- Without a check, for which all rows would be read under a lock.
alter table session.sessions add column given_label text, add column pinned_at timestamptz;
