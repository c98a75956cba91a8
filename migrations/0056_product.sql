-- What a tenant's agents call the product that they run in: {"name", "docs_url", "commands"}; see
-- `directory::Product`.
alter table control.tenants add column product jsonb not null default '{}';
grant select (product) on control.tenants to holdfast_system;
