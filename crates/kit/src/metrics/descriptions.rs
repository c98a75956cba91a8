//! Meaning of each metric, which `/metrics` shows as `HELP` and docs/metrics.md lists.

use metrics::{describe_counter, describe_gauge, describe_histogram};

pub const COUNTERS: &[(&str, &str)] = &[
    (
        "holdfast_bridge_deliveries_total",
        "Attempts to send a part of a reply, by channel and outcome.",
    ),
    (
        "holdfast_bridge_previews_total",
        "Changes of messages that show an answer while it is written, by channel and outcome.",
    ),
    (
        "holdfast_bridge_updates_total",
        "Updates and messages that were received from platforms, by channel and outcome.",
    ),
    (
        "holdfast_bus_dropped_total",
        "Messages of NATS that were dropped, by kind. They cost delay only.",
    ),
    (
        "holdfast_bus_refused_total",
        "Requests on NATS that were refused because of their signature, by reason.",
    ),
    (
        "holdfast_database_failovers_total",
        "Times that another database server took the place of the one before.",
    ),
    (
        "holdfast_gateway_requests_total",
        "Requests, by interface (http, grpc, websocket) and outcome.",
    ),
    (
        "holdfast_gateway_websocket_slow_readers_total",
        "WebSocket connections that were ended because the client did not read.",
    ),
    ("holdfast_memory_embedded_units_total", "Pieces of text that were embedded and stored."),
    (
        "holdfast_model_fallbacks_total",
        "Model requests that went to the next model, by class of the error.",
    ),
    ("holdfast_model_retries_total", "Model requests that were repeated, by class of the error."),
    (
        "holdfast_model_tokens_total",
        "Tokens of answered model requests, by provider and kind (input, cached, written, output, reasoning); those read from and written to the provider's cache are also counted as input, reasoning as output.",
    ),
    (
        "holdfast_operator_reconciliations_total",
        "Reconciliations of resources, by kind and outcome.",
    ),
    ("holdfast_runner_approvals_requested_total", "Approvals that were requested."),
    (
        "holdfast_runner_approvals_settled_total",
        "Approvals that were decided or have expired, by state.",
    ),
    (
        "holdfast_runner_behavior_corrections_total",
        "Steps of behaviours whose result could not be used at first.",
    ),
    (
        "holdfast_runner_behavior_idle_total",
        "Turns of behaviours that had no input and asked no model.",
    ),
    (
        "holdfast_runner_behavior_yields_total",
        "Turns of behaviours that yielded at a limit of their period.",
    ),
    ("holdfast_runner_chains_total", "Chains that ended, by outcome."),
    ("holdfast_runner_claims_total", "Sessions that were claimed."),
    (
        "holdfast_runner_client_calls_overdue_total",
        "Calls of clients' tools whose results did not come in time.",
    ),
    ("holdfast_runner_client_calls_total", "Calls that were handed over to clients."),
    (
        "holdfast_runner_commands_elevated_total",
        "Commands that ran outside the sandbox by permission.",
    ),
    ("holdfast_runner_commands_total", "Commands that ended, by outcome."),
    (
        "holdfast_runner_compactions_total",
        "Summaries that replaced the beginning of a conversation, by how they were made.",
    ),
    (
        "holdfast_runner_cost_microdollars_total",
        "Cost of models and paid tools by the price list, in millionths of a US dollar.",
    ),
    ("holdfast_runner_defects_total", "Turns that ended by a defect of the runner."),
    ("holdfast_runner_events_logged_total", "Events that were moved to the logs of tenants."),
    ("holdfast_runner_extractions_total", "Searches of conversations for memories, by outcome."),
    ("holdfast_runner_failures_total", "Turns that ended with an error, by class."),
    (
        "holdfast_runner_fenced_writes_total",
        "Writes that were refused because another runner has the session.",
    ),
    (
        "holdfast_runner_flushes_total",
        "Turns in which the agent was asked to store memories before a summary.",
    ),
    (
        "holdfast_runner_lost_state_total",
        "Background commands, browser windows and MCP servers that conversations lost, by reason: \
         `died`, `stopped` or `busy` runner.",
    ),
    (
        "holdfast_runner_model_blames_total",
        "Times that a key or a model was left alone for a while, by kind and reason.",
    ),
    (
        "holdfast_runner_outranked_total",
        "Turns of subagents and jobs that gave their slots to waiting conversations.",
    ),
    (
        "holdfast_runner_policy_denied_total",
        "Tool calls that the policy denied, by layer and tool.",
    ),
    ("holdfast_runner_renewals_total", "Renewals of OAuth tokens, by outcome."),
    ("holdfast_runner_routed_total", "Turns whose model was chosen by a rule, by kind of rule."),
    ("holdfast_runner_said_as_is_total", "Turns that ended with a fixed text, without a model."),
    (
        "holdfast_runner_skills_recommended_total",
        "Turns in which skills were looked for, by how they were chosen.",
    ),
    (
        "holdfast_runner_subagents_announced_total",
        "Ends of subagents that were announced to their requesters.",
    ),
    ("holdfast_runner_summaries_total", "Summaries that were made in the background, by outcome."),
    (
        "holdfast_runner_swept_total",
        "Sessions and messages that upkeep took care of, by what was done.",
    ),
    (
        "holdfast_runner_transcriptions_total",
        "Recordings of messages that were transcribed, by outcome.",
    ),
    ("holdfast_runner_turns_total", "Turns that ended, by outcome."),
    (
        "holdfast_runner_unsigned_jobs_total",
        "Messages and events of schedulers that no signed job says: they have nobody's rights.",
    ),
    (
        "holdfast_runner_webhook_posts_total",
        "Events that were posted to webhooks of tenants, by outcome.",
    ),
    ("holdfast_scheduler_ended_total", "Firings that ended, by outcome."),
    ("holdfast_scheduler_firings_total", "Firings that were claimed, by kind of job and outcome."),
    ("holdfast_scheduler_heartbeats_total", "Heartbeats, by status."),
    (
        "holdfast_secrets_operations_total",
        "Secrets that services sealed or opened, by service, operation, kind of secret and outcome.",
    ),
    ("holdfast_session_dead_letters_total", "Messages that were given up."),
    (
        "holdfast_session_fenced_writes_total",
        "Writes of the session store that were refused because of an outdated claim.",
    ),
];

pub const GAUGES: &[(&str, &str)] = &[
    ("holdfast_build_info", "1, with the version and the commit of the program."),
    ("holdfast_database_connections_in_use", "Connections to Postgres that are in use, by pool."),
    ("holdfast_database_connections_limit", "Most connections to Postgres, by pool."),
    ("holdfast_gateway_nodes", "Nodes that are connected to this gateway."),
    ("holdfast_gateway_open_calls", "Calls that are open."),
    ("holdfast_gateway_websocket_connections", "WebSocket connections that are open."),
    ("holdfast_operator_leads", "1 while this operator leads, and 0 otherwise."),
    ("holdfast_runner_background_commands", "Commands that run in the background."),
    (
        "holdfast_runner_deliveries",
        "Replies that are not sent, by state. One runner reports the whole installation, and the others 0.",
    ),
    (
        "holdfast_runner_event_log_lag_seconds",
        "Age of the oldest event that is not in the log. One runner reports the whole installation, and the others 0.",
    ),
    (
        "holdfast_runner_oldest_wait_seconds",
        "Time that the oldest ready session waits. One runner reports the whole installation, and the others 0.",
    ),
    (
        "holdfast_runner_pool_runners",
        "Live runners of each pool that has tenants. One runner reports all pools, and the others none.",
    ),
    (
        "holdfast_runner_pool_waiting_sessions",
        "Sessions that are ready and wait for a runner of their pool. One runner reports all pools, and the others none.",
    ),
    ("holdfast_runner_running_sessions", "Sessions that this runner has."),
    (
        "holdfast_runner_self_improvements_ended_total",
        "Runs of agents that look after themselves that ended at their tokens of the day.",
    ),
    (
        "holdfast_runner_self_improvements_total",
        "Runs of agents that look after themselves that were begun.",
    ),
    (
        "holdfast_runner_sessions_with_state",
        "Sessions whose background commands, browser windows or MCP servers this runner holds.",
    ),
    (
        "holdfast_runner_waiting_sessions",
        "Sessions that are ready and wait for a runner of the default pool. One runner reports the whole installation, and the others 0.",
    ),
    (
        "holdfast_runner_webhook_dead_letters",
        "Events that webhooks did not accept and that were given up. One runner reports the whole installation, and the others 0.",
    ),
    (
        "holdfast_runner_webhook_held_events",
        "Events that wait for another attempt of a webhook. One runner reports the whole installation, and the others 0.",
    ),
    ("holdfast_scheduler_out", "Firings that were delivered and have not ended."),
];

/// All in seconds.
pub const HISTOGRAMS: &[(&str, &str)] = &[
    (
        "holdfast_database_wait_duration_seconds",
        "Time until a connection to Postgres was lent, by pool.",
    ),
    ("holdfast_gateway_ingest_duration_seconds", "Time to accept a batch of messages."),
    (
        "holdfast_gateway_request_duration_seconds",
        "Time until the response of a request began, by interface and method; of a unary call, the whole call.",
    ),
    (
        "holdfast_model_request_duration_seconds",
        "Time of a request to a model provider, by provider and outcome.",
    ),
    (
        "holdfast_runner_model_duration_seconds",
        "Time that a turn waits for a model, with retries and fallbacks.",
    ),
    ("holdfast_runner_overhead_duration_seconds", "Time of a turn without models and tools."),
    (
        "holdfast_runner_recall_duration_seconds",
        "Time of a search for memories before a turn, by outcome.",
    ),
    ("holdfast_runner_tool_duration_seconds", "Time of a tool call, by tool and outcome."),
    ("holdfast_runner_turn_duration_seconds", "Time of a turn."),
    (
        "holdfast_scheduler_delivery_duration_seconds",
        "Time from the claim of firings to their delivery.",
    ),
    (
        "holdfast_scheduler_lateness_seconds",
        "Time from the slot of a firing to its claim, by kind of job.",
    ),
];

/// Describes all metrics to the recorder.
pub(super) fn describe() {
    for (name, meaning) in COUNTERS {
        describe_counter!(*name, *meaning);
    }
    for (name, meaning) in GAUGES {
        describe_gauge!(*name, *meaning);
    }
    for (name, meaning) in HISTOGRAMS {
        describe_histogram!(*name, metrics::Unit::Seconds, *meaning);
    }
}
