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
do $$
#variable_conflict use_column
declare
    service text;
    kind text;
    own text;
    marker text;
    r record;
begin
    foreach own in array array['holdfast_tenant_rows', 'holdfast_all_rows'] || (
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
            ('scheduler', 'app', '^session[.](session_lease|system_events|tenant_flight)$',
                array['SELECT', 'INSERT', 'UPDATE'], null),
            ('scheduler', 'app', '^session[.]vclock$', null, null),
            ('scheduler', 'app', '^session[.]events$', array['INSERT'], null),
            ('scheduler', 'app', '^session[.](approvals|deliveries|entries|runs|tenant_queue|tombstones|zones)$',
                array['SELECT'], null),
            ('scheduler', 'app', '^workspace[.](changes|contents|files|trees)$', array['SELECT'], null),
            ('scheduler', 'app', '^control[.](agents|policies|identities|bindings|rules)$', array['SELECT'], null),
            ('scheduler', 'app', '^control[.]tenants$', array['SELECT'], array['data_key']),
            ('scheduler', 'app', '^control[.]accounts$', array['SELECT'], array['secrets']),
            ('scheduler', 'system', '^schedule[.]|^control[.]tenants$', null, null),
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
