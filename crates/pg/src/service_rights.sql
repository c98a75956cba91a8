-- Rights of the services' roles; applied after the migrations, and may be applied again.
--
-- Each service may log in as a role of its own, such as holdfast_gateway, which takes one of two
-- roles on each connection:
--
-- holdfast_gateway_app     some of the rights of holdfast_app: rows of one tenant
-- holdfast_gateway_system  some of the rights of holdfast_system: leases and ids of all tenants
--
-- The policies of row-level security know them by two roles without rights that they inherit:
-- holdfast_tenant_rows and holdfast_all_rows. An owner who may not make roles has none of this, and
-- the services log in as one role, which is a member of holdfast_app and holdfast_system.
--
-- A runner may also log in for one pool (docs/decisions/0129-a-login-for-each-runner-pool.md), as
-- holdfast_runner_pool_POOL, or as holdfast_runner_default for the tenants without a pool. Such a login
-- takes holdfast_pool_app or holdfast_pool_system, which have the rights of the runner's roles. For
-- these two, restrictive policies on every table with tenants hide the tenants of other pools.
do $$
#variable_conflict use_column
declare
    service text;
    kind text;
    own text;
    marker text;
    r record;
begin
    foreach own in array array['holdfast_tenant_rows', 'holdfast_all_rows',
                               'holdfast_pool_app', 'holdfast_pool_system'] || (
        select array_agg(format('holdfast_%s_%s', s, k))
        from unnest(array['gateway', 'runner', 'scheduler', 'memory', 'bridge']) s,
             unnest(array['app', 'system']) k)
    loop
        -- Roles belong to the cluster: another database may have made them, even at this moment.
        if not exists (select from pg_roles where rolname = own) then
            begin
                execute format('create role %I nologin', own);
            exception when duplicate_object or unique_violation then null;
            end;
        end if;
    end loop;

    -- A policy for the two roles of all services is one for the roles of each.
    for r in
        select p.polrelid::regclass as relation, p.polname, base, added
        from pg_policy p
        join (values ('holdfast_app', 'holdfast_tenant_rows'),
                     ('holdfast_system', 'holdfast_all_rows')) pairs (base, added)
          on base::regrole = any(p.polroles) and not added::regrole = any(p.polroles)
    loop
        execute format('alter policy %I on %s to %I, %I', r.polname, r.relation, r.base, r.added);
    end loop;

    foreach service in array array['gateway', 'runner', 'scheduler', 'memory', 'bridge'] loop
        foreach kind in array array['app', 'system'] loop
            own := format('holdfast_%s_%s', service, kind);
            marker := case kind when 'app' then 'holdfast_tenant_rows' else 'holdfast_all_rows' end;
            for r in
                select marker as granted, own as member, 'inherit true' as how
                union all
                select own, 'holdfast_' || service, 'inherit false, set true'
                where exists (select from pg_roles where rolname = 'holdfast_' || service)
            loop
                if not exists (select from pg_auth_members where roleid = r.granted::regrole
                               and member = r.member::regrole) then
                    begin
                        execute format('grant %I to %I with %s', r.granted, r.member, r.how);
                    exception when unique_violation then null;
                    end;
                end if;
            end loop;
            -- What an earlier version granted and the rules below do not.
            for r in
                select nspname from pg_namespace
                where nspname in ('control', 'session', 'workspace', 'schedule', 'memory', 'work')
            loop
                execute format('revoke all on all tables in schema %I from %I', r.nspname, own);
                execute format('revoke all on all functions in schema %I from %I', r.nspname, own);
            end loop;
            execute format('grant usage on schema control to %I', own);
        end loop;
    end loop;

    for r in
        with rules (service, kind, pattern, privileges, hidden) as (values
            -- `privileges` of the role of all services that the service's own role has too; null for
            -- all. `hidden` columns are never read.
            ('gateway', 'app', '^(control|session|workspace|schedule|work)[.]', null::text[], null::text[]),
            ('gateway', 'system', '^(control|session|workspace|schedule|work)[.]', null, null),
            -- A runner executes what models write. It makes no keys, people, accounts, policies or nodes.
            ('runner', 'app', '^(session|workspace|schedule|work)[.]', null, null),
            ('runner', 'system', '^(session|workspace|schedule|work)[.]', null, null),
            ('runner', 'app', '^control[.](behaviors|identities|link_attempts|link_codes)$', null, null),
            ('runner', 'app', '^control[.](audit|auth_stats|limit_notices|tenant_events)$', array['INSERT'], null),
            ('runner', 'app', '^control[.](auth_profiles|auth_stats|event_webhooks|providers|tenants)$',
                array['SELECT', 'UPDATE'], null),
            ('runner', 'app',
                '^control[.](accounts|agents|auth_orders|budgets|chains|connections|mcp_servers|model_aliases|models|nodes|people|plans|platform_(keys|providers)|policies|skill_env)$',
                array['SELECT'], null),
            ('runner', 'app', '^control[.]keys$', array['SELECT'], array['digest']),
            ('runner', 'system', '^control[.](accounts|event_webhooks|plans|request_key|tenants)$', array['SELECT'], null),
            ('runner', 'system', '^control[.]platform_keys$', array['SELECT', 'UPDATE'], null),
            ('runner', 'system', '^control[.](limit_notices|tenant_events|tools)$', null, null),
            -- For the deletion of a tenant, of which the runner sees no other content.
            ('runner', 'app', '^(control|memory)[.]', array['DELETE'], null),
            ('scheduler', 'app', '^schedule[.](firings|jobs)$', null, null),
            ('scheduler', 'app', '^schedule[.](heartbeat_events|runs)$', array['SELECT', 'INSERT', 'DELETE'], null),
            ('scheduler', 'app', '^schedule[.]heartbeat_marks$', array['SELECT', 'INSERT', 'UPDATE'], null),
            -- What accepting a message writes, and no text of a conversation is changed.
            ('scheduler', 'app', '^session[.](inbox|sessions)$', array['SELECT', 'INSERT'], null),
            ('scheduler', 'app', '^session[.](session_lease|tenant_flight)$', array['SELECT', 'INSERT', 'UPDATE'], null),
            ('scheduler', 'app', '^session[.]system_events$', array['SELECT', 'INSERT'], null),
            ('scheduler', 'app', '^session[.]vclock$', null, null),
            ('scheduler', 'app', '^session[.]events$', array['INSERT'], null),
            ('scheduler', 'app', '^session[.](approvals|behaviors|deliveries|entries|runs|tenant_queue|tombstones|zones)$',
                array['SELECT'], null),
            ('scheduler', 'app', '^workspace[.](changes|contents|files|trees)$', array['SELECT'], null),
            ('scheduler', 'app', '^control[.](agents|policies|identities|bindings|rules)$', array['SELECT'], null),
            ('scheduler', 'app', '^control[.]tenants$', array['SELECT'], array['data_key']),
            ('scheduler', 'app', '^control[.]accounts$', array['SELECT'], array['secrets']),
            ('scheduler', 'system', '^schedule[.](?!jobs_to_sign$)|^control[.]tenants$', null, null),
            ('scheduler', 'system', '^session[.](deliveries|inbox|runs)$', array['SELECT'], null),
            ('scheduler', 'system', '^session[.]events$', array['INSERT'], null),
            ('memory', 'app', '^memory[.]', null, null),
            ('memory', 'system', '^memory[.]', null, null),
            ('bridge', 'app', '^session[.]deliveries$', array['SELECT', 'INSERT', 'UPDATE'], null),
            ('bridge', 'app', '^session[.]events$', array['INSERT'], null),
            ('bridge', 'app', '^workspace[.]contents$', array['SELECT'], null),
            ('bridge', 'app', '^control[.](tenants|accounts)$', array['SELECT'], null),
            ('bridge', 'app', '^control[.](account_(status|positions)|widget_messages)$', null, null),
            ('bridge', 'system', '^session[.]deliveries$|^control[.](tenants|accounts)$', null, null),
            ('bridge', 'system', '^session[.]events$', array['INSERT'], null)
        ),
        base (kind, relation, name, is_sequence, privilege, columns) as (
            select b.kind, c.oid, n.nspname || '.' || c.relname, c.relkind = 'S', a.privilege_type, null::text[]
            from (values ('app', 'holdfast_app'), ('system', 'holdfast_system')) b (kind, role)
            cross join pg_class c join pg_namespace n on n.oid = c.relnamespace
            cross join lateral aclexplode(c.relacl) a
            where a.grantee = b.role::regrole and c.relkind in ('r', 'p', 'v', 'S')
            union all
            select b.kind, c.oid, n.nspname || '.' || c.relname, false, a.privilege_type,
                   array_agg(t.attname::text)
            from (values ('app', 'holdfast_app'), ('system', 'holdfast_system')) b (kind, role)
            cross join pg_class c join pg_namespace n on n.oid = c.relnamespace
            join pg_attribute t on t.attrelid = c.oid and t.attnum > 0 and not t.attisdropped
            cross join lateral aclexplode(t.attacl) a
            where a.grantee = b.role::regrole
            group by 1, 2, 3, 4, 5
        )
        select format('holdfast_%s_%s', rules.service, base.kind) as own, relation::regclass as relation, is_sequence,
               privilege, case
                   when hidden is null then columns
                   else (select array_agg(attname::text) from pg_attribute
                         where attrelid = relation and attnum > 0 and not attisdropped
                           and not attname = any(hidden))
               end as columns,
               name
        from rules join base using (kind)
        where name ~ pattern and (privileges is null or privilege = any(privileges))
    loop
        execute format('grant usage on schema %I to %I', split_part(r.name, '.', 1), r.own);
        execute format('grant %s %s on %s %s to %I', r.privilege,
            case when r.columns is null then ''
                 else (select '(' || string_agg(quote_ident(c), ', ') || ')' from unnest(r.columns) c) end,
            case when r.is_sequence then 'sequence' else 'table' end, r.relation, r.own);
        if r.own = 'holdfast_runner_app' and r.privilege = 'DELETE'
           and exists (select from pg_attribute where attrelid = r.relation and attname = 'tenant_id') then
            execute format('grant select (tenant_id, ctid) on %s to %I', r.relation, r.own);
        end if;
    end loop;

    -- A trigger of agents' definitions counts up.
    grant update (definition_version) on control.agents to holdfast_runner_app;

    -- A scheduler drops the oldest event of a full conversation, and changes none.
    grant update (gone_at) on session.system_events to holdfast_scheduler_app;

    -- A scheduler writes messages of its own sources, which runners verify, and sessions without rights
    -- that somebody would have to give them. `crates/types/src/message/job_firing.rs` has the sources. A
    -- policy that is there is left alone, as a change locks the table: another condition needs another
    -- name.
    for r in
        select * from (values
            ('session.inbox', 'insert', $q$source in ('schedule', 'heartbeat')$q$),
            ('session.sessions', 'insert',
                $q$settings - array['model', 'thinking'] = '{}' and last_target is null
                   and parent_id is null and behavior is null and summary = ''
                   and last_step_summary = ''$q$),
            ('session.system_events', 'update', 'gone_at is not null')) p (relation, command, condition)
        where not exists (select from pg_policy where polrelid = relation::regclass
                          and polname = 'what_schedulers_write')
    loop
        execute format('create policy what_schedulers_write on %s as restrictive for %s to holdfast_scheduler_app
            %s with check (%s)', r.relation, r.command,
            case r.command when 'update' then 'using (true)' else '' end, r.condition);
    end loop;

    -- How the previews of replies stand; no text of a conversation.
    grant select (tenant_id, session_id, message_id, state, target, preview), update (preview)
        on session.inbox to holdfast_bridge_app;

    for r in
        select p.oid::regprocedure as function, n.nspname, own_name as own
        from (values ('gateway', 'app', 'holdfast_app', '^(control[.]|session[.]|memory[.]forget_later$)'),
                     ('gateway', 'system', 'holdfast_system', '^(control|session)[.]'),
                     ('runner', 'app', 'holdfast_app', '^(control[.]|session[.]|memory[.]forget_later$)'),
                     ('runner', 'system', 'holdfast_system', '^(control[.](?!find_)|session[.])'),
                     ('memory', 'app', 'holdfast_app', '^memory[.]')) f (service, kind, base, pattern)
        cross join lateral (select format('holdfast_%s_%s', f.service, f.kind) as own_name) o
        cross join pg_proc p join pg_namespace n on n.oid = p.pronamespace
        cross join lateral aclexplode(p.proacl) a
        where a.grantee = f.base::regrole and n.nspname || '.' || p.proname ~ f.pattern
    loop
        execute format('grant usage on schema %I to %I', r.nspname, r.own);
        execute format('grant execute on function %s to %I', r.function, r.own);
    end loop;

    for own in
        select format('holdfast_%s_system', s)
        from unnest(array['gateway', 'runner', 'scheduler', 'memory', 'bridge']) s
    loop
        -- The version, and nothing else that the owner has.
        execute format('grant select on _sqlx_migrations to %I', own);
    end loop;

    for r in
        -- Without `set`, a login of a pool cannot take the runner's own roles, which see all pools.
        select 'holdfast_runner_' || k as granted, 'holdfast_pool_' || k as member, 'inherit true, set false' as how
        from unnest(array['app', 'system']) k
        union all
        select 'holdfast_pool_' || k, rolname, 'inherit false, set true'
        from pg_roles cross join unnest(array['app', 'system']) k
        where rolname ~ '^holdfast_runner_(default|pool_[a-z0-9-]+)$'
    loop
        if not exists (select from pg_auth_members where roleid = r.granted::regrole
                       and member = r.member::regrole) then
            begin
                execute format('grant %I to %I with %s', r.granted, r.member, r.how);
            exception when unique_violation then null;
            end;
        end if;
    end loop;

    -- The pool of the login; null is the default pool, and an empty text no pool at all. A role that
    -- was taken does not change the session's user, and neither does a function of another owner.
    create or replace function control.login_pool() returns text
        language sql stable parallel safe set search_path = pg_catalog
    as $function$
        select case when session_user = 'holdfast_runner_default' then null
                    when session_user like 'holdfast\_runner\_pool\__%' then substr(session_user, 22)
                    else '' end
    $function$;

    -- Whether the tenant of the transaction is of the login's pool.
    create or replace function control.pool_admits() returns boolean
        language sql stable security definer set search_path = pg_catalog
    as $function$
        select (select pool from session.tenant_queue where tenant_id = control.tenant())
               is not distinct from control.login_pool()
    $function$;

    -- The tenants of the login's pool. For the default pool: all that are not of it.
    create or replace function control.pool_tenants() returns setof uuid
        language sql stable security definer set search_path = pg_catalog
    as $function$
        select tenant_id from session.tenant_queue
        where pool = control.login_pool() or pool is not null and control.login_pool() is null
    $function$;

    -- As in migration 0047, but for a tenant of the login's pool only: policies do not bind a function
    -- of another owner.
    create or replace function memory.forget_later(what text, subject text) returns void
        language plpgsql volatile security definer set search_path = pg_catalog, public
    as $function$
    begin
        if control.login_pool() is distinct from '' and not control.pool_admits() then
            raise insufficient_privilege using message = 'the tenant is not of the pool of this login';
        end if;
        insert into memory.erasures as e (tenant_id, what, subject)
        values (control.tenant(), forget_later.what, forget_later.subject)
        on conflict on constraint erasures_subject do update
            set until = null, passes = 0, due_at = clock_timestamp(), asked_at = clock_timestamp()
            where e.until is not null;
    end
    $function$;

    revoke all on function control.login_pool(), control.pool_admits(), control.pool_tenants() from public;
    grant execute on function control.login_pool(), control.pool_admits(), control.pool_tenants()
        to holdfast_pool_app, holdfast_pool_system;
    -- The owner of the functions is bound by the policies, too: one who saw no row would take all tenants
    -- for those of the default pool.
    select proowner::regrole into own from pg_proc where oid = 'control.pool_admits()'::regprocedure;
    if not exists (select from pg_policy where polrelid = 'session.tenant_queue'::regclass
                   and polname = 'pool_of_tenant' and own::regrole = any(polroles)) then
        drop policy if exists pool_of_tenant on session.tenant_queue;
        execute format('create policy pool_of_tenant on session.tenant_queue for select to %s using (true)', own);
    end if;

    -- Restrictive policies: rows are of the login's pool besides what the other policies say. Each
    -- `select` in a condition runs once in a statement. A policy that exists is not changed, because that
    -- would lock the table at each migration: a condition that changes needs another name.
    for r in
        with tenant_tables as (
            select c.oid as relation, quote_ident(a.attname) as tenant
            from pg_class c join pg_namespace n on n.oid = c.relnamespace
            join pg_attribute a on a.attrelid = c.oid and not a.attisdropped
                and (a.attname = 'tenant_id' or a.attname = 'tenant' and c.oid = 'control.tenant_events'::regclass)
            where c.relkind in ('r', 'p')
              and nspname in ('control', 'session', 'workspace', 'schedule', 'memory', 'work')
        ),
        conditions (relation, kind, command, condition) as (
            select relation, 'app', 'all', case relation
                when 'session.tenant_queue'::regclass
                    -- A tenant is moved to another pool by others.
                    then '(select control.pool_admits()) and pool is not distinct from (select control.login_pool())'
                else '(select control.pool_admits())' end
            from tenant_tables
            union all
            select relation, 'system', 'all',
                   format('(%s = any (array(select control.pool_tenants()))) = (select control.login_pool() is not null)', tenant)
                   -- State of a tenant that moved: the runner that holds it has to end it.
                   || case relation when 'session.held_state'::regclass
                          then ' or runner_id = any (array(select runner_id from session.runners))' else '' end
            from tenant_tables
            union all
            select 'session.runners'::regclass, k, 'all', 'pool is not distinct from (select control.login_pool())'
            from unnest(array['app', 'system']) k
            union all
            -- Any login may see whether another does the upkeep for all tenants.
            select 'session.duties'::regclass, 'system', c,
                   'name = (select ''upkeep:'' || coalesce(control.login_pool(), ''''))'
            from unnest(array['insert', 'update', 'delete']) c
        )
        select relation::regclass as relation, case command when 'all' then '' else '_' || command end as suffix,
               kind, command, condition
        from conditions
        where not exists (
            select from pg_policy where polrelid = relation
            and polname = 'of_pool_' || kind || case command when 'all' then '' else '_' || command end)
    loop
        execute format('create policy %I on %s as restrictive for %s to %I %s (%s)',
            'of_pool_' || r.kind || r.suffix, r.relation, r.command, 'holdfast_pool_' || r.kind,
            case r.command when 'insert' then 'with check' else 'using' end, r.condition);
    end loop;
exception
    when insufficient_privilege then
        raise warning 'the services have no roles of their own: %', sqlerrm;
    when others then
        -- Two migrations of two databases may update the same membership row at once.
        if sqlerrm not like '%concurrently updated%' then
            raise;
        end if;
        raise exception using errcode = '40001', message = sqlerrm;
end $$;
