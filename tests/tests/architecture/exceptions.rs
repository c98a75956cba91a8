//! What may break a rule of this folder, each with its reason.

/// Folders with more than 25 files.
pub const FULL_FOLDERS: &[(&str, &str)] = &[
    ("crates/directory/src/verbs", "one file for each kind of object of the API"),
    ("crates/llm/src", "one file for each API of a vendor, and what they share"),
    ("crates/types/src", "one small type per file"),
    ("services/gateway/src", "one file for each API that it serves, and what they share"),
];

/// Functions with more than 80 lines.
pub const LONG_FUNCTIONS: &[(&str, &str)] = &[
    ("cli/src/commands/agents.rs: apply", "one arm per subcommand"),
    ("cli/src/commands/files.rs: run", "one arm per subcommand"),
    ("cli/src/commands/tenants.rs: run", "one arm per subcommand"),
    ("cli/src/commands/knowledge/kb.rs: run", "one arm per subcommand"),
    ("cli/src/commands/knowledge/memory.rs: run", "one arm per subcommand"),
    ("cli/src/commands/schedules/cron.rs: run", "one arm per subcommand"),
    ("cli/src/commands/skills.rs: run", "one arm per subcommand"),
    ("crates/session/src/protocol/batch.rs: store", "mostly one SQL statement"),
    ("services/agent-runner/src/app.rs: connect", "composition root, read from top to bottom"),
    ("services/agent-runner/src/app.rs: run", "composition root, read from top to bottom"),
    ("services/gateway/src/app.rs: run", "composition root, read from top to bottom"),
    (
        "services/gateway/src/control/policies/explain.rs: explain_tools",
        "fills one response message",
    ),
];

/// Types with more than 40 methods.
pub const LARGE_TYPES: &[(&str, &str)] = &[
    ("cli: Client", "one method for each service of the gateway"),
    ("crates/schedule: Jobs", "one facade; its methods are in one file per topic"),
    ("crates/session: Sessions", "the verbs of the protocol, in one file per topic"),
    (
        "services/agent-runner: TurnState",
        "what one turn knows; its methods are in one file per topic",
    ),
    ("crates/workspace: Workspaces", "one facade; its methods are in one file per topic"),
];

/// Modules that use each other.
pub const CYCLES: &[(&str, &str)] = &[(
    "crates/llm: authorize bedrock carry failure_log google http identity model plain_history provider_text refusal reply_builder",
    "a request carries the log of its failures, whose texts are cleaned by what the request says; \
         credentials of clouds are fetched by the transport that asks for them",
)];

/// Public code that the product does not call: seams for tests, and code to wire or to delete.
pub const FOR_TESTS: &[(&str, &str)] = &[
    (
        "crates/directory/src/tenant/event.rs: TENANT_EVENT_KINDS",
        "the list of documented events is compared with it",
    ),
    ("crates/pg/src/migrate.rs: fingerprint", "names the prepared databases of tests"),
    ("crates/kit/src/telemetry.rs: init_with_exporter", "tests read the exported spans with it"),
    ("crates/llm/src/scripted_model.rs: ScriptedModel", "model for tests"),
    ("crates/llm/src/scripted_model.rs: with_delay", "model for tests"),
    (
        "services/agent-runner/src/app.rs: with_demo",
        "tests run the demonstration model without delay",
    ),
    ("services/agent-runner/src/app.rs: with_document_reader", "tests use a reader of their own"),
    ("services/memory/src/app.rs: with_document_reader", "tests use a reader of their own"),
];
