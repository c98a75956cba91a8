-- Secret from which the keys follow with which gateways and runners sign requests on NATS. Roles of
-- other services have no right to read it (crates/pg/src/service_rights.sql).
create table control.request_key (
    id     boolean primary key default true check (id),
    secret bytea not null check (octet_length(secret) = 32)
);

insert into control.request_key (secret)
values (uuid_send(gen_random_uuid()) || uuid_send(gen_random_uuid()));

alter table control.request_key enable row level security;
alter table control.request_key force row level security;
create policy all_rows on control.request_key to holdfast_system using (true);
grant select on control.request_key to holdfast_system;
