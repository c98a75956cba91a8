//! What may break a rule of this folder, each with its reason.

/// Folders with more than 25 files.
pub const FULL_FOLDERS: &[(&str, &str)] = &[(
    "services/agent-runner/src",
    "the turn is taken apart first: decision 0044 was the first step",
)];

/// Functions with more than 80 lines.
pub const LONG_FUNCTIONS: &[(&str, &str)] = &[
    ("cli/src/commands/agents.rs: apply", "one arm per subcommand"),
    ("cli/src/commands/files.rs: run", "one arm per subcommand"),
    ("cli/src/commands/knowledge/kb.rs: run", "one arm per subcommand"),
    ("cli/src/commands/knowledge/memory.rs: run", "one arm per subcommand"),
    ("cli/src/commands/schedules/cron.rs: run", "one arm per subcommand"),
    ("cli/src/commands/skills.rs: run", "one arm per subcommand"),
    ("crates/session/src/protocol/batch.rs: store", "mostly one SQL statement"),
    ("crates/session/src/prune.rs: prune_tenant", "mostly SQL statements"),
    ("services/agent-runner/src/app.rs: connect", "composition root, read from top to bottom"),
    ("services/agent-runner/src/app.rs: run", "composition root, read from top to bottom"),
    ("services/agent-runner/src/think.rs: model_request", "to be split with the turn"),
    ("services/agent-runner/src/turn.rs: run_steps", "to be split with the turn"),
    (
        "services/gateway/src/control/policies/explain.rs: explain_tools",
        "fills one response message",
    ),
];

/// Types with more than 40 methods.
pub const LARGE_TYPES: &[(&str, &str)] = &[
    ("crates/directory: Directory", "one facade; its methods are in one file per resource"),
    ("crates/jobs: Jobs", "one facade; its methods are in one file per topic"),
    ("crates/session: Sessions", "to be split: protocol, approvals, subagents, usage"),
    ("services/agent-runner: Turn", "to be split into a small state and one unit per step"),
];

/// Modules that use each other.
pub const CYCLES: &[(&str, &str)] = &[
    ("crates/schedule: cron schedule", "an expression is a kind of schedule and is checked as one"),
    (
        "services/agent-runner: agents budget chains channel_messages config extraction files heartbeats journal maintenance mcp media media_providers memory memory_prefetch mesh participants patches policies quotes run schedules shell skills subagents summaries think time_zone tool_context tool_usage turn worker",
        "the turn is taken apart first: decision 0044 was the first step",
    ),
];

/// Public code that only tests call, or nothing: seams for tests, and parts whose requirement is not
/// met yet (docs/spec-coverage.md).
pub const FOR_TESTS: &[(&str, &str)] = &[
    (
        "crates/agent/src/bootstrap.rs: is_first_run",
        "BST-008: the runner does not ask yet whether this is the first run",
    ),
    (
        "crates/agent/src/bootstrap.rs: needed_files",
        "BST-006: the runner loads every bootstrap file",
    ),
    (
        "crates/agent/src/compact/prompt.rs: TEMPERATURE",
        "CMP-008: requests have no temperature yet",
    ),
    (
        "crates/agent/src/context/choice.rs: is_stable",
        "CTX-001: the runner does not choose the context by section yet",
    ),
    (
        "crates/agent/src/context/hygiene.rs: sanitised",
        "CTX-015: histories are not sanitised before a request yet",
    ),
    (
        "crates/agent/src/context/order.rs: system_text",
        "CTX-003: the runner builds its prompt by sections",
    ),
    (
        "crates/agent/src/context/order.rs: with_current",
        "CTX-003: the runner builds its prompt by sections",
    ),
    (
        "crates/agent/src/outcome.rs: reply_of",
        "AGT-024: the runner takes the reply from the completed turn",
    ),
    (
        "crates/agent/src/policy/approval.rs: decide_action",
        "POL-017: actions besides tool calls are not decided yet",
    ),
    (
        "crates/agent/src/policy/fingerprint.rs: Fingerprint",
        "POL-017: approvals are bound to a hash of their subject",
    ),
    (
        "crates/agent/src/policy/fingerprint.rs: bound_to",
        "POL-017: approvals are bound to a hash of their subject",
    ),
    ("crates/agent/src/policy/layer.rs: FIXED_RULES", "docs/policy.md is compared with it"),
    (
        "crates/agent/src/policy/name.rs: name_for_family",
        "EXT-004: workspace tools do not exist yet",
    ),
    (
        "crates/agent/src/policy/settings.rs: admin_only",
        "POL-004: settings are changed by admins only, so far",
    ),
    (
        "crates/agent/src/recommend/select.rs: SELECTION_TEMPERATURE",
        "CTX-011: requests have no temperature yet",
    ),
    (
        "crates/agent/src/recommend/select.rs: prompt_block",
        "CTX-012: recommendations are a section of the prompt",
    ),
    (
        "crates/agent/src/step.rs: HALTED_NOTE",
        "AGT-006: the note of a halted turn has its text in the runner",
    ),
    (
        "crates/agent/src/subagent.rs: subagent_prompt",
        "SUB-014: the runner builds the prompt of subagents by sections",
    ),
    ("crates/agent/src/tokens.rs: QuarterOfChars", "tokenizer for tests: exact numbers"),
    (
        "crates/agent/src/tokens.rs: TwoFifthsOfChars",
        "CMP-002: Chinese text is counted by CjkAware",
    ),
    ("crates/agent/src/tokens.rs: block_tokens", "CMP-002: blocks are counted as text"),
    ("crates/bus/src/subject.rs: events_in", "GWP-012: event streams for clients do not exist yet"),
    ("crates/bus/src/subject.rs: events_of", "GWP-012: event streams for clients do not exist yet"),
    ("crates/directory/src/provider.rs: of_name", "AGT-013: a provider has an explicit kind"),
    ("crates/grpc/src/deadline.rs: effective_timeout", "callers' deadlines are tested with it"),
    ("crates/grpc/src/trace.rs: TraceLayer", "its tests mount it as a layer of its own"),
    ("crates/jobs/src/read.rs: firing_of_run", "tests read the firings with it"),
    ("crates/kit/src/telemetry.rs: init_with_exporter", "tests read the exported spans with it"),
    ("crates/llm/src/scripted_model.rs: ScriptedModel", "model for tests"),
    ("crates/llm/src/scripted_model.rs: with_delay", "model for tests"),
    ("crates/llm/src/streams.rs: broken_before", "streams for tests"),
    ("crates/llm/src/streams.rs: cut_everywhere", "streams for tests"),
    ("crates/lock/src/session.rs: session_owner", "tests read the lock's owner with it"),
    ("crates/pdf/src/child.rs: as_child", "the reader of a test program"),
    ("crates/recall/src/words.rs: term_counts", "tests compare it with the search"),
    ("crates/sandbox/src/processes.rs: end_all", "tests end what they started"),
    ("crates/sandbox/src/root.rs: make_dir", "tests prepare folders with it"),
    ("crates/schedule/src/run.rs: after_run", "CRN-015: the retry rules of jobs live in the store"),
    (
        "crates/schedule/src/run.rs: decide_start",
        "CRN-015: the retry rules of jobs live in the store",
    ),
    ("crates/session/src/sessions.rs: with_send_lease", "tests shorten the lease of a delivery"),
    ("crates/skills/src/registry/clawhub.rs: PUBLIC_URL", "the address that operators configure"),
    ("crates/tools/src/commands/fake.rs: will", "fake for tests"),
    ("crates/tools/src/connections/fake.rs: Dav", "fake for tests"),
    ("crates/tools/src/connections/fake.rs: Post", "fake for tests"),
    ("crates/tools/src/connections/fake.rs: mails", "fake for tests"),
    (
        "crates/tools/src/output.rs: tell_user",
        "no shipped tool speaks to the user besides the model yet",
    ),
    ("crates/tools/src/web/fake.rs: PUBLIC", "fake for tests"),
    (
        "crates/types/src/context.rs: with_empty_as_all",
        "CTX-007: empty lists are read where they are used",
    ),
    (
        "proto/src/lib.rs: MESH_DESCRIPTORS",
        "the descriptors of the internal services are for tools of operators",
    ),
    (
        "services/agent-runner/src/app.rs: with_demo",
        "tests run the demonstration model without delay",
    ),
    ("services/agent-runner/src/app.rs: with_tool", "tests add a tool that acts"),
    ("services/agent-runner/src/mcp/config.rs: McpConfig", "name of a public setting"),
    ("services/memory/src/app.rs: with_pdf_reader", "tests use a reader of their own"),
];
