-- People who sign in at an identity provider. A row is made at the first sign-in. Role and name are
-- those of the newest token: the issuer and the settings decide, not this table.
create table control.people (
    tenant_id   uuid not null references control.tenants on delete cascade,
    person_id   uuid not null,
    issuer      text not null check (octet_length(issuer) between 1 and 1000),
    -- The person's id at the issuer.
    subject     text not null check (octet_length(subject) between 1 and 255),
    name        text not null check (length(name) between 1 and 200),
    role        text not null check (role in ('viewer', 'member', 'operator', 'owner')),
    created_at  timestamptz not null default now(),
    -- Exact to the hour.
    seen_at     timestamptz not null default now(),
    -- Set: the person is refused, whatever the issuer says.
    disabled_at timestamptz,

    primary key (tenant_id, person_id),
    constraint people_subject_key unique (tenant_id, issuer, subject)
);

alter table control.people enable row level security;
alter table control.people force row level security;
create policy one_tenant on control.people to holdfast_app using (tenant_id = control.tenant());
grant select, insert, update, delete on control.people to holdfast_app;
