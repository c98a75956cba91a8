"""The promises of the agent: what takes each of them away, and the tests that must see it.

Each is a list of (file, text, replacement) and a list of (package, target, test); a target is `lib`,
`bin` or the name of a test binary.
"""

from typing import NamedTuple


class Mutant(NamedTuple):
    """What is changed, and who must notice."""

    changes: list[tuple[str, str, str]]
    tests: list[tuple[str, str, str]]


RUNNER = "services/agent-runner/src/"
SESSION = "crates/session/src/"
DIRECTORY = "crates/directory/src/"
TOOLS = "crates/tools/src/"
EGRESS = "crates/egress/src/"
AGENT = "crates/agent/src/"
SANDBOX = "crates/sandbox/src/"
GATEWAY = "services/gateway/src/"
JOBS = "crates/schedule/src/store/"
SCHEDULER = "services/scheduler/src/"
SCHEDULE = "crates/schedule/src/"
SKILLS = "crates/skills/src/"
GRPC = "crates/grpc/src/"
KIT = "crates/kit/src/"

MUTANTS = {
    # Rows of a tenant that nobody deletes may be erased.
    "erase-unmarked": Mutant(
        [
            (
                DIRECTORY + "verbs/tenant_deletion.rs",
                "where tenant_id = $1 and deleting_at is not null)",
                "where tenant_id = $1)",
            ),
        ],
        [
            ("holdfast-directory", "it", "isolation::the_audit_of_a_tenant_that_is_not_deleted_stays"),
        ],
    ),
    # Every runner sweeps and prunes.
    "upkeep-by-all": Mutant(
        [
            (SESSION + "upkeep/duties.rs", "where is_valid and (owner <> $2 or is_fresh))", "where owner = $2 and is_fresh)"),
            (
                SESSION + "upkeep/duties.rs",
                "where d.owner = excluded.owner or d.until <= clock_timestamp()",
                "where d.owner is not null",
            ),
        ],
        [
            ("holdfast-session", "it", "sweeping::the_upkeep_is_one_runners_until_it_is_lost"),
        ],
    ),
    # The sweep lets jobs starve.
    "sweep-unfair": Mutant(
        [
            (
                SESSION + "protocol/sweep.rs",
                "if sweep % CHOICES_PER_FAIR_ONE == CHOICES_PER_FAIR_ONE - 1 {",
                "if sweep % CHOICES_PER_FAIR_ONE == CHOICES_PER_FAIR_ONE {",
            ),
        ],
        [
            (
                "holdfast-session",
                "it",
                "sweeping::one_of_four_sweeps_admits_the_session_that_waits_longest",
            ),
        ],
    ),
    # Old entries are deleted under a turn that is not finished.
    "journal-of-an-open-turn": Mutant(
        [
            (
                SESSION + "upkeep/prune.rs",
                "l.next_in - 1 = l.done_in and l.state <> 'RUNNING'",
                "l.next_in > 0",
            ),
        ],
        [
            ("holdfast-session", "it", "keeping::journals_are_kept_unless_their_tenant_limits_them"),
        ],
    ),
    # What was approved is not compared with what is called.
    "approval-hash": Mutant(
        [
            (
                RUNNER + "turn/approvals/approval_need.rs",
                "let same = approved.as_deref() == Some(subject_hash(&wanted.subject).as_slice());",
                "let same = approved.is_some();",
            ),
        ],
        [
            ("agent-runner", "it", "approvals::a_call_that_changed_since_it_was_approved_is_not_made"),
        ],
    ),
    # To allow once is to allow always.
    "approval-once": Mutant(
        [
            (
                SESSION + "approvals/resolve.rs",
                "if decision.verdict == ApprovalDecision::Always {",
                "if verdict != ApprovalDecision::Deny {",
            ),
        ],
        [
            ("agent-runner", "it", "approvals::an_approval_is_for_one_call_and_the_next_asks_anew"),
        ],
    ),
    # Any key decides.
    "approval-key": Mutant(
        [
            (
                RUNNER + "turn/approvals/decisions.rs",
                "Ok(key) => Ok(key.may_approve()),",
                "Ok(_) => Ok(true),",
            ),
        ],
        [
            ("agent-runner", "it", "approvals::a_key_without_the_scope_approve_decides_nothing"),
        ],
    ),
    # A recorded call between services serves again.
    "context-replay": Mutant(
        [
            (KIT + "seen_messages.rs", "false => Err(RefusedMessage::Seen),", "false => Ok(()),"),
        ],
        [
            (
                "gateway",
                "it",
                "arrivals::a_context_is_accepted_once_from_the_bridge_for_this_call_and_no_other",
            ),
        ],
    ),
    # A context serves for every method.
    "context-method": Mutant(
        [
            (GRPC + "context.rs", ".chain_update(method)", ".chain_update(&method[..0])"),
        ],
        [
            (
                "gateway",
                "it",
                "arrivals::a_context_is_accepted_once_from_the_bridge_for_this_call_and_no_other",
            ),
        ],
    ),
    # Every service of the mesh writes arrivals.
    "context-caller": Mutant(
        [
            (GATEWAY + "auth.rs", "if name != CALLING_SERVICE {", "if name == CALLING_SERVICE.repeat(2) {"),
        ],
        [
            (
                "gateway",
                "it",
                "arrivals::a_context_is_accepted_once_from_the_bridge_for_this_call_and_no_other",
            ),
        ],
    ),
    # A node believes commands that nobody signed.
    "node-signature": Mutant(
        [
            (GRPC + "node_commands.rs", "        if !is_signed {\n", "        if is_signed && false {\n"),
        ],
        [
            (
                "holdfast-grpc",
                "lib",
                "node_commands::tests::only_a_command_of_a_runner_for_this_node_is_valid_and_only_for_a_while",
            ),
        ],
    ),
    # A key of the previous pepper is not hashed again.
    "pepper-rehash": Mutant(
        [
            (
                DIRECTORY + "verbs/keys.rs",
                "if pepper == DigestPepper::Previous\n",
                "if pepper == DigestPepper::Previous && known.digest.is_empty()\n",
            ),
        ],
        [
            (
                "holdfast-directory",
                "it",
                "keys::a_key_that_is_used_while_the_pepper_changes_outlives_the_old_one",
            ),
        ],
    ),
    # In a group anybody may decide.
    "approval-who": Mutant(
        [
            (
                RUNNER + "turn/approvals/decisions.rs",
                "Ok(own.is_some_and(|own| own.allow_list().names_id(id)))",
                "Ok(own.is_some_and(|own| own.allow_list().names_id(id) || !id.is_empty()))",
            ),
        ],
        [
            ("agent-runner", "it", "approvals::in_a_group_only_whom_the_owner_named_may_decide"),
        ],
    ),
    # In a shared main conversation anybody may decide.
    "approval-main": Mutant(
        [
            (
                RUNNER + "turn/approvals/decisions.rs",
                "SessionKind::Main if is_requested_by(turn, id, approval) && !is_guest() => {",
                "SessionKind::Main if is_requested_by(turn, id, approval) || !id.is_empty() => {",
            ),
        ],
        [
            ("agent-runner", "it", "approvals::in_a_direct_conversation_its_user_decides"),
        ],
    ),
    # The mesh may approve what a model asks for.
    "approval-mesh": Mutant(
        [
            (
                RUNNER + "turn/approvals/decisions.rs",
                "let Some(person) = Decider::of(row) else {",
                "let Some(person) = Decider::of(row).or_else(|| Some(Decider::Key(KeyId::generate()))) else {",
            ),
        ],
        [
            ("agent-runner", "it", "approvals::no_part_of_the_mesh_approves_what_a_model_asks_for"),
        ],
    ),
    # What ran out may still be decided.
    "approval-late": Mutant(
        [
            (
                SESSION + "approvals/resolve.rs",
                "if found.state != ApprovalState::Pending {",
                "if found.state != ApprovalState::Pending && found.state != ApprovalState::Expired {",
            ),
        ],
        [
            ("agent-runner", "it", "approvals::what_nobody_answers_in_time_is_denied_though_nobody_is_there"),
        ],
    ),
    # The calls of any conversation can be named.
    "approval-family": Mutant(
        [
            (
                SESSION + "approvals.rs",
                "(session_id in (select id from family) or asked_in = $2)\n",
                "true\n",
            ),
        ],
        [
            ("agent-runner", "it", "approvals::what_waits_in_one_conversation_is_not_decided_in_another"),
        ],
    ),
    # The owner's connections are there for everybody.
    "connection-whose": Mutant(
        [
            (
                RUNNER + "tools/connections.rs",
                "ConnectionScope::Owner => audience.has_owner_rights(),",
                "ConnectionScope::Owner => audience.has_owner_rights() || true,",
            ),
        ],
        [
            ("agent-runner", "lib", "connections::tests::a_connection_is_there_for_those_whom_it_is_for"),
            ("agent-runner", "it", "connected::the_owner_s_calendar_is_there_for_the_owner_and_for_no_stranger"),
        ],
    ),
    # A person's connections are there for everybody.
    "connection-person": Mutant(
        [
            (
                RUNNER + "tools/connections.rs",
                "ConnectionScope::Person(person) => is_session_of(kind, key, person),",
                "ConnectionScope::Person(person) => is_session_of(kind, key, person) || true,",
            ),
        ],
        [
            ("agent-runner", "it", "connected::a_person_s_calendar_is_there_in_that_person_s_conversation"),
        ],
    ),
    # A connection is opened by its name, whomever it is for.
    "connection-open": Mutant(
        [
            (
                RUNNER + "tools/connections.rs",
                "if !Self::usable_in_call(call)?.iter().any(|(usable, _)| usable == name) {",
                "if !Self::usable_in_call(call)?.iter().any(|(usable, _)| usable == name) && name.is_empty() {",
            ),
            (
                TOOLS + "connections/mod.rs",
                ".find(|usable| *usable == named.trim())",
                ".find(|usable| *usable == named.trim() || !usable.is_empty())",
            ),
            (
                TOOLS + "connections/mod.rs",
                "match connections.open(call, name).await? {",
                "match connections.open(call, named.unwrap_or(name)).await? {",
            ),
        ],
        [
            ("agent-runner", "it", "connected::a_calendar_that_is_not_theirs_is_not_theirs_by_its_name_either"),
        ],
    ),
    # An agent has the connections of others.
    "connection-agent": Mutant(
        [
            (
                DIRECTORY + "store/connections.rs",
                "(agent_id is null or agent_id = $2)",
                "(agent_id is null or agent_id = $2 or true)",
            ),
        ],
        [
            ("holdfast-directory", "it", "connections::an_agent_has_its_own_and_those_of_all_and_they_go_with_it"),
        ],
    ),
    # A connection's secret may be opened as another's.
    "seal-field": Mutant(
        [
            (
                DIRECTORY + "seal/purpose.rs",
                "            | Self::McpSecrets(name)\n            | Self::ConnectionSecret(name) => name.as_bytes().to_vec(),",
                "            | Self::McpSecrets(name) => name.as_bytes().to_vec(),\n            Self::ConnectionSecret(_) => Vec::new(),",
            ),
        ],
        [
            ("holdfast-directory", "lib", "seal::tests::no_two_things_that_are_sealed_open_in_each_others_place"),
        ],
    ),
    # A runner opens the secrets of channel accounts.
    "secrets-access": Mutant(
        [
            (
                "services/secrets/src/access.rs",
                "Purpose::AccountSecrets(_) => &[GATEWAY, BRIDGE],",
                "Purpose::AccountSecrets(_) => &[GATEWAY, RUNNER, BRIDGE],",
            ),
        ],
        [
            ("secrets", "it", "access::each_service_seals_and_opens_its_own_kinds_of_secrets_and_no_others"),
        ],
    ),
    # A secret may be opened by another tenant.
    "seal-tenant": Mutant(
        [
            (
                DIRECTORY + "seal/purpose.rs",
                "    [b\"holdfast\\0\", tenant.as_uuid().as_bytes().as_slice(), field.as_bytes(), b\"\\0\", row].concat()",
                "    { let _ = tenant; [b\"holdfast\\0\".as_slice(), field.as_bytes(), b\"\\0\", row].concat() }",
            ),
        ],
        [
            ("holdfast-directory", "lib", "seal::tests::the_same_key_does_not_open_another_tenants_value"),
        ],
    ),
    # A summary stands for what was said since it was planned.
    "summary-since": Mutant(
        [
            (
                SESSION + "summary.rs",
                "summary.keeps.saturating_add(since)",
                "summary.keeps.saturating_add(since.min(0))",
            ),
        ],
        [
            ("agent-runner", "it", "summarising::a_summary_is_kept_out_of_a_turn_and_of_a_conversation_that_has_moved_on"),
        ],
    ),
    # A summary is stored though the conversation began anew.
    "summary-stale": Mutant(
        [
            (
                SESSION + "summary.rs",
                "let Some((next, false)) = looked else {",
                "let Some((next, false)) = looked.map(|(next, _)| (next, false)) else {",
            ),
        ],
        [
            ("agent-runner", "it", "summarising::a_summary_is_kept_out_of_a_turn_and_of_a_conversation_that_has_moved_on"),
        ],
    ),
    # A summary is stored in the midst of a turn.
    "summary-busy": Mutant(
        [
            (
                SESSION + "summary.rs",
                "and state in ('WAIT', 'WAIT_FOR_MSG', 'WAIT_FOR_EVENT')",
                "and state <> ''",
            ),
        ],
        [
            ("agent-runner", "it", "summarising::a_summary_is_kept_out_of_a_turn_and_of_a_conversation_that_has_moved_on"),
        ],
    ),
    # What a summary stands for is deleted.
    "summary-originals": Mutant(
        [
            (
                SESSION + "summary.rs",
                "            written as (\n                insert into session.entries",
                "            gone as (\n                delete from session.entries e using held\n                where e.tenant_id = $1 and e.session_id = $2 and e.seq < $3 - 1),\n            written as (\n                insert into session.entries",
            ),
        ],
        [
            ("agent-runner", "it", "summarising::after_more_than_twenty_messages_the_older_ones_are_summarised_once"),
        ],
    ),
    # A summary may end between a call and its result.
    "compact-pairs": Mutant(
        [
            (
                AGENT + "history/conversation.rs",
                "            self.push(None, ChatMessage::Tool { call, output, failed });",
                "            self.push(Some(self.start + self.messages.len()), ChatMessage::Tool { call, output, failed });",
            ),
        ],
        [
            ("holdfast-agent", "lib", "compact::tests::a_call_is_kept_with_its_results_or_not_at_all"),
        ],
    ),
    # A subagent that is waited for is announced too.
    "chain-awaited": Mutant(
        [
            (
                SESSION + "subagents.rs",
                "else coalesce(a.awaited_until < clock_timestamp(), true) end)",
                "else true end)",
            ),
        ],
        [
            ("agent-runner", "it", "bundles::an_answer_that_is_waited_for_is_told_in_the_turn_and_not_again"),
        ],
    ),
    # What a call was told is announced again.
    "chain-heard": Mutant(
        [
            (
                SESSION + "subagents.rs",
                "if !heard {",
                "if heard || !heard {",
            ),
        ],
        [
            ("holdfast-session", "it", "subagents::one_that_is_waited_for_is_announced_only_where_the_call_has_not_heard_of_its_end"),
        ],
    ),
    # A subagent thinks as often as it likes.
    "subagent-steps": Mutant(
        [
            (
                RUNNER + "turn/limits.rs",
                "if task.max_steps.is_some_and(|most| steps >= most) {",
                "if task.max_steps.is_some_and(|most| steps >= most) && steps < 0 {",
            ),
        ],
        [
            ("agent-runner", "it", "subagents::a_task_that_uses_up_what_it_may_is_said_to_have_failed"),
        ],
    ),
    # A subagent uses as many tokens as it likes.
    "subagent-tokens": Mutant(
        [
            (
                RUNNER + "turn/limits.rs",
                "} else if task.max_tokens.is_some_and(|most| tokens >= most) {",
                "} else if task.max_tokens.is_some_and(|most| tokens >= most) && tokens < 0 {",
            ),
        ],
        [
            ("agent-runner", "lib", "turn::limits::tests::what_is_used_up_is_said_and_at_the_limit_not_after_it"),
        ],
    ),
    # A subagent takes as long as it likes.
    "subagent-time": Mutant(
        [
            (
                RUNNER + "turn/limits.rs",
                "} else if task.left.is_zero() {",
                "} else if task.left.is_zero() && tokens < 0 {",
            ),
            (
                SESSION + "subagents.rs",
                "if ended.outcome != Some(SubagentOutcome::Timeout) {",
                "if ended.outcome != Some(SubagentOutcome::Timeout) || ended.outcome.is_some() {",
            ),
        ],
        [
            ("agent-runner", "lib", "turn::limits::tests::what_is_used_up_is_said_and_at_the_limit_not_after_it"),
            ("holdfast-session", "it", "subagents::one_that_takes_too_long_is_said_to_and_ends"),
        ],
    ),
    # A subagent makes subagents.
    "subagent-depth": Mutant(
        [
            (
                AGENT + "policy/view.rs",
                "if subject.kind == SessionKind::Subagent {",
                "if subject.kind == SessionKind::Subagent && subject.is_group() {",
            ),
        ],
        [
            ("holdfast-agent", "lib", "policy::tests::layers::a_subagent_spawns_none_even_where_the_list_is_lifted"),
        ],
    ),
    # A conversation has as many subagents at once as it likes.
    "subagent-children": Mutant(
        [
            (
                SESSION + "subagents.rs",
                "if running >= new.most {",
                "if running >= new.most && running < 0 {",
            ),
        ],
        [
            ("holdfast-session", "it", "subagents::no_more_run_at_once_than_may_and_other_tenants_see_none"),
        ],
    ),
    # A subagent writes wherever it likes.
    "subagent-scope-write": Mutant(
        [
            (
                RUNNER + "tools/files.rs",
                "if !context.scope.may_write(path) {",
                "if !context.scope.may_write(path) && path.is_empty() {",
            ),
        ],
        [
            ("agent-runner", "it", "bundles::a_subagent_looks_and_writes_only_where_it_was_told"),
        ],
    ),
    # A subagent reads wherever it likes.
    "subagent-scope-read": Mutant(
        [
            (
                RUNNER + "tools/files.rs",
                "match scope.may_read(path) {",
                "match scope.may_read(path) || !path.is_empty() {",
            ),
        ],
        [
            ("agent-runner", "it", "bundles::a_subagent_looks_and_writes_only_where_it_was_told"),
        ],
    ),
    # A subagent lists what it may not read.
    "subagent-scope-list": Mutant(
        [
            (
                RUNNER + "tools/files.rs",
                ".filter(|path| scope.may_read(path.as_str()))?;",
                ".filter(|path| scope.may_read(path.as_str()) || file.size < u64::MAX)?;",
            ),
        ],
        [
            ("agent-runner", "it", "bundles::a_subagent_looks_and_writes_only_where_it_was_told"),
        ],
    ),
    # A bounded subagent has commands.
    "subagent-scope-exec": Mutant(
        [
            (
                RUNNER + "turn/limits.rs",
                "if turn.given_file_scope().is_restricted() {",
                "if turn.file_scope().is_restricted() && lists.len() > 1_000 {",
            ),
        ],
        [
            ("agent-runner", "it", "shell::a_subagent_whose_files_are_bounded_has_no_commands"),
        ],
    ),
    # A subagent has more tools than it was given.
    "subagent-tools": Mutant(
        [
            (
                RUNNER + "turn/limits.rs",
                "lists.extend(turn.given_tools().cloned());",
                "lists.extend(turn.task.as_ref().and_then(|task| task.given.tools.clone()).filter(Vec::is_empty));",
            ),
        ],
        [
            ("agent-runner", "it", "bundles::a_subagent_has_the_tools_of_its_bundle_and_no_others"),
        ],
    ),
    # A subagent is given tools that its parent's turn has not.
    "subagent-parent-tools": Mutant(
        [
            (
                RUNNER + "tools/subagents.rs",
                "for list in &ToolContext::of(call)?.narrowed {",
                "for list in ToolContext::of(call)?.narrowed.iter().take(0) {",
            ),
        ],
        [
            ("agent-runner", "it", "bundles::a_subagent_has_no_tool_that_the_message_it_is_for_left_out"),
        ],
    ),
    # The policy is not asked again at the call.
    "policy-call": Mutant(
        [
            (
                RUNNER + "turn/calls.rs",
                "if let Err(refused) = participants::check_policy(turn, snapshot, call).await {",
                "if let Err(refused) = Ok::<(), ToolError>(()) {",
            ),
            (
                RUNNER + "turn/calls.rs",
                "        allowed: allowed_tools(turn, snapshot),\n        hosts",
                "        allowed: AllowedTools::matching(|_| true),\n        hosts",
            ),
        ],
        [
            ("agent-runner", "it", "policy::a_denied_tool_is_not_offered_and_a_call_of_it_is_refused_counted_and_recorded"),
            ("agent-runner", "it", "mcp::a_server_s_tools_obey_the_policy_when_they_are_offered_and_when_they_are_called"),
        ],
    ),
    # What the policy refuses at the call is told, and not recorded.
    "policy-record": Mutant(
        [
            (
                RUNNER + "turn/calls.rs",
                "    if let Err(refused) = participants::check_policy(turn, snapshot, call).await {",
                "    drop(participants::check_policy(turn, snapshot, call));\n    if let Err(refused) = Ok::<(), ToolError>(()) {",
            ),
        ],
        [
            ("agent-runner", "it", "policy::a_denied_tool_is_not_offered_and_a_call_of_it_is_refused_counted_and_recorded"),
        ],
    ),
    # What the policy denies is offered.
    "policy-offer": Mutant(
        [
            (
                RUNNER + "turn/prompt.rs",
                "tools.retain(|tool| is_tool_lookup(&tool.name) || allowed.allows(&tool.name));",
                "tools.retain(|tool| is_tool_lookup(&tool.name) || allowed.allows(&tool.name) || !tool.name.is_empty());",
            ),
        ],
        [
            ("agent-runner", "it", "policy::a_denied_tool_is_not_offered_and_a_call_of_it_is_refused_counted_and_recorded"),
        ],
    ),
    # A guest who joins in has the owner's tools.
    "policy-owner": Mutant(
        [
            (
                AGENT + "access.rs",
                "false => now.is_owner(),",
                "false => now.is_owner() || !now.roles.is_empty(),",
            ),
        ],
        [
            ("agent-runner", "it", "policy::what_a_guest_says_into_an_owners_turn_takes_the_owners_tools_away"),
        ],
    ),
    # Whoever is only quoted counts as a speaker.
    "policy-quoted": Mutant(
        [
            (
                RUNNER + "turn/participants.rs",
                "Entry::Heard { body, .. } if !body.silent => body.author.as_ref(),",
                "Entry::Heard { body, .. } if (body.silent || !body.silent) => body.author.as_ref(),",
            ),
        ],
        [
            ("agent-runner", "lib", "participants::tests::whoever_is_only_quoted_does_not_speak"),
        ],
    ),
    # An agent has the servers of others.
    "mcp-agent": Mutant(
        [
            (
                RUNNER + "tools/mcp.rs",
                ".filter(move |open| open.server.is_for(agent))",
                ".filter(move |open| open.server.is_for(agent) || !open.server.name.is_empty())",
            ),
        ],
        [
            ("agent-runner", "it", "mcp::an_agent_that_may_not_use_a_server_does_not_see_it"),
        ],
    ),
    # A server's answer is not marked as a stranger's.
    "mcp-answer": Mutant(
        [
            (
                RUNNER + "tools/mcp/tool.rs",
                "        false => untrusted(key, from, &texts.join(\"\\n\"), MAX_ANSWER_CHARS),",
                "        false => texts.join(\"\\n\"),",
            ),
        ],
        [
            ("agent-runner", "lib", "mcp::tool::tests::an_answer_is_marked_as_a_strangers_and_pictures_go_beside_it"),
            ("agent-runner", "it", "mcp::a_server_s_tool_is_found_described_and_called_and_its_answer_is_marked"),
        ],
    ),
    # A server's description may hide text.
    "mcp-hidden": Mutant(
        [
            (
                RUNNER + "tools/mcp/tool.rs",
                "let said = clean(spec.description.trim());",
                "let said = spec.description.trim().to_owned();",
            ),
        ],
        [
            ("agent-runner", "lib", "mcp::tool::tests::what_a_server_says_of_its_tool_hides_nothing"),
        ],
    ),
    # A server's schema may hide text.
    "mcp-schema": Mutant(
        [
            (
                RUNNER + "tools/mcp/tool.rs",
                "ToolSpec { description, input: clean_schema(spec.input), ..spec }",
                "ToolSpec { description, input: spec.input, ..spec }",
            ),
        ],
        [
            ("agent-runner", "lib", "mcp::tool::tests::what_a_server_says_of_its_tool_hides_nothing"),
        ],
    ),
    # A server's tool that says nothing is believed to read only.
    "mcp-effect": Mutant(
        [
            (
                RUNNER + "tools/mcp/tool.rs",
                "        match self.tool.reads {\n            true => Effect::Reads,",
                "        match self.tool.reads || !self.name.is_empty() {\n            true => Effect::Reads,",
            ),
        ],
        [
            ("agent-runner", "it", "mcp::what_a_tool_says_that_it_does_decides_how_it_is_recorded"),
        ],
    ),
    # A key is shown what it may not use.
    "mcp-door-shown": Mutant(
        [
            (
                GATEWAY + "mcp.rs",
                "permissions::of_method(method).is_some_and(|rule| rule.permits(who).is_ok())",
                "permissions::of_method(method).is_some_and(|rule| rule.permits(who).is_ok() || true)",
            ),
        ],
        [
            ("gateway", "it", "mcp::a_key_is_shown_what_its_scopes_reach_and_may_do_no_more"),
        ],
    ),
    # What a command changed is not kept with its run.
    "exec-run": Mutant(
        [
            (
                RUNNER + "tools/shell.rs",
                "            run: Some(call.run),\n            ..ChangeAuthor::new(\n                call.agent_name.as_str(),\n                &format!(\"exec:",
                "            run: Some(call.run).filter(|_| line.script.is_empty()),\n            ..ChangeAuthor::new(\n                call.agent_name.as_str(),\n                &format!(\"exec:",
            ),
        ],
        [
            ("agent-runner", "it", "shell::a_command_runs_and_what_it_changes_is_kept_with_its_author_its_run_and_its_reason"),
        ],
    ),
    # What a command changed is not kept before its end is told.
    "exec-keep": Mutant(
        [
            (
                RUNNER + "tools/shell.rs",
                "let kept = running.commit_changes(ended).await;",
                "let kept = holdfast_tools::WorkspaceChanges::default();",
            ),
        ],
        [
            ("agent-runner", "it", "shell::a_command_runs_and_what_it_changes_is_kept_with_its_author_its_run_and_its_reason"),
        ],
    ),
    # What runs behind a deleted session runs on.
    "exec-orphan": Mutant(
        [
            (
                RUNNER + "tools/shell/background.rs",
                "            self.stop_orphans().await;",
                "            ();",
            ),
        ],
        [
            ("agent-runner", "it", "shell::what_runs_behind_a_session_ends_once_that_is_deleted"),
        ],
    ),
    # A runner that stops leaves what runs behind.
    "exec-stop": Mutant(
        [
            (
                RUNNER + "tools/shell/background.rs",
                "            drop(self.0.processes.stop(owner, job.id).await);\n            if timeout",
                "            ();\n            if timeout",
            ),
        ],
        [
            ("agent-runner", "it", "shell::a_runner_that_stops_ends_what_runs_behind_and_keeps_what_it_did"),
        ],
    ),
    # A command has the network without asking.
    "exec-network": Mutant(
        [
            (
                SANDBOX + "bubblewrap/args.rs",
                "if !matches!(network, Network::Host) {",
                "if matches!(network, Network::Proxy(_)) {",
            ),
        ],
        [
            ("holdfast-sandbox", "it", "network::neither_other_machines_nor_names_are_reached"),
        ],
    ),
    # Nobody is asked about the network.
    "exec-network-asked": Mutant(
        [
            (
                RUNNER + "tools/shell.rs",
                "match (line.network, self.settings.network) {",
                "match (line.network || !line.script.is_empty(), self.settings.network) {",
            ),
        ],
        [
            ("agent-runner", "it", "shell::a_command_sees_no_environment_and_no_place_of_the_mesh"),
        ],
    ),
    # A command behind the proxy has the host's network.
    "exec-network-proxied": Mutant(
        [
            (
                SANDBOX + "bubblewrap/args.rs",
                "if !matches!(network, Network::Host) {",
                "if matches!(network, Network::Off) {",
            ),
        ],
        [
            (
                "holdfast-sandbox",
                "it",
                "network::a_command_reaches_what_the_rules_of_its_proxy_allow_and_nothing_else",
            ),
        ],
    ),
    # The credential of a command in a pod works after its end.
    "exec-network-credential": Mutant(
        [
            (
                "crates/proxy/src/admission.rs",
                "lock(&self.admissions).remove(&self.credential);",
                "drop(lock(&self.admissions).get(&self.credential));",
            ),
        ],
        [
            (
                "holdfast-proxy",
                "lib",
                "server::tests::a_credential_has_its_own_rules_and_ends_with_its_admission",
            ),
        ],
    ),
    # A command sees what is its owner's alone.
    "exec-hidden": Mutant(
        [
            (
                RUNNER + "tools/shell/folders.rs",
                "        self.0.view_path(path)\n",
                "        Some(self.0.view_path(path).unwrap_or_else(|| path.clone()))\n",
            ),
        ],
        [
            ("agent-runner", "it", "shell::what_is_the_owners_alone_is_not_there_for_others"),
        ],
    ),
    # A command of a stranger's changes what makes the agent.
    "exec-protected": Mutant(
        [
            (
                RUNNER + "tools/shell/commit.rs",
                ".partition(|edit| view.may_change(edit.path().as_str()))",
                ".partition(|edit| view.may_change(edit.path().as_str()) || !edit.path().as_str().is_empty())",
            ),
        ],
        [
            ("agent-runner", "it", "shell::what_is_the_owners_alone_is_not_there_for_others"),
        ],
    ),
    # A process is found by another session.
    "exec-owner": Mutant(
        [
            (
                RUNNER + "tools/shell/jobs.rs",
                "        self.lock_all().get(&owner)?.jobs.iter().find(|job| job.id == id).cloned()",
                "        self.lock_all().values().flat_map(|known| known.jobs.iter()).find(|job| job.id == id && owner.tenant == owner.tenant).cloned()",
            ),
        ],
        [
            ("agent-runner", "it", "shell::a_session_of_another_agent_sees_neither_files_nor_processes"),
        ],
    ),
    # Nothing is set aside before the call.
    "budget-reserve": Mutant(
        [
            (
                RUNNER + "agents/budget.rs",
                "let others = others.unwrap_or_else(|_| vec![Amount::default(); names.len()]);",
                "let others = { let _ = others; vec![Amount::default(); names.len()] };",
            ),
        ],
        [
            ("agent-runner", "it", "budgets::sessions_at_once_on_two_runners_use_no_more_than_there_is"),
        ],
    ),
    # No budget is looked at before the call.
    "budget-asked": Mutant(
        [
            (
                RUNNER + "turn/think.rs",
                "if let Some(why) = budget::reserve(turn, snapshot, &mut request).await? {",
                "if let Some(why) = budget::reserve(turn, snapshot, &mut request).await?.filter(String::is_empty) {",
            ),
        ],
        [
            ("agent-runner", "it", "budgets::sessions_at_once_on_two_runners_use_no_more_than_there_is"),
        ],
    ),
    # What was used is not written down.
    "budget-settle": Mutant(
        [
            (
                SESSION + "usage.rs",
                "if self.budgets.is_empty() || self.charge == Charge::default() {",
                "if self.budgets.is_empty() || self.charge == Charge::default() || self.charge != Charge::default() {",
            ),
        ],
        [
            ("agent-runner", "it", "budgets::a_spent_budget_is_told_before_the_model_is_asked_and_renews_with_the_day"),
        ],
    ),
    # An answer may be longer than what is left.
    "budget-short": Mutant(
        [
            (
                RUNNER + "agents/budget.rs",
                "request.max_output = u32::try_from(output).ok();",
                "request.max_output = request.max_output;",
            ),
        ],
        [
            ("agent-runner", "it", "budgets::an_answer_is_kept_as_short_as_what_is_left"),
        ],
    ),
    # Summaries are charged to nobody.
    "budget-summary": Mutant(
        [
            (
                RUNNER + "turn/journal.rs",
                "        self.charge(ledger.charge(model, usage));",
                "        drop((ledger, model, usage));",
            ),
        ],
        [
            ("agent-runner", "it", "budgets::what_a_summary_uses_in_a_turn_is_charged_too"),
        ],
    ),
    # Where a name leads is not checked.
    "web-dns": Mutant(
        [
            (
                EGRESS + "guard.rs",
                "if is_guarded && !found.iter().all(|address| is_public(*address)) {",
                "if is_guarded && !found.iter().all(|address| is_public(*address)) && found.is_empty() {",
            ),
        ],
        [
            ("holdfast-egress", "lib", "guard::tests::a_name_that_is_rebound_is_checked_for_each_connection"),
        ],
    ),
    # One public address is enough.
    "web-dns-any": Mutant(
        [
            (
                EGRESS + "guard.rs",
                "if is_guarded && !found.iter().all(|address| is_public(*address)) {",
                "if is_guarded && !found.iter().any(|address| is_public(*address)) {",
            ),
        ],
        [
            ("holdfast-egress", "lib", "guard::tests::a_name_that_is_rebound_is_checked_for_each_connection"),
        ],
    ),
    # A redirect is followed without a look.
    "web-redirect": Mutant(
        [
            (
                EGRESS + "lib.rs",
                ".redirect(Policy::none())",
                ".redirect(Policy::limited(5))",
            ),
        ],
        [
            ("holdfast-tools", "lib", "web::fetch::tests::no_redirect_leads_to_where_one_may_not_go"),
        ],
    ),
    # An address without a name is not checked.
    "web-address": Mutant(
        [
            (
                EGRESS + "guard.rs",
                "Ok(address) if !is_public(address) =>",
                "Ok(address) if !is_public(address) && is_public(address) =>",
            ),
        ],
        [
            ("holdfast-egress", "lib", "guard::tests::addresses_that_need_no_resolving_are_checked_however_they_are_written"),
        ],
    ),
    # A page reaches what a fetch may not.
    "browser-proxy": Mutant(
        [
            (
                EGRESS + "guard.rs",
                "if !self.is_listed(&listed, port) && !found.iter().all(|address| is_public(*address)) {",
                "if !self.is_listed(&listed, port) && !found.iter().all(|address| is_public(*address)) && found.is_empty() {",
            ),
        ],
        [
            ("holdfast-tools", "lib", "browser::tests::no_page_reaches_what_may_not_be_fetched"),
            ("holdfast-tools", "lib", "connections::email::tests::a_mail_server_that_is_not_on_the_internet_is_refused"),
        ],
    ),
    # A page is gone to by its address without a look.
    "browser-address": Mutant(
        [
            (
                TOOLS + "browser.rs",
                "        self.guard.client(&url).map_err(refused)?;",
                "        return Ok(url.to_string());",
            ),
        ],
        [
            ("holdfast-tools", "lib", "browser::tests::no_page_reaches_what_may_not_be_fetched"),
        ],
    ),
    # MEMORY.md is there in a group.
    "memory-group": Mutant(
        [
            (
                AGENT + "bootstrap.rs",
                "        | SessionKind::Cron => false,\n    };\n    match name",
                "        | SessionKind::Cron => matches!(audience, Audience::Owner) || matches!(kind, SessionKind::Group),\n    };\n    match name",
            ),
        ],
        [
            ("holdfast-agent", "lib", "bootstrap::tests::groups_topics_and_the_shared_session_never_load_memory_heartbeat_or_bootstrap"),
        ],
    ),
    # MEMORY.md is there for a stranger.
    "memory-stranger": Mutant(
        [
            (
                AGENT + "bootstrap.rs",
                "        | SessionKind::Work => matches!(audience, Audience::Owner),",
                "        | SessionKind::Work => matches!(audience, Audience::Owner | Audience::Others),",
            ),
        ],
        [
            ("holdfast-agent", "lib", "bootstrap::tests::a_direct_conversation_loads_memory_only_for_the_owner"),
            ("agent-runner", "it", "policy::an_owner_s_direct_conversation_sees_the_private_notes_and_a_strangers_does_not"),
        ],
    ),
    # A stranger's direct conversation is the owner's.
    "memory-audience": Mutant(
        [
            (
                AGENT + "access.rs",
                "        SessionKind::Dm => (owner_or_mesh(now) && always.is_owner(), Audience::Owner),",
                "        SessionKind::Dm => (true, Audience::Owner),",
            ),
        ],
        [
            ("agent-runner", "it", "policy::an_owner_s_direct_conversation_sees_the_private_notes_and_a_strangers_does_not"),
        ],
    ),
    # What others said before is forgotten.
    "memory-always": Mutant(
        [
            (
                AGENT + "access.rs",
                "            DmScope::Main => (now.is_owner() && always.is_owner(), Audience::Owner),",
                "            DmScope::Main => (now.is_owner(), Audience::Owner),",
            ),
        ],
        [
            ("holdfast-agent", "lib", "policy::people::tests::a_conversation_is_the_owner_s_only_if_all_who_wrote_in_it_are_owners"),
        ],
    ),
    # The notes of memory/ are there for all.
    "memory-notes": Mutant(
        [
            (
                AGENT + "file_view.rs",
                "None if is_within(path, NOTES_FOLDER) => {",
                "None if is_within(path, NOTES_FOLDER) && path.is_empty() => {",
            ),
        ],
        [
            ("holdfast-agent", "lib", "file_view::tests::a_person_sees_their_own_files_and_those_that_are_shared"),
        ],
    ),
    # A person sees the files of others.
    "people-read": Mutant(
        [
            (
                AGENT + "file_view.rs",
                "let own = path.as_str().strip_prefix(folder)?.strip_prefix('/')?;",
                "let own = path.as_str().strip_prefix(folder).unwrap_or(path.as_str());\n        let own = own.strip_prefix('/').unwrap_or(own);",
            ),
        ],
        [
            ("agent-runner", "it", "files_of_people::a_person_reads_and_lists_their_own_files_and_no_other_persons"),
        ],
    ),
    # A person changes what all read.
    "people-write": Mutant(
        [
            (
                AGENT + "file_view.rs",
                "FileSpace::Folder(_) => !is_common(path),",
                "FileSpace::Folder(_) => !is_common(path) || path.starts_with(SHARED_FOLDER),",
            ),
        ],
        [
            ("agent-runner", "it", "files_of_people::a_person_changes_their_own_files_and_neither_shared_nor_other_ones"),
        ],
    ),
    # A person's name leads out of their folder.
    "people-escape": Mutant(
        [
            (
                AGENT + "file_view.rs",
                "            b'_' | b'-' => escaped.push(char::from(byte)),",
                "            b'_' | b'-' | b'/' => escaped.push(char::from(byte)),",
            ),
        ],
        [
            ("holdfast-agent", "lib", "file_view::tests::a_persons_name_never_leads_to_another_folder"),
        ],
    ),
    # A person's command writes among the owner's files.
    "people-exec": Mutant(
        [
            (
                RUNNER + "tools/shell/folders.rs",
                "        self.0.tree_path(path)\n",
                "        self.0.tree_path(path).map(|_| path.clone())\n",
            ),
        ],
        [
            ("agent-runner", "it", "files_of_people::a_command_has_the_files_of_its_person_and_changes_no_others"),
        ],
    ),
    # Pictures of all people are in one folder.
    "people-media": Mutant(
        [
            (
                RUNNER + "turn/context/media.rs",
                "store_media(tenant, tree, files.folder(), by, new)",
                "store_media(tenant, tree, files.folder().filter(|_| false), by, new)",
            ),
        ],
        [
            ("agent-runner", "it", "files_of_people::a_picture_belongs_to_the_person_in_whose_conversation_it_was_taken"),
        ],
    ),
    # What people send is stored in one folder.
    "people-attachments": Mutant(
        [
            (
                GATEWAY + "ingest/attachments.rs",
                "store_media(tenant, agent, space.folder(), &by, media)",
                "store_media(tenant, agent, space.folder().filter(|_| false), &by, media)",
            ),
        ],
        [
            ("gateway", "it", "arrivals::a_picture_is_kept_with_the_files_of_whoever_sent_it"),
        ],
    ),
    # A subagent sees all files, whoever asked for it.
    "people-subagent": Mutant(
        [
            (
                AGENT + "access.rs",
                "            Some(files) => Self { files, ..self },",
                "            Some(_) => self,",
            ),
        ],
        [
            ("agent-runner", "it", "files_of_people::a_subagent_has_the_files_of_the_person_who_asked_for_it"),
        ],
    ),
    # A slot that was fired fires again.
    "slot-key": Mutant(
        [
            (
                JOBS + "firings/decide.rs",
                "on conflict (job_id, slot, tenant_id) do nothing\n        returning tenant_id, job_id, slot",
                "on conflict (job_id, slot, tenant_id) do update set held = true\n        returning tenant_id, job_id, slot",
            ),
        ],
        [
            ("holdfast-schedule", "it", "firing::slots_are_caught_up_with_once_and_a_due_one_does_not_fire_again"),
        ],
    ),
    # Two schedulers decide a slot at once, and each fires it.
    "slot-lock": Mutant(
        [
            (
                JOBS + "firings/decide.rs",
                "on conflict (job_id, slot, tenant_id) do nothing\n        returning tenant_id, job_id, slot",
                "on conflict (job_id, slot, tenant_id) do update set held = true\n        returning tenant_id, job_id, slot",
            ),
            (JOBS + "firings/claim.rs", "order by j.due_at limit $1 for update skip locked", "order by j.due_at limit $1"),
            (
                JOBS + "firings/claim.rs",
                "order by t.turn, t.due_at limit $1 for update of j skip locked",
                "order by t.turn, t.due_at limit $1",
            ),
        ],
        [
            ("holdfast-schedule", "it", "claiming::three_replicas_fire_twenty_thousand_slots_once_each_though_some_die"),
        ],
    ),
    # A firing that is delivered again is another message.
    "firing-key": Mutant(
        [
            (
                SCHEDULER + "deliver.rs",
                "idem_key: firing.id.idem_key(),",
                'idem_key: format!("{}~{}", firing.id.idem_key(), firing.attempt),',
            ),
        ],
        [
            ("scheduler", "it", "firing::a_slot_whose_first_deliverer_died_is_the_same_message_though_its_job_was_changed"),
        ],
    ),
    # A timer disturbs who did not ask.
    "timer-silent": Mutant(
        [
            (JOBS + "signature.rs", "                    silent: true,", "                    silent: false,"),
        ],
        [
            ("scheduler", "it", "firing::a_timer_wakes_who_waits_for_it_and_disturbs_nobody_else"),
        ],
    ),
    # All slots of a job are one message.
    "firing-slot": Mutant(
        [
            (
                JOBS + "slot.rs",
                'format!("{}:{}", self.job, self.slot)',
                'format!("{}", self.job)',
            ),
        ],
        [
            ("holdfast-schedule", "lib", "store::slot::tests::a_key_names_the_job_and_the_slot_and_nothing_finer_than_the_database_keeps"),
            ("scheduler", "it", "arriving::one_that_arrives_late_is_well_and_the_next_slot_did_not_wait_for_it"),
        ],
    ),
    # What a firing became has ended, and nobody says so.
    "firing-settled": Mutant(
        [
            (
                SCHEDULER + "settle.rs",
                "self.ctx.jobs.finish(&ended).await?;",
                "self.ctx.jobs.finish(&ended[..0]).await?;",
            ),
        ],
        [
            ("scheduler", "it", "ending::an_error_is_on_record_with_its_class_and_delays_the_next_slot"),
        ],
    ),
    # A job that fails goes on at its usual pace.
    "firing-backoff": Mutant(
        [
            (
                JOBS + "firings/close.rs",
                "Outcome::Error => self.errors = self.errors.saturating_add(1),",
                "Outcome::Error => self.errors = 0,",
            ),
        ],
        [
            ("holdfast-schedule", "it", "settling::errors_delay_the_next_slot_the_more_of_them_there_are"),
        ],
    ),
    # A slot does not wait for the run before it.
    "overlap": Mutant(
        [
            (
                JOBS + "firings/decide.rs",
                "_ if !running => Self::First,",
                "_ if !running || waiting < MAX_WAITING_FIRINGS => Self::First,",
            ),
        ],
        [
            ("holdfast-schedule", "it", "claiming::a_slot_that_comes_while_one_runs_is_skipped_waits_or_runs_beside_it"),
        ],
    ),
    # A run is well though its channel refused the answer.
    "arrival-lost": Mutant(
        [
            (
                SCHEDULER + "settle.rs",
                "DeliveryProgress::Delivered => (Outcome::Ok, None),",
                "DeliveryProgress::Delivered | DeliveryProgress::Failed => (Outcome::Ok, None),",
            ),
            (
                SCHEDULER + "settle.rs",
                'DeliveryProgress::Failed => (Outcome::Error, Some("undelivered")),',
                "",
            ),
        ],
        [
            ("scheduler", "it", "arriving::an_answer_that_its_channel_refuses_is_its_runs_error"),
        ],
    ),
    # A best effort is taken for a promise.
    "arrival-effort": Mutant(
        [
            (
                SCHEDULER + "fire/turn.rs",
                "match turn.deliver && !turn.best_effort_deliver {",
                "match turn.deliver {",
            ),
        ],
        [
            ("scheduler", "it", "arriving::with_best_effort_the_run_is_well_whatever_becomes_of_its_answer"),
        ],
    ),
    # An answer that is on its way holds the job's next slot up.
    "arrival-holds": Mutant(
        [
            (
                JOBS + "firings/reply_delivery.rs",
                "j.tenant_id = t.tenant_id and j.running_slot = t.slot",
                "j.tenant_id = t.tenant_id and j.running_slot = t.slot and j.logged < 0",
            ),
        ],
        [
            ("holdfast-schedule", "it", "settling::one_whose_answer_is_on_its_way_goes_on_and_holds_nobody_up"),
        ],
    ),
    # Nobody is told of a reminder that failed.
    "reminder-told": Mutant(
        [
            (
                JOBS + "firings/close.rs",
                "if job.kind == JobKind::Reminder && one",
                "if job.kind == JobKind::Timer && one",
            ),
        ],
        [
            ("holdfast-schedule", "it", "settling::of_a_reminder_that_failed_it_is_told_each_time_and_of_nothing_else"),
            ("scheduler", "it", "arriving::a_reminder_that_did_not_arrive_is_said_again_and_told_of"),
        ],
    ),
    # A heart beats by the agent's clock, wherever its user is.
    "hours-zone": Mutant(
        [
            (
                SCHEDULE + "heartbeat/hours.rs",
                "let clock = zone.clock(now);",
                "let clock = Some(zone).map(|_| zones.local.clock(now)).unwrap_or_default();",
            ),
        ],
        [
            ("holdfast-schedule", "lib", "heartbeat::hours::tests::the_clocks_are_the_users_the_tenants_or_a_zones"),
            ("agent-runner", "it", "heartbeats::hours_are_those_of_whoever_is_told_if_they_said_where_they_are"),
        ],
    ),
    # That all is well is sent as news.
    "heartbeat-ack": Mutant(
        [
            (
                SCHEDULE + "heartbeat/answer.rs",
                "let shorter = without_first(rest).or_else(|| without_last(rest));",
                "let shorter = without_first(rest).or_else(|| without_last(rest)).filter(|_| rest.is_empty());",
            ),
        ],
        [
            ("holdfast-schedule", "lib", "heartbeat::answer::tests::the_token_and_little_beside_it_is_no_news"),
        ],
    ),
    # A heartbeat says the same again within a day.
    "heartbeat-window": Mutant(
        [
            (
                RUNNER + "turn/heartbeats.rs",
                "match decide_delivery(&config, reply, &recent, now) {",
                "match decide_delivery(&config, reply, &RecentAnswers::default(), now) {",
            ),
        ],
        [
            ("agent-runner", "it", "heartbeats::a_heartbeat_has_no_past_and_says_nothing_twice_in_a_day"),
        ],
    ),
    # What was said once is never said again.
    "heartbeat-again": Mutant(
        [
            (
                SCHEDULE + "heartbeat/recent.rs",
                "self.0.iter().any(|(at, said)| *at > since && *said == digest)",
                "self.0.iter().any(|(at, said)| *at > since.min(0) && *said == digest)",
            ),
        ],
        [
            ("holdfast-schedule", "lib", "heartbeat::recent::tests::what_was_said_counts_for_a_day"),
        ],
    ),
    # Times are on the agent's clock, wherever its user is.
    "zone-own": Mutant(
        [
            (
                RUNNER + "turn/time_zone.rs",
                "self.conversation_zone().or_else(|| self.preferences.zone.clone())",
                "self.conversation_zone().or_else(|| self.zone.clone().filter(|zone| zone.name().is_empty()))",
            ),
        ],
        [
            ("agent-runner", "it", "schedules::times_are_on_the_clock_of_whoever_says_where_they_are_and_of_nobody_else"),
            ("agent-runner", "it", "schedules::a_job_of_a_few_words_is_on_its_owners_clock"),
        ],
    ),
    # A path that leads out of the skill's folder is taken for one that does not.
    "skill-path": Mutant(
        [
            (
                SKILLS + "archive.rs",
                "let path: TreePath = composed\n            .parse()",
                'let path: TreePath = composed\n            .replace("../", "")\n            .parse()',
            ),
        ],
        [
            ("holdfast-skills", "lib", "archive::tests::a_path_that_leaves_the_folder_is_refused"),
        ],
    ),
    # A link in an archive is taken for a file.
    "skill-link": Mutant(
        [
            (
                SKILLS + "archive.rs",
                "if entry.is_symlink() || !matches!(kind, 0 | 0o100_000 | 0o040_000) {",
                "if kind == 1 {",
            ),
        ],
        [
            ("holdfast-skills", "lib", "archive::tests::links_and_devices_are_refused"),
        ],
    ),
    # What a registry says is malicious is installed with a warning.
    "skill-verdict": Mutant(
        [
            (
                SKILLS + "install.rs",
                'Err(refused(format!("it is malicious: {why}"))),',
                "Ok(Some(why.clone())),",
            ),
        ],
        [
            ("holdfast-skills", "lib", "install::tests::what_does_harm_or_is_not_judged_is_not_even_downloaded"),
            ("agent-runner", "it", "skills::a_malicious_skill_is_not_even_downloaded"),
        ],
    ),
    # That nobody has judged a skill is taken for a good sign, by whoever installs it.
    "skill-unjudged": Mutant(
        [
            (
                SKILLS + "install.rs",
                "(Verdict::Clean, _) => Ok(None),",
                "(Verdict::Clean, _) | (Verdict::Unavailable(_), UnjudgedPolicy::Refused) => Ok(None),",
            ),
        ],
        [
            ("holdfast-skills", "lib", "install::tests::what_does_harm_or_is_not_judged_is_not_even_downloaded"),
        ],
    ),
    # A registry that does not answer is taken for one that has no objection.
    "skill-fail-open": Mutant(
        [
            (
                SKILLS + "registry/clawhub.rs",
                "Err(error) => Verdict::Unavailable(one_line(&error.to_string(), 200)),",
                "Err(_) => Verdict::Clean,",
            ),
        ],
        [
            ("holdfast-skills", "lib", "registry::tests::a_verdict_is_what_moderation_and_scanners_say_and_silence_is_none"),
        ],
    ),
    # What everybody has goes before the tenant's, and that before the agent's own.
    "skill-precedence": Mutant(
        [
            (
                SKILLS + "skill_set.rs",
                "files.sort_by(|a, b| (a.scope, &a.folder).cmp(&(b.scope, &b.folder)));",
                "files.sort_by(|a, b| (b.scope, &a.folder).cmp(&(a.scope, &b.folder)));",
            ),
        ],
        [
            ("holdfast-skills", "lib", "skill_set::tests::the_nearer_one_wins_and_what_it_hides_is_reported"),
        ],
    ),
    # The rule of a package that was imported leads to its agent at once.
    "package-rule": Mutant(
        [
            (
                DIRECTORY + "verbs/packages.rs",
                "let rule = NewRule { disabled: true, ..rule };",
                "let rule = NewRule { disabled: false, ..rule };",
            ),
        ],
        [
            ("gateway", "it", "skills::an_agent_comes_as_a_file_leads_nowhere_until_it_is_approved_and_goes_as_the_same_file"),
        ],
    ),
    # What a skill's commands are given stands in what they tell.
    "skill-secret": Mutant(
        [
            (RUNNER + "turn/calls.rs", "let made = redact_secrets(&snapshot.skills.secrets, made);", ""),
        ],
        [
            ("agent-runner", "it", "skill_env::a_command_has_the_secret_of_a_skill_and_nobody_is_told_it"),
        ],
    ),
    # What was read is forgotten behind the loaded history.
    "outside-sticky": Mutant(
        [
            (
                RUNNER + "turn/run.rs",
                "    if is_outside {",
                "    if false {",
            ),
        ],
        [
            ("agent-runner", "it", "outside_text::what_was_read_counts_behind_the_loaded_history_until_the_conversation_begins_anew"),
        ],
    ),
    # The mark survives a new beginning.
    "outside-reset": Mutant(
        [
            (
                SESSION + "protocol/outside_text.rs",
                "any(Entry::is_outside_text) => UNMARK,",
                "any(Entry::is_outside_text) => return Ok(()),",
            ),
        ],
        [
            ("agent-runner", "it", "outside_text::what_was_read_counts_behind_the_loaded_history_until_the_conversation_begins_anew"),
        ],
    ),
    # What a marked conversation tells another is not marked.
    "outside-told": Mutant(
        [
            (
                RUNNER + "tools/tool_context.rs",
                "self.has_read_outside_text || self.kind == SessionKind::Subagent",
                "false",
            ),
        ],
        [
            ("agent-runner", "it", "outside_text::what_a_conversation_that_read_a_page_tells_others_is_marked"),
        ],
    ),
    # What a job posts is not marked.
    "outside-post": Mutant(
        [
            (
                RUNNER + "turn/firings.rs",
                "let outside = turn.has_read_outside_text() || !audience.has_owner_rights();",
                "let outside = !audience.has_owner_rights();",
            ),
        ],
        [
            ("agent-runner", "it", "outside_text::a_job_that_read_a_page_posts_a_marked_text"),
        ],
    ),
    # A file from outside is read as if it were the agent"s own.
    "outside-file": Mutant(
        [
            (
                RUNNER + "tools/files.rs",
                "ToolContext::of(call)?.note_outside_text();",
                "",
            ),
        ],
        [
            ("agent-runner", "it", "outside_text::a_file_that_came_from_outside_counts_once_it_is_read"),
        ],
    ),
    # What is written after a page was read is not marked.
    "outside-written": Mutant(
        [
            (
                RUNNER + "tools/files.rs",
                "    Ok(context.is_flushing || !has_instruction)\n",
                "    Ok(false)\n",
            ),
        ],
        [
            ("agent-runner", "it", "outside_text::a_file_that_was_written_after_a_page_was_read_is_marked"),
        ],
    ),
    # Input for a command carries no mark.
    "outside-input": Mutant(
        [
            (
                RUNNER + "tools/shell.rs",
                "job.traits.set_outside();",
                "",
            ),
        ],
        [
            ("agent-runner", "it", "outside_text::a_command_that_is_told_what_a_page_said_changes_no_instruction"),
        ],
    ),
    # Notes of a flush carry no mark into the prompt.
    "outside-note": Mutant(
        [
            (
                RUNNER + "turn/steps.rs",
                "    outside_text::mark_outside_files(turn, snapshot);\n",
                "",
            ),
        ],
        [
            ("agent-runner", "it", "outside_text::a_memory_flush_asks_nobody_and_its_note_marks_the_conversations_that_see_it"),
        ],
    ),
    # What a command writes beside a file from outside is not marked.
    "outside-command": Mutant(
        [
            (
                RUNNER + "tools/shell.rs",
                "line.network || sees_outside_text;",
                "line.network;",
            ),
        ],
        [
            ("agent-runner", "it", "outside_text::a_command_passes_the_mark_of_a_file_on"),
        ],
    ),
    # A memory of a marked conversation is not marked.
    "outside-memory": Mutant(
        [
            (
                RUNNER + "tools/memory.rs",
                "outside: ToolContext::of(call)?.repeats_outside_text(),",
                "outside: false,",
            ),
        ],
        [
            ("agent-runner", "it", "outside_text::what_a_conversation_that_read_a_page_remembers_is_marked"),
        ],
    ),
    # Memories and descriptions in the prompt carry no mark.
    "outside-prompt": Mutant(
        [
            (
                RUNNER + "turn/think.rs",
                "    outside_text::mark_outside_prompt(turn, &request.chat.tools);\n",
                "",
            ),
        ],
        [
            ("agent-runner", "it", "hostile_text::other_hostile_text_makes_nothing_leave_stay_or_cost_unasked"),
        ],
    ),
    # What leaves a marked conversation needs nobody.
    "outside-leaves": Mutant(
        [
            (
                RUNNER + "turn/approvals/approval_need.rs",
                "judge(turn, call, |conversation, tool, input| conversation.destination(tool, input))",
                "None",
            ),
        ],
        [
            ("agent-runner", "it", "hostile_text::a_page_makes_nothing_leave_stay_or_cost_unasked"),
        ],
    ),
    # A server's word that its tool only reads lets the tool be called.
    "outside-server": Mutant(
        [
            (
                RUNNER + "tools/mcp/tool.rs",
                "self.tool.reads && self.link.is_harmless();",
                "self.tool.reads;",
            ),
        ],
        [("agent-runner", "it", "mcp::a_server_s_word_that_a_tool_only_reads_is_not_enough")],
    ),
    # A hostile text has pictures drawn that the tenant pays for.
    "outside-paid": Mutant(
        [
            (
                RUNNER + "turn/approvals/outgoing.rs",
                "    (!is_free).then(|| format!(\"paid calls of {tool}\"))",
                "    (false && !is_free).then(|| format!(\"paid calls of {tool}\"))",
            ),
        ],
        [
            ("agent-runner", "lib", "turn::approvals::outgoing::tests::changes_at_services_answers_elsewhere_and_paid_media_are_asked_about_and_reading_is_not"),
        ],
    ),
    # An address of which a part was given is free.
    "outside-given": Mutant(
        [
            (
                RUNNER + "turn/approvals/outgoing.rs",
                ".contains(&comparable(&url))",
                ".iter().any(|given| given.starts_with(&comparable(&url)))",
            ),
        ],
        [("agent-runner", "lib", "turn::approvals::outgoing::tests::an_address_is_free_only_if_somebody_else_gave_it")],
    ),
    # A todo takes a text from a marked conversation to another without its mark.
    "outside-todo": Mutant(
        [
            (
                RUNNER + "tools/work/todos.rs",
                "    if view.has_outside_text() {",
                "    if false {",
            ),
        ],
        [
            ("agent-runner", "it", "outside_text::a_todo_of_a_conversation_that_read_a_page_marks_the_conversation_that_reads_it"),
        ],
    ),
    # A command is approved of which only the beginning was read.
    "approval-truncated": Mutant(
        [
            (
                RUNNER + "tools/shell/command_policy.rs",
                "    if runs.is_truncated {",
                "    if false {",
            ),
        ],
        [
            ("agent-runner", "lib", "tools::shell::command_policy::tests::what_cannot_be_shown_in_full_is_refused"),
        ],
    ),
    # A program is approved of which only the hash was shown.
    "approval-unreadable": Mutant(
        [
            (
                RUNNER + "tools/shell/command_policy.rs",
                "file.text().is_none() && !runs.arguments",
                "false && !runs.arguments",
            ),
        ],
        [
            ("agent-runner", "lib", "tools::shell::command_policy::tests::what_cannot_be_shown_in_full_is_refused"),
        ],
    ),
    # A secret leaves in an address.
    "outgoing-secret": Mutant(
        [
            (
                RUNNER + "turn/approvals/approval_need.rs",
                "    if tool_flows::sends_input(turn.tools.registry(), known)",
                "    if false",
            ),
        ],
        [
            ("agent-runner", "it", "skill_env::an_address_with_a_secret_is_not_fetched"),
        ],
    ),
    # The policy does not see a file that a patch names without a space.
    "patch-header": Mutant(
        [
            (AGENT + "policy/approval.rs", '"*** Add File:", "*** Update File:"', '"*** Add File: ", "*** Update File:"'),
        ],
        [
            ("holdfast-tools", "lib", "files::patch::tests::a_header_without_a_space_names_its_file_to_the_policy_too"),
        ],
    ),
    # A call whose effect only a newer version knows is repeated after a crash.
    "newer-effect": Mutant(
        [("crates/types/src/effect.rs", "    #[serde(other)]\n    Acts,", "    Acts,")],
        [("holdfast-types", "lib", "effect::tests::an_effect_of_a_newer_version_acts")],
    ),
    # People share a session because a newer version separates them in a way that is not known.
    "newer-scope": Mutant(
        [
            (
                "crates/types/src/session_key.rs",
                "    PerChannelPeer,\n    /// One session for each person, channel and account. A scope",
                "    #[serde(alias = \"per-mood\")]\n    PerChannelPeer,\n    /// One session for each person, channel and account. A scope",
            ),
        ],
        [("holdfast-directory", "lib", "agent::tests::a_word_of_a_newer_version_shares_no_session_and_allows_no_tool")],
    ),
    # One reply that is an action of a newer version stops all replies of its tenant and channel.
    "newer-action": Mutant(
        [("crates/types/src/act.rs", "    #[serde(other)]\n    Unknown,", "    Unknown,")],
        [("holdfast-types", "lib", "act::tests::an_action_of_a_newer_version_is_unknown_and_not_another")],
    ),
}
