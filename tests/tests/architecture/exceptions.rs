//! What may break a rule of this folder, each with its reason.

/// Folders with more than 25 files.
pub const FULL_FOLDERS: &[(&str, &str)] = &[];

/// Functions with more than 80 lines.
pub const LONG_FUNCTIONS: &[(&str, &str)] = &[
    ("cli/src/commands/agents.rs: apply", "one arm per subcommand"),
    ("cli/src/commands/files.rs: run", "one arm per subcommand"),
    ("cli/src/commands/knowledge/kb.rs: run", "one arm per subcommand"),
    ("cli/src/commands/knowledge/memory.rs: run", "one arm per subcommand"),
    ("cli/src/commands/schedules/cron.rs: run", "one arm per subcommand"),
    ("cli/src/commands/skills.rs: run", "one arm per subcommand"),
    ("crates/session/src/protocol/batch.rs: store", "mostly one SQL statement"),
    ("services/agent-runner/src/app.rs: connect", "composition root, read from top to bottom"),
    ("services/agent-runner/src/app.rs: run", "composition root, read from top to bottom"),
    (
        "services/gateway/src/control/policies/explain.rs: explain_tools",
        "fills one response message",
    ),
];

/// Types with more than 40 methods.
pub const LARGE_TYPES: &[(&str, &str)] =
    &[("crates/schedule: Jobs", "one facade; its methods are in one file per topic")];

/// Modules that use each other.
pub const CYCLES: &[(&str, &str)] = &[(
    "crates/schedule: cron schedule",
    "an expression is a kind of schedule and is checked as one",
)];

/// Public code that the product does not call: seams for tests, and code to wire or to delete
/// (docs/progress.md).
pub const FOR_TESTS: &[(&str, &str)] = &[
    ("crates/agent/src/bootstrap.rs: is_first_run", "only tests call it: wire it or delete it"),
    ("crates/agent/src/bootstrap.rs: needed_files", "only tests call it: wire it or delete it"),
    ("crates/agent/src/compact/prompt.rs: TEMPERATURE", "nothing calls it: wire it or delete it"),
    ("crates/agent/src/context/choice.rs: is_stable", "only tests call it: wire it or delete it"),
    ("crates/agent/src/context/hygiene.rs: sanitised", "only tests call it: wire it or delete it"),
    ("crates/agent/src/context/order.rs: system_text", "only tests call it: wire it or delete it"),
    ("crates/agent/src/context/order.rs: with_current", "only tests call it: wire it or delete it"),
    ("crates/agent/src/outcome.rs: reply_of", "only tests call it: wire it or delete it"),
    (
        "crates/agent/src/recommend/select.rs: SELECTION_TEMPERATURE",
        "nothing calls it: wire it or delete it",
    ),
    (
        "crates/agent/src/recommend/select.rs: prompt_block",
        "only tests call it: wire it or delete it",
    ),
    ("crates/agent/src/step.rs: HALTED_NOTE", "nothing calls it: wire it or delete it"),
    ("crates/agent/src/subagent.rs: subagent_prompt", "only tests call it: wire it or delete it"),
    ("crates/agent/src/tokens.rs: QuarterOfChars", "tokenizer for tests: exact numbers"),
    ("crates/agent/src/tokens.rs: TwoFifthsOfChars", "only tests call it: wire it or delete it"),
    ("crates/agent/src/tokens.rs: block_tokens", "only tests call it: wire it or delete it"),
    (
        "crates/schedule/src/store/read.rs: firing_of_run",
        "only tests call it: wire it or delete it",
    ),
    ("crates/kit/src/telemetry.rs: init_with_exporter", "tests read the exported spans with it"),
    ("crates/llm/src/scripted_model.rs: ScriptedModel", "model for tests"),
    ("crates/llm/src/scripted_model.rs: with_delay", "model for tests"),
    ("crates/schedule/src/run.rs: after_run", "only tests call it: wire it or delete it"),
    ("crates/schedule/src/run.rs: decide_start", "only tests call it: wire it or delete it"),
    ("crates/types/src/context.rs: with_empty_as_all", "only tests call it: wire it or delete it"),
    (
        "services/agent-runner/src/app.rs: with_demo",
        "tests run the demonstration model without delay",
    ),
    ("services/agent-runner/src/app.rs: with_tool", "tests add a tool that acts"),
    (
        "services/agent-runner/src/config/mcp.rs: McpConfig",
        "only tests call it: wire it or delete it",
    ),
    ("services/memory/src/app.rs: with_pdf_reader", "tests use a reader of their own"),
];
