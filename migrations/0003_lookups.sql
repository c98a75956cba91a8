-- Every look-up by an id or a key has one index that can serve it, whatever the statistics say.
--
-- A table that was never analysed is planned as if a tenant had one row in it, and then any index
-- that begins with the tenant looks as good as the one that was meant: a statement that wants one
-- session reads all of the tenant's. So the indexes of a turn's path begin with what is selective,
-- and those that begin with the tenant are for lists alone: each has a condition that is true of
-- every row, and only a query that says it (`kind <> ''`) can use the index.

alter table session.session_alias drop constraint session_alias_tenant_id_session_id_fkey;
alter table session.session_lease drop constraint session_lease_tenant_id_session_id_fkey;

alter table session.sessions drop constraint sessions_pkey, drop constraint sessions_key,
    add primary key (session_id, tenant_id),
    add constraint sessions_key unique (key, tenant_id);
drop index session.sessions_recent;
create index sessions_listed on session.sessions (tenant_id, session_id) where kind <> '';

alter table session.session_lease drop constraint session_lease_pkey,
    add primary key (session_id, tenant_id),
    add constraint session_lease_session_fkey foreign key (tenant_id, session_id)
        references session.sessions (tenant_id, session_id) on delete cascade;

alter table session.session_alias drop constraint session_alias_pkey,
    add primary key (alias, tenant_id),
    add constraint session_alias_session_fkey foreign key (tenant_id, session_id)
        references session.sessions (tenant_id, session_id) on delete cascade;
create index alias_of_session on session.session_alias (session_id);

alter table session.inbox drop constraint inbox_pkey, drop constraint inbox_message_key,
    drop constraint inbox_idem_key,
    add primary key (session_id, seq, tenant_id),
    add constraint inbox_message_key unique (message_id, tenant_id),
    add constraint inbox_idem_key unique (idem_key, source, tenant_id);
drop index session.inbox_open;
create index inbox_open on session.inbox (session_id, seq) where state in ('new', 'seen');

alter table session.tombstones drop constraint tombstones_pkey,
    add primary key (idem_key, source, tenant_id);

alter table session.entries drop constraint entries_pkey,
    add primary key (session_id, seq, tenant_id);

alter table session.runs drop constraint runs_pkey,
    add primary key (run_id, tenant_id);
drop index session.runs_of_session;
create index runs_of_session on session.runs (session_id, finished_at desc);
drop index session.runs_recent;
create index runs_listed on session.runs (tenant_id, finished_at desc) where steps >= 0;

alter table session.deliveries drop constraint deliveries_pkey, drop constraint deliveries_id_key,
    add primary key (session_id, out_seq, part, tenant_id),
    add constraint deliveries_id_key unique (delivery_id, tenant_id);
drop index session.deliveries_open;
create index deliveries_open on session.deliveries (session_id, out_seq, part)
    where state in ('pending', 'sending');
create index deliveries_listed on session.deliveries (tenant_id, created_at desc) where part >= 0;
