"""The promises under load, after failovers and against hostile input: what takes each of them away, and
the tests that must see it. As in agent.py.
"""

from agent import DIRECTORY, GATEWAY, JOBS, RUNNER, SESSION, Mutant

PG = "crates/pg/src/"
EGRESS = "crates/egress/src/"
BUS = "crates/bus/src/"
AGENT_TESTS = ("agent-runner", "it")


def session(*tests: str) -> list[tuple[str, str, str]]:
    """Tests of the session protocol."""
    return [("holdfast-session", "it", test) for test in tests]


MUTANTS = {
    # The fence compares the epoch only: a failover that lost commits gives an epoch twice.
    "fence-owner": Mutant(
        [
            (
                SESSION + "sessions.rs",
                "                && lease.owner == Some(claim.runner.as_uuid())\n",
                "",
            ),
            (SESSION + "protocol/append.rs", "epoch = $3 and owner = $12", "epoch = $3 and $12::uuid is not null"),
            (
                SESSION + "protocol/complete.rs",
                "epoch = $12 and owner = $29",
                "epoch = $12 and $29::uuid is not null",
            ),
        ],
        session(
            "replaying::a_write_of_a_lost_timeline_is_refused_though_its_epoch_is_given_again",
            "claiming::a_runner_is_refused_with_the_epoch_of_another",
        ),
    ),
    # A turn finishes whatever message is in the place of one that it has read.
    "inbox-newest": Mutant(
        [
            (
                SESSION + "protocol/append.rs",
                "($13::bigint is null or exists (",
                "($13::bigint is null or $14::uuid is not null or exists (",
            ),
        ],
        session("replaying::a_message_in_the_place_of_a_lost_one_is_not_finished_unread"),
    ),
    # A lease is renewed for whoever asks.
    "renew-owner": Mutant(
        [
            (
                SESSION + "protocol/claim.rs",
                "where l.epoch = h.epoch and l.owner = $1 and l.state = 'RUNNING'",
                "where l.epoch >= h.epoch and $1::uuid is not null and l.state = 'RUNNING'",
            ),
        ],
        session(
            "claiming::renewing_returns_what_is_still_held_and_nothing_else",
            "replaying::the_shipped_protocol_does_what_the_model_does",
        ),
    ),
    # A renewal waits for leases that another transaction has locked.
    "renew-locked": Mutant(
        [(SESSION + "protocol/claim.rs", 'renew!("skip locked")', 'renew!("")')],
        session("claiming::a_locked_lease_delays_the_renewal_of_no_other"),
    ),
    # A sweep frees leases that have not expired.
    "sweep-expired": Mutant(
        [
            (
                SESSION + "protocol/sweep.rs",
                "where state = 'RUNNING' and lease_until < clock_timestamp() and paused is null",
                "where state = 'RUNNING' and lease_until is not null and paused is null",
            ),
        ],
        session("replaying::the_shipped_protocol_does_what_the_model_does"),
    ),
    # A sweep leaves the epoch, so that the owner it gave up is not fenced before the next claim.
    "sweep-epoch": Mutant(
        [
            (
                SESSION + "protocol/sweep.rs",
                "set state = 'READY', epoch = l.epoch + 1, owner = null, lease_until = null,\n"
                "        ready_at = clock_timestamp() + case",
                "set state = 'READY', epoch = l.epoch, owner = null, lease_until = null,\n"
                "        ready_at = clock_timestamp() + case",
            ),
        ],
        session("replaying::the_shipped_protocol_does_what_the_model_does"),
    ),
    # A session that cannot be handled ends the sweep of all.
    "sweep-poison": Mutant(
        [
            (
                SESSION + "protocol/sweep.rs",
                "        dead += failure.value(given_up.map(u64::from).map_err(|error| error.in_session(session)));",
                "        dead += given_up.map(u64::from).map_err(|error| error.in_session(session))?;\n"
                "        failure.value(Ok(0_u64));",
            ),
        ],
        session("sweeping::a_session_that_cannot_be_written_keeps_no_other_from_being_swept"),
    ),
    # A release charges an attempt.
    "release-attempt": Mutant(
        [
            (
                SESSION + "protocol/claim.rs",
                "else greatest(attempts - 1, 0) end,",
                "else attempts end,",
            ),
        ],
        session(
            "claiming::a_released_session_goes_on_elsewhere_at_once_without_a_charge",
            "replaying::the_shipped_protocol_does_what_the_model_does",
        ),
    ),
    # A bridge that lost a delivery overwrites what the next one recorded.
    "settle-delivery": Mutant(
        [
            (
                SESSION + "delivery.rs",
                "((state = 'sending' and owner = $3 and attempt = $8)",
                "((state = 'sending' and $3::uuid is not null and $8::integer > 0)",
            ),
        ],
        session(
            "delivering::a_bridge_that_lost_a_delivery_cannot_settle_it_otherwise",
        ),
    ),
    # An approval is settled by a runner that has lost its session.
    "settle-approval": Mutant(
        [
            (
                SESSION + "approvals/settle.rs",
                "              and expires_at <= clock_timestamp()\n            returning approval_id",
                "              and expires_at < '-infinity'\n            returning approval_id",
            ),
        ],
        [(*AGENT_TESTS, "approvals::what_nobody_answers_in_time_is_denied_though_nobody_is_there")],
    ),
    # A claim waits for a session that another transaction has locked.
    "skip-locked-claim": Mutant(
        [(SESSION + "protocol/claim.rs", "for update of l skip locked) r),", "for update of l) r),")],
        session("claiming::a_locked_session_keeps_no_other_from_being_claimed_or_swept"),
    ),
    # A sweep waits for a session that another transaction has locked.
    "skip-locked-sweep": Mutant(
        [
            (
                SESSION + "protocol/sweep.rs",
                "limit 200 for update skip locked)\n    update",
                "limit 200 for update)\n    update",
            ),
        ],
        session("claiming::a_locked_session_keeps_no_other_from_being_claimed_or_swept"),
    ),
    # Jobs run before people.
    "priority-claim": Mutant(
        [(SESSION + "protocol/claim.rs", 'claim!("place > first, priority, fair_key")', 'claim!("place > first, -priority, fair_key")')],
        session("claiming::people_come_first_then_subagents_then_jobs_and_none_starves"),
    ),
    # Priorities are all there is: a job waits for ever behind people.
    "priority-starve": Mutant(
        [
            (
                SESSION + "protocol/claim.rs",
                'const FAIR: &str = claim!("fair_key");',
                'const FAIR: &str = claim!("priority, fair_key");',
            ),
        ],
        session("claiming::people_come_first_then_subagents_then_jobs_and_none_starves"),
    ),
    # The slot of an ended turn goes to whoever waits longest.
    "priority-slot": Mutant(
        [
            (
                SESSION + "protocol/complete.rs",
                'const BY_PRIORITY: &str = end_turn!("priority, ready_at");',
                'const BY_PRIORITY: &str = end_turn!("-priority, ready_at");',
            ),
        ],
        session("claiming::a_person_gets_the_next_slot_of_a_tenant_whose_jobs_hold_all"),
    ),
    # A NUL character fails the write that contains it.
    "nul-text": Mutant(
        [(PG + "query.rs", '            "TEXT" => replace_in_text(buf, from),\n', "")],
        session("turning::a_nul_character_fails_no_write_and_is_replaced"),
    ),
    "nul-json": Mutant(
        [(PG + "query.rs", '"JSONB" => replace_in_json(&mut buf[from..]),', '"JSONB" => {}')],
        session("turning::a_nul_character_fails_no_write_and_is_replaced"),
    ),
    # A guest approves the calls of their own conversation.
    "approval-guest": Mutant(
        [
            (
                RUNNER + "turn/approvals/decisions.rs",
                "SessionKind::Dm if !is_guest() => return Ok(true),",
                "SessionKind::Dm if !is_guest() || !id.is_empty() => return Ok(true),",
            ),
        ],
        [(*AGENT_TESTS, "approvals::a_guest_cannot_approve_the_calls_of_the_own_conversation")],
    ),
    # A client of MCP, which is a model, approves the calls of another model.
    "approval-mcp": Mutant(
        [
            (
                GATEWAY + "mcp.rs",
                "Some(Command::Decide(_)) => return Err(Error::DecisionOverMcp),",
                "Some(Command::Stop) => return Err(Error::DecisionOverMcp),",
            ),
        ],
        [("gateway", "it", "mcp::a_client_cannot_decide_an_approval")],
    ),
    # "Always" allows the command with any further arguments.
    "always-exact": Mutant(
        [
            (
                RUNNER + "tools/shell/command_policy.rs",
                '.then(|| words.join(" "))',
                '.then(|| format!("{} *", words.join(" ")))',
            ),
        ],
        [("agent-runner", "lib", "command_policy::tests::always_means_the_same_command_and_no_other_arguments")],
    ),
    # A tenant's provider may be on a private address.
    "provider-address": Mutant(
        [
            (
                EGRESS + "guard.rs",
                "            || self.allow.contains(host)\n",
                "            || !self.allow.contains(host)\n",
            ),
        ],
        [
            ("holdfast-egress", "lib", "guard::tests::what_the_operator_listed_is_let_through_and_its_neighbours_are_not"),
            (*AGENT_TESTS, "keys::a_provider_on_a_private_address_is_asked_only_if_the_operator_lists_it"),
        ],
    ),
    # Invented keys take the connections of issued ones.
    "key-mark": Mutant(
        [(DIRECTORY + "directory.rs", "if self.peppers.have_mark(id, secret) {", "if self.peppers.have_mark(id, secret) || !id.is_nil() {")],
        [("holdfast-directory", "it", "keys::invented_keys_do_not_take_all_connections")],
    ),
    # The account that has waited longest gets all sends.
    "delivery-account": Mutant(
        [(SESSION + "delivery.rs", "partition by tenant_id order by account_turn, next_at) as turn", "partition by tenant_id order by next_at) as turn")],
        session("delivering::a_backlog_of_one_account_does_not_delay_the_replies_of_another"),
    ),
    # A tenant with many accounts gets the reserved sends too.
    "delivery-tenant": Mutant(
        [(SESSION + "delivery.rs", "case when turn > $12 then $13 else 0 end),", "case when turn > $12 then $13 - $13 else 0 end),")],
        [("channel-bridge", "it", "delivering::a_tenant_with_many_accounts_does_not_take_all_slots")],
    ),
    # A class below its share waits behind the others.
    "class-share": Mutant(
        [
            (
                SESSION + "protocol/claim.rs",
                'claim!("place > first, priority, fair_key")',
                'claim!("priority, fair_key")',
            ),
        ],
        session("claiming::a_flood_of_one_class_does_not_take_the_shares_of_the_others"),
    ),
    # A tenant that has its share takes the slots that are reserved for others.
    "tenant-share": Mutant(
        [(SESSION + "protocol/claim.rs", "where r.slot <= $2 - $16", "where r.slot <= $2 or $16 < 0")],
        session("claiming::a_tenant_with_its_share_of_turns_leaves_the_reserved_slots_to_others"),
    ),
    # Two sweeps lock the counters of a tenant in no order.
    "sweep-counters": Mutant(
        [(SESSION + "protocol/sweep.rs", "order by f.tenant_id, f.shard for update of f),", "order by f.tenant_id, f.shard desc for update of f),")],
        session("sweeping::a_sweep_locks_the_counters_of_paused_sessions_in_order"),
    ),
    # A sweep waits for a session that it should give up or wake.
    "sweep-lock": Mutant(
        [(SESSION + "sessions.rs", 'select_lease!("for update skip locked")', 'select_lease!("for update")')],
        session("sweeping::a_locked_session_does_not_delay_the_sweep_of_others"),
    ),
    # A tenant creates as many sessions as it likes.
    "session-limit": Mutant(
        [(SESSION + "sessions.rs", "if count.saturating_add(new) > limit {", "if count.saturating_add(new) < 0 {")],
        session("ingesting::a_tenant_with_as_many_sessions_as_it_may_gets_no_more_and_keeps_using_those"),
    ),
    # A reply waits for a reaction that cannot be sent.
    "delivery-cosmetic": Mutant(
        [(SESSION + "delivery.rs", " and (d.is_cosmetic or not e.is_cosmetic))", ")")],
        session("delivering::what_only_decorates_a_message_holds_up_no_reply"),
    ),
    # Two responses that continue one see each other.
    "response-branch": Mutant(
        [
            (
                GATEWAY + "openai/history.rs",
                "                if !is_whole {\n                    return true;\n                }\n                if last.answer.is_some() {\n                    return false;\n                }\n",
                "                if !is_whole || last.answer.is_some() {\n                    return true;\n                }\n",
            ),
        ],
        [("gateway", "lib", "openai::history::tests::a_history_is_known_if_the_stored_conversation_ends_with_it")],
    ),
    # Text from outside becomes an instruction without a person's decision.
    "outside-text": Mutant(
        [
            (
                RUNNER + "turn/approvals/approval_need.rs",
                "        && outside_text::changes_instructions(tool, input)\n",
                "        && outside_text::changes_instructions(tool, input) && turn.journal.entries().is_empty()\n",
            ),
        ],
        [(*AGENT_TESTS, "approvals::what_changes_an_agent_needs_a_person_once_text_from_outside_was_read")],
    ),
    # Two subjects can look alike.
    "approval-hidden": Mutant(
        [
            (
                "crates/tools/src/untrusted.rs",
                "            '⟦' => false,",
                "            '⟦' => true,",
            ),
        ],
        [("holdfast-tools", "lib", "approval::tests::the_shown_text_determines_the_subject")],
    ),
    # Any signature is one.
    "request-signature": Mutant(
        [
            (
                BUS + "signature.rs",
                "verify_slice(&signature).is_ok());",
                "verify_slice(&signature).is_ok() || signature.len() == 32);",
            ),
        ],
        [
            ("holdfast-bus", "lib", "signature::tests::a_request_without_a_signature_or_with_that_of_another_key_is_refused"),
            ("holdfast-bus", "it", "requests::a_login_without_the_keys_asks_nothing"),
            (*AGENT_TESTS, "model_questions::a_login_to_nats_is_not_enough_to_ask_a_model"),
            (*AGENT_TESTS, "shell::a_login_to_nats_is_not_enough_to_write_to_a_process"),
        ],
    ),
    # Any signature of a job is one.
    "job-signature": Mutant(
        [
            (
                JOBS + "signature.rs",
                "verify_slice(&mac).is_ok())",
                "verify_slice(&mac).is_ok() || mac.len() == 32)",
            ),
        ],
        [
            ("holdfast-schedule", "lib", "store::signature::tests::whatever_a_scheduler_changes_in_a_message_the_signature_is_not_for_it"),
            (*AGENT_TESTS, "job_authors::a_job_that_a_scheduler_changed_has_nobodys_rights"),
        ],
    ),
    # A job's answer is sent to whom a scheduler likes.
    "job-destination": Mutant(
        [
            (
                JOBS + "signature.rs",
                "!signature.destination.allows(target)",
                "!signature.destination.is_delivered && !signature.destination.allows(target)",
            ),
        ],
        [("holdfast-schedule", "lib", "store::signature::tests::whatever_a_scheduler_changes_in_a_message_the_signature_is_not_for_it")],
    ),
    # A service signs the words that somebody without the keys wrote.
    "job-signed-again": Mutant(
        [
            (
                JOBS + "change.rs",
                "keys.filter(|keys| keys.is_job_signed(&was))",
                "keys.filter(|_| was.signature.is_some())",
            ),
        ],
        [("holdfast-schedule", "it", "signing::a_job_is_signed_when_it_is_made_and_again_when_it_changes")],
    ),
    # A message of a scheduler has the rights of whom it names.
    "job-message-trusted": Mutant(
        [
            (
                RUNNER + "scheduled_messages.rs",
                "body: &body, target }) {",
                "body: &body, target }) || body.heartbeat.is_none() {",
            ),
        ],
        [
            (*AGENT_TESTS, "job_authors::a_message_that_a_scheduler_makes_up_has_nobodys_rights"),
            (*AGENT_TESTS, "job_authors::a_job_that_a_scheduler_changed_has_nobodys_rights"),
        ],
    ),
    # Requests are served whether they are signed or not.
    "request-unsigned": Mutant(
        [
            (
                BUS + "question.rs",
                "let signatures = subject.is_signed().then(",
                "let signatures = (subject.is_signed() && subject.as_str().is_empty()).then(",
            ),
        ],
        [("holdfast-bus", "it", "requests::a_request_is_served_once_for_its_receiver_and_answered_to_its_sender")],
    ),
    # A recorded request serves for ever.
    "request-time": Mutant(
        [(BUS + "signature.rs", "if skew_ms > max_age {", "if skew_ms > max_age.saturating_mul(1_000) {")],
        [("holdfast-bus", "lib", "signature::tests::a_request_expires_and_may_be_ahead_of_the_clock_by_as_much")],
    ),
    # A recorded request serves for every receiver.
    "request-receiver": Mutant(
        [(BUS + "signature.rs", ".chain_update(subject)", ".chain_update(&subject[..0])")],
        [
            ("holdfast-bus", "lib", "signature::tests::a_signature_serves_for_no_other_receiver_answer_or_content"),
            ("holdfast-bus", "it", "requests::a_request_is_served_once_for_its_receiver_and_answered_to_its_sender"),
        ],
    ),
    # The answer to a recorded request goes to whoever repeats it.
    "request-reply": Mutant(
        [(BUS + "signature.rs", ".chain_update(reply)", ".chain_update(&reply[..0])")],
        [("holdfast-bus", "lib", "signature::tests::a_signature_serves_for_no_other_receiver_answer_or_content")],
    ),
    # A recorded request serves again.
    "request-replay": Mutant(
        [
            (
                BUS + "signature.rs",
                "seen.record(issued, nonce,",
                "seen.record(issued, rand::random::<Nonce>().map(|byte| byte ^ nonce[0]),",
            ),
        ],
        [
            ("holdfast-bus", "lib", "signature::tests::a_request_is_accepted_once"),
            ("holdfast-bus", "it", "requests::a_request_is_served_once_for_its_receiver_and_answered_to_its_sender"),
        ],
    ),
}
