-- Variables of skills: secrets that the commands of a skill are given (SKL-013, docs/skills.md).

create table control.skill_env (
    tenant_id   uuid not null references control.tenants on delete cascade,
    -- The skill's name, in lower case: one of that name of any agent of the tenant.
    skill       text not null check (skill ~ '^[a-z0-9][a-z0-9-]{0,63}$'),
    name        text not null check (name ~ '^[A-Za-z_][A-Za-z0-9_]{0,99}$'),
    -- Sealed with the tenant's data key.
    value       bytea not null,
    updated_at  timestamptz not null default now(),

    primary key (tenant_id, skill, name)
);

alter table control.skill_env enable row level security;
alter table control.skill_env force row level security;
create policy one_tenant on control.skill_env to holdfast_app
    using (tenant_id = control.tenant());
grant select, insert, update, delete on control.skill_env to holdfast_app;
