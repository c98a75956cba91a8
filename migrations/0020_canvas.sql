-- What an agent shows beside a conversation: surfaces, for a program that can draw them
-- (docs/canvas.md, decision 0025).

create table session.surfaces (
    tenant_id  uuid not null,
    session_id uuid not null,
    surface    text not null check (length(surface) between 1 and 64),
    title      text not null default '' check (length(title) <= 200),
    kind       text not null check (kind in ('a2ui', 'markdown', 'html')),
    -- A text; of `a2ui` a JSON list of messages that make the surface as it is.
    content    text not null check (octet_length(content) <= 262144),
    shown      boolean not null default true,
    -- Another one after each change, so that whoever shows it sees it.
    version    bigint not null default 1,
    updated_at timestamptz not null default clock_timestamp(),

    primary key (session_id, surface, tenant_id)
);
alter table session.surfaces enable row level security;
alter table session.surfaces force row level security;
create policy one_tenant on session.surfaces to holdfast_app using (tenant_id = control.tenant());
grant select, insert, update, delete on session.surfaces to holdfast_app;
