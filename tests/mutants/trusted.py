"""The rules of security: text from outside, services with few rights, budgets before anybody is known.
What takes each of them away, and the test that must see it. As in agent.py.

Roles of Postgres and their memberships belong to the server, which all tests share: no mutant may grant
one, since it would stay. Rights on tables belong to a test's own database.
"""

from agent import DIRECTORY, GATEWAY, RUNNER, SESSION, TOOLS, Mutant

BRIDGE = "services/channel-bridge/src/"
APPROVALS = RUNNER + "turn/approvals/"
OUTGOING = APPROVALS + "outgoing.rs"
GIVEN = APPROVALS + "outgoing/given.rs"
RIGHTS = "crates/pg/src/service_rights.sql"
SIGNATURE = "crates/bus/src/signature.rs"
CLIENT_ADDRESS = "crates/doors/src/client_address.rs"
INSTALLATION = GATEWAY + "control/operations/security/installation.rs"
WORK = "crates/work/src/"
COPY = "cli/src/commands/files/repository_copy.rs"


def outgoing(test: str) -> list[tuple[str, str, str]]:
    """A test of what leaves a conversation."""
    return [("agent-runner", "lib", f"turn::approvals::outgoing::tests::{test}")]


def client_address(test: str) -> list[tuple[str, str, str]]:
    """A test of addresses behind proxies."""
    return [("holdfast-doors", "lib", f"client_address::tests::{test}")]


def signature(test: str) -> list[tuple[str, str, str]]:
    """A test of signed requests."""
    return [("holdfast-bus", "lib", f"signature::tests::{test}")]


def role(test: str) -> list[tuple[str, str, str]]:
    """A test of the services' logins in the database."""
    return [("holdfast-directory", "it", f"service_roles::{test}")]


def check(test: str) -> list[tuple[str, str, str]]:
    """A test of the checks of an installation."""
    return [("gateway", "lib", f"control::operations::security::installation::tests::{test}")]


REACHED_TABLES = "a_service_reaches_the_tables_that_it_uses_and_no_others"
GIVEN_ADDRESSES = "an_address_is_free_only_if_somebody_else_gave_it"
WRITTEN_ADDRESSES = "a_page_of_an_address_that_the_agent_wrote_gives_no_address_with_what_it_wrote"
PAID_AND_SERVICES = "changes_at_services_answers_elsewhere_and_paid_media_are_asked_about_and_reading_is_not"
PLATFORM_HOSTS = [("channel-bridge", "lib", "guard::tests::a_platform_is_called_at_its_own_hosts_only")]
WIDGET_PAGES = [
    (
        "channel-bridge",
        "lib",
        "channels::widget::stream::tests::pages_of_one_network_or_of_one_tenant_leave_room_for_others",
    )
]
MARKS_OF_WORK = [("holdfast-work", "it", "todos::todos_worklog_and_wakeups_keep_the_mark_of_their_conversation")]

MUTANTS = {
    # An address is given if a given one is its beginning.
    "given-whole": Mutant(
        [
            (
                OUTGOING,
                "given_addresses(self.registry, self.entries).contains(&comparable(&url))",
                "given_addresses(self.registry, self.entries)"
                ".iter().any(|given| comparable(&url).starts_with(given.as_str()))",
            ),
        ],
        outgoing(GIVEN_ADDRESSES),
    ),
    # The bound of a site's addresses is off by one.
    "given-bound": Mutant(
        [(OUTGOING, "self.chosen_of_site(&url) <= MAX_CHOSEN_PER_SITE", "self.chosen_of_site(&url) <= MAX_CHOSEN_PER_SITE + 1")],
        outgoing("the_choice_among_many_given_addresses_of_a_site_asks"),
    ),
    # Each subdomain has a bound of its own.
    "given-site": Mutant(
        [
            (
                OUTGOING,
                "called.filter(|other| self::site(other) == site)",
                "called.filter(|other| !site.is_empty() && other.host_str() == url.host_str())",
            ),
        ],
        outgoing("the_choice_among_many_given_addresses_of_a_site_asks"),
    ),
    # A page of an address that the model wrote gives addresses of any host.
    "given-other-host": Mutant(
        [(GIVEN, "asked.is_none_or(|asked| asked.host_str() == url.host_str()) && !own.have(url)", "!own.have(url)")],
        outgoing(WRITTEN_ADDRESSES),
    ),
    # `https:host` is judged as one address and fetched as another.
    "given-scheme": Mutant(
        [("crates/egress/src/guard.rs", 'text.split_once("://").is_some_and(', "text.split_once(':').is_some_and(")],
        [("holdfast-egress", "lib", "guard::tests::an_address_with_another_address_in_it_is_of_its_own_host")],
    ),
    # The host is checked for the first address only.
    "redirect-first": Mutant(
        [
            (
                TOOLS + "web/fetch.rs",
                "        for _ in 0..=MAX_REDIRECTS {\n            hosts.check(&url)?;\n",
                "        hosts.check(&url)?;\n        for _ in 0..=MAX_REDIRECTS {\n",
            ),
        ],
        [("holdfast-tools", "lib", "web::fetch::tests::a_call_that_was_allowed_for_a_host_follows_no_redirect_to_another")],
    ),
    # Hosts whose names end alike are one.
    "redirect-suffix": Mutant(
        [(TOOLS + "allowed_hosts.rs", "without_www(only) != without_www(host)", "!host.ends_with(without_www(only))")],
        [("holdfast-tools", "lib", "allowed_hosts::tests::a_redirect_stays_on_its_host")],
    ),
    # "Always" for a site covers scripts.
    "browser-script": Mutant(
        [(TOOLS + "browser.rs", "let covers_all = input.action != Action::Evaluate;", "let covers_all = input.action != Action::Click;")],
        [("holdfast-tools", "lib", "browser::tests::actions_have_a_destination_although_no_page_is_open_yet")],
    ),
    # An MCP server's word that a tool only reads is enough.
    "mcp-word": Mutant(
        [
            (
                RUNNER + "tools/mcp/tool.rs",
                "let is_harmless = self.tool.reads && self.link.is_harmless();",
                "let is_harmless = self.tool.reads || self.link.is_harmless();",
            ),
        ],
        [("agent-runner", "it", "mcp::a_server_s_word_that_a_tool_only_reads_is_not_enough")],
    ),
    # A call without an operation costs nothing.
    "paid-operation": Mutant(
        [
            (
                OUTGOING,
                "        operation,\n        Some(\"understand\"",
                "        operation.or(Some(\"info\")),\n        Some(\"understand\"",
            ),
        ],
        outgoing(PAID_AND_SERVICES),
    ),
    # All chats of a channel are the conversation's own.
    "message-own-chat": Mutant(
        [
            (
                OUTGOING,
                "(channel, chat) == (Some(own.channel.as_str()), Some(own.chat.as_str()))",
                "channel == Some(own.channel.as_str()) && chat.is_some() && !own.chat.is_empty()",
            ),
        ],
        outgoing("a_message_is_free_only_in_its_own_chat"),
    ),
    # Only a word delivers an answer elsewhere.
    "session-deliver": Mutant(
        [(OUTGOING, 'let delivers = !matches!(input["deliver"], Value::Null | Value::Bool(false));', 'let delivers = input["deliver"].is_string();')],
        outgoing(PAID_AND_SERVICES),
    ),
    # A tool is missing in the table: it is judged as one that reaches nothing.
    "flow-row": Mutant(
        [
            (APPROVALS + "tool_flows.rs", "const FLOWS: [Flow; 52]", "const FLOWS: [Flow; 51]"),
            (APPROVALS + "tool_flows.rs", '    ("cron", Source::Own, Sink::Instructions),\n', ""),
        ],
        [("agent-runner", "lib", "turn::approvals::tool_flows::tests::every_registered_tool_is_in_the_table")],
    ),
    # A note of a clean conversation takes a todo's mark away.
    "mark-todo": Mutant(
        [
            (
                WORK + "todo/list.rs",
                "        todo.outside |= actor.has_outside_text;\n        self.changed.insert(number);\n"
                "        let code = code_of(number);\n        let text =",
                "        todo.outside = actor.has_outside_text;\n        self.changed.insert(number);\n"
                "        let code = code_of(number);\n        let text =",
            ),
        ],
        [("holdfast-work", "lib", "todo::list::tests::what_a_conversation_with_text_from_outside_writes_is_marked_and_stays_so")],
    ),
    # Records of a worklog have no mark.
    "mark-worklog": Mutant(
        [(WORK + "worklog.rs", ".bind(place.has_outside_text)", ".bind(place.has_outside_text && place.step > 1_000)")],
        MARKS_OF_WORK,
    ),
    # A todo that is shown marks nobody.
    "mark-shown-todo": Mutant(
        [
            (
                RUNNER + "tools/work/todos.rs",
                "    if view.has_outside_text() {\n",
                "    if view.has_outside_text() && view.unfinished() == 0 {\n",
            ),
        ],
        [("agent-runner", "it", "outside_text::a_todo_of_a_conversation_that_read_a_page_marks_the_conversation_that_reads_it")],
    ),
    # Titles of sessions for work have no mark.
    "mark-title": Mutant(
        [
            (
                SESSION + "protocol/behaviors.rs",
                "outside_since is not null as has_outside_text",
                "coalesce(outside_since > clock_timestamp(), false) as has_outside_text",
            ),
        ],
        [("holdfast-session", "it", "reading::titles_of_sessions_keep_the_mark_of_their_conversation")],
    ),
    # What a subagent wrote has no mark.
    "mark-subagent": Mutant(
        [
            (
                SESSION + "subagents.rs",
                "let body = Body { event: Some(event.to_owned()), outside: true, ..Body::text(text) };",
                "let body = Body { event: Some(event.to_owned()), ..Body::text(text) };",
            ),
        ],
        [("holdfast-session", "it", "subagents::its_task_is_given_once_and_its_end_announced_once")],
    ),
    # Git's database is protected at the top only.
    "git-folder": Mutant(
        [
            (
                "crates/types/src/tree_path.rs",
                "            if inner.is_empty() {\n                return None;",
                "            if inner.is_empty() || !rest.is_empty() {\n                return None;",
            ),
        ],
        [("holdfast-agent", "lib", "policy::tests::calls::writing_to_what_an_agent_is_needs_approval")],
    ),
    # Hooks are known in one spelling.
    "git-hook": Mutant(
        [(RUNNER + "tools/shell/git_files.rs", "refusal_within(path, &within.to_lowercase(), content)", "refusal_within(path, &within, content)")],
        [("agent-runner", "lib", "tools::shell::git_files::tests::what_makes_git_run_a_program_is_not_kept")],
    ),
    # A setting that names a program is kept if its section is known.
    "git-setting": Mutant(
        [
            (
                RUNNER + "tools/shell/git_files.rs",
                "|| !KEPT_SETTINGS.contains(&setting.as_str())",
                "|| !KEPT_SETTINGS.iter().any(|kept| kept.split('.').next() == setting.split('.').next())",
            ),
        ],
        [("agent-runner", "lib", "tools::shell::git_files::tests::a_setting_that_names_a_program_is_named")],
    ),
    # A branch may look like an option of Git.
    "copy-ref": Mutant(
        [(COPY, "            && !part.starts_with(['.', '-'])\n", "            && !part.starts_with('.')\n")],
        [("holdfast", "bin", "repository_copy::tests::a_name_of_a_ref_is_one_of_a_branch_or_a_tag")],
    ),
    # The address of a server names a program.
    "copy-server": Mutant(
        [(COPY, "        && !address.contains(\"::\")\n", "")],
        [("holdfast", "bin", "repository_copy::tests::the_server_is_an_address_without_a_password_or_a_program")],
    ),
    # A folder of a copy is a bare repository of the agent.
    "copy-bare": Mutant(
        [
            (
                "cli/src/commands/files/local_folder.rs",
                "path.within_git_database().is_some() || path.makes_bare_repository(content)",
                "path.within_git_database().is_some() || (content.is_empty() && path.makes_bare_repository(content))",
            ),
        ],
        [("holdfast", "bin", "local_folder::tests::files_stay_in_the_folder_and_make_no_repository")],
    ),
    # A host whose name ends like the platform's is the platform.
    "platform-suffix": Mutant(
        [(BRIDGE + "guard.rs", "is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))", "is_some()")],
        PLATFORM_HOSTS,
    ),
    # A file is asked for with the token wherever it is.
    "platform-file": Mutant(
        [
            (
                BRIDGE + "media.rs",
                "server.clients.for_platform(server.hosts, &attachment.reference)",
                "server.clients.for_platform(server.hosts, &attachment.reference)"
                ".or_else(|_| server.clients.for_tenant(&attachment.reference))",
            ),
        ],
        [("channel-bridge", "it", "slack::a_file_of_another_host_is_not_asked_for_with_the_token")],
    ),
    # A scheduler reads replies.
    "nats-inbox": Mutant(
        [("helm/holdfast/files/nats-users.conf", '"ask.processes", "_INBOX.holdfast-scheduler.>"', '"ask.processes", "_INBOX.>"')],
        [("holdfast-tests", "architecture", "bus_users::the_documented_rights_of_nats_users_are_those_that_they_have")],
    ),
    # A gateway takes the locks of sessions.
    "redis-keys": Mutant(
        [("helm/holdfast/files/redis-users.conf", "resetchannels ~rate:* -@all", "resetchannels ~* -@all")],
        [("holdfast-tests", "architecture", "bus_users::the_documented_rights_of_redis_users_are_those_that_they_have")],
    ),
    # The content of a request is not signed.
    "request-content": Mutant(
        [(SIGNATURE, ".chain_update(payload)", ".chain_update(&payload[..0])")],
        signature("a_signature_serves_for_no_other_receiver_answer_or_content"),
    ),
    # Requests about background commands need no signature.
    "request-exempt": Mutant(
        [("crates/bus/src/subject.rs", '!is_report && self.family() != "node"', '!is_report && !matches!(self.family(), "node" | "job")')],
        [("holdfast-bus", "it", "requests::a_request_is_served_once_for_its_receiver_and_answered_to_its_sender")],
    ),
    # One network takes all handshakes.
    "handshake-network": Mutant(
        [("crates/doors/src/client_network.rs", "if client.is_some() { max_per_client } else { max_total }", "if client.is_none() { max_per_client } else { max_total }")],
        [("gateway", "it", "websocket::idle_sockets_of_one_network_do_not_shut_others_out")],
    ),
    # Handshakes do not count as calls.
    "handshake-rate": Mutant(
        [(GATEWAY + "auth.rs", "        self.count_call(identity.caller.tenant, limits.rate).await?;\n", "")],
        [("gateway", "it", "websocket::handshakes_count_against_the_rate_of_their_tenant")],
    ),
    # The bound of an owner is the greater one.
    "budget-owner": Mutant(
        [("crates/kit/src/budget.rs", "used.max_per_owner.min(max_of_owner)", "used.max_per_owner.max(max_of_owner)")],
        [("holdfast-kit", "lib", "budget::tests::one_owner_cannot_use_up_what_all_share")],
    ),
    # A network opens any number of pages.
    "widget-network": Mutant(
        [(BRIDGE + "channels/widget/stream.rs", "        of_tenant.grow(1).ok()?;\n", "        let _ = of_tenant.grow(1);\n")],
        WIDGET_PAGES,
    ),
    # A tenant's webhooks share no slots with those of others.
    "webhook-slots": Mutant(
        [
            (
                RUNNER + "background/webhooks.rs",
                "const WEBHOOKS_AT_ONCE: usize = 64;",
                "const WEBHOOKS_AT_ONCE: usize = 16;",
            ),
            (RUNNER + "background/webhooks.rs", "slots.acquire(key.tenant).await", "slots.acquire(TenantId::from(uuid::Uuid::nil())).await"),
        ],
        [("agent-runner", "it", "events::slow_receivers_of_one_tenant_do_not_delay_the_events_of_another")],
    ),
    # Only reads of disks are limited.
    "disk-writes": Mutant(
        [("crates/sandbox/src/slices.rs", 'rbps={bytes} wbps={bytes} riops', 'rbps={bytes} wbps=max riops')],
        [("holdfast-sandbox", "lib", "slices::tests::disk_io_of_a_tenant_is_limited_where_its_controller_is_delegated")],
    ),
    # Any machine in a private network names clients.
    "proxies-private": Mutant(
        [
            (
                CLIENT_ADDRESS,
                "Some(TrustedProxies(proxies)) => proxies.trusts(address),",
                "Some(TrustedProxies(proxies)) => proxies.trusts(address) || Proxies::default().trusts(address),",
            ),
        ],
        client_address("only_proxies_that_the_setting_names_are_believed"),
    ),
    # What the client itself wrote is believed.
    "proxies-order": Mutant(
        [(CLIENT_ADDRESS, "line.to_str().unwrap_or_default().rsplit(',')", "line.to_str().unwrap_or_default().split(',')")],
        client_address("a_private_proxy_names_the_client_and_a_public_peer_is_the_client"),
    ),
    # A runner that says nothing of its hosting is a finding.
    "check-hosted": Mutant(
        [(INSTALLATION, "report.is_hosted == Some(false)", "report.is_hosted != Some(true)")],
        check("only_runners_that_say_so_are_without_hosting"),
    ),
    # Redis' default user is no finding.
    "check-default-user": Mutant(
        [(INSTALLATION, '.filter(|user| !user.is_empty()).unwrap_or("default"))', ".filter(|user| !user.is_empty())?)")],
        check("each_weak_setting_of_an_installation_is_found"),
    ),
    # A runner reads the hashes of keys.
    "login-runner-keys": Mutant(
        [(RIGHTS, "'^control[.]keys$', array['SELECT'], array['digest']),", "'^control[.]keys$', array['SELECT'], null),")],
        role(REACHED_TABLES),
    ),
    # A runner makes policies and people.
    "login-runner-control": Mutant(
        [
            (
                RIGHTS,
                "|platform_(keys|providers)|policies|skill_env)$',\n                array['SELECT'], null),",
                "|platform_(keys|providers)|policies|skill_env)$',\n                array['SELECT', 'UPDATE'], null),",
            ),
        ],
        role(REACHED_TABLES),
    ),
    # A scheduler changes messages that wait.
    "login-scheduler-inbox": Mutant(
        [(RIGHTS, "'^session[.](inbox|sessions)$', array['SELECT', 'INSERT'], null),", "'^session[.](inbox|sessions)$', null, null),")],
        role(REACHED_TABLES),
    ),
    # A bridge has the keys of requests.
    "login-bridge-requests": Mutant(
        [(RIGHTS, "'^session[.]deliveries$|^control[.](tenants|accounts)$', null, null),", "'^session[.]deliveries$|^control[.](tenants|accounts|request_key)$', null, null),")],
        role("gateways_and_runners_alone_have_the_keys_of_requests"),
    ),
    # A tenant has the platform's keys, whatever its plan.
    "rows-of-plan": Mutant(
        [("migrations/0140_platform_keys.sql", "'using (control.allows_platform_provider(%s))', r.relation, r.provider)", "'using (%I is not null)', r.relation, r.provider)")],
        [("holdfast-directory", "it", "platform_keys::only_a_tenant_whose_plan_allows_them_has_the_platform_s_keys")],
    ),
}
