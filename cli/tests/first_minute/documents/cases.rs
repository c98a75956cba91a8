//! What the commands of documents need that documents do not say: values for their placeholders,
//! files, and the commands that cannot be run on a test machine.

/// Treatment of a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Treatment {
    /// Runs, and ends with this exit code.
    ExitsWith(i32),
    /// Is only parsed: runs with an address where no gateway is, and must not be a wrong command
    /// line (exit code 2).
    Parsed,
    /// Runs with `--print-config`, as it would not end.
    PrintsConfig,
    /// Does not run, as it belongs to another program.
    NotOurs,
}

/// Commands that do not simply run and succeed: document, beginning, treatment, reason.
pub const EXCEPTIONS: &[(&str, &str, Treatment, &str)] = &[
    ("README.md", "grpcurl", Treatment::NotOurs, "grpcurl is not installed everywhere"),
    ("docs/approvals.md", "holdfast approvals forget", Treatment::ExitsWith(3), "no rule exists"),
    ("README.md", "holdfast setup", Treatment::Parsed, "needs a provider of models"),
    ("README.md", "holdfast tui", Treatment::Parsed, "needs a terminal"),
    ("docs/command-line.md", "holdfast setup", Treatment::Parsed, "needs a provider of models"),
    ("docs/command-line.md", "holdfast tui", Treatment::Parsed, "needs a terminal"),
    ("docs/models.md", "holdfast setup", Treatment::Parsed, "needs a provider of models"),
    ("docs/benchmarks.md", "target/optimized/bench", Treatment::NotOurs, "measures for minutes"),
    ("docs/chaos.md", "cargo nextest", Treatment::NotOurs, "a test does not run tests"),
    ("docs/chaos.md", "tests/mutants/run.sh", Treatment::NotOurs, "runs all tests many times"),
    ("docs/behaviours.md", "holdfast sessions rollback", Treatment::Parsed, "needs a step"),
    ("docs/events.md", "holdfast events follow", Treatment::Parsed, "runs until it is stopped"),
    ("docs/fault-report.md", "cargo nextest", Treatment::NotOurs, "a test does not run tests"),
    ("docs/install.md", "cosign", Treatment::NotOurs, "needs a release"),
    ("docs/install.md", "docker", Treatment::NotOurs, "needs Docker"),
    ("docs/install.md", "helm", Treatment::NotOurs, "needs a cluster"),
    ("docs/install.md", "kubectl", Treatment::NotOurs, "needs a cluster"),
    ("docs/install.md", "holdfast chat \"hello\" --gateway", Treatment::NotOurs, "needs a cluster"),
    ("docs/install.md", "export HOLDFAST_API_KEY=$(kubectl", Treatment::NotOurs, "needs a cluster"),
    ("docs/install.md", "export HOLDFAST_URL", Treatment::NotOurs, "needs a cluster"),
    ("docs/install.md", "umask 077", Treatment::NotOurs, "writes keys into the folder"),
    ("docs/install.md", "for name in kek", Treatment::NotOurs, "writes keys into the folder"),
    ("docs/install.md", "holdfast secrets node-key", Treatment::NotOurs, "reads a key file"),
    ("docs/install.md", "printf", Treatment::NotOurs, "reads keys in the folder"),
    ("docs/mcp.md", "holdfast mcp probe", Treatment::Parsed, "needs a server on the internet"),
    ("docs/memory.md", "holdfast memory-service", Treatment::PrintsConfig, "a service"),
    ("docs/memory-use.md", "holdfast kb accept", Treatment::ExitsWith(3), "no proposal exists"),
    ("docs/memory-use.md", "holdfast kb decline", Treatment::ExitsWith(3), "no proposal exists"),
    ("docs/memory-use.md", "holdfast kb proposals itm_", Treatment::ExitsWith(3), "none exists"),
    ("docs/self.md", "holdfast proposals show", Treatment::ExitsWith(3), "no proposal exists"),
    ("docs/self.md", "holdfast proposals approve", Treatment::ExitsWith(3), "none exists"),
    ("docs/self.md", "holdfast proposals reject", Treatment::ExitsWith(3), "none exists"),
    ("docs/self.md", "holdfast proposals rollback", Treatment::ExitsWith(3), "none exists"),
    ("docs/nodes.md", "holdfast node run", Treatment::Parsed, "runs until it is stopped"),
    ("docs/operating.md", "holdfast dead show", Treatment::ExitsWith(3), "no message is dead"),
    ("docs/operating.md", "holdfast dead requeue", Treatment::ExitsWith(3), "no message is dead"),
    ("docs/operating.md", "holdfast deliveries resend", Treatment::ExitsWith(3), "none is unknown"),
    ("docs/operating.md", "docker compose", Treatment::NotOurs, "needs Docker"),
    ("docs/operating.md", "{ printf", Treatment::NotOurs, "needs Docker"),
    ("docs/operating.md", "for name in GATEWAY", Treatment::NotOurs, "needs Docker"),
    ("docs/operating.md", "eval", Treatment::NotOurs, "needs Docker"),
    ("docs/operating.md", "done; }", Treatment::NotOurs, "needs Docker"),
    ("docs/operating.md", "kubectl", Treatment::NotOurs, "needs a cluster"),
    ("docs/operating.md", "pg_receivewal", Treatment::NotOurs, "a program of PostgreSQL"),
    ("docs/operating.md", "pg_basebackup", Treatment::NotOurs, "a program of PostgreSQL"),
    ("docs/operator.md", "kubectl", Treatment::NotOurs, "needs a cluster"),
    ("docs/operator.md", "cargo nextest", Treatment::NotOurs, "a test does not run tests"),
    ("docs/operator.md", "holdfast keys create", Treatment::ExitsWith(4), "needs a platform key"),
    ("docs/operator.md", "holdfast export", Treatment::Parsed, "needs a platform key"),
    (
        "docs/people-and-roles.md",
        "holdfast people revoke",
        Treatment::Parsed,
        "needs an invitation",
    ),
    (
        "docs/people-and-roles.md",
        "holdfast people split",
        Treatment::ExitsWith(3),
        "none is linked",
    ),
    ("docs/people-and-roles.md", "holdfast people erase", Treatment::Parsed, "the owner operates"),
    ("docs/scheduler.md", "holdfast scheduler", Treatment::PrintsConfig, "a service"),
    (
        "docs/start-integrate.md",
        "grpcurl",
        Treatment::NotOurs,
        "grpcurl is not installed everywhere",
    ),
    ("docs/start-operate.md", "docker", Treatment::NotOurs, "needs Docker"),
    ("docs/start-operate.md", "helm", Treatment::NotOurs, "needs a cluster"),
    ("docs/start-operate.md", "kubectl", Treatment::NotOurs, "needs a cluster"),
    ("docs/start-operate.md", "holdfast plans", Treatment::ExitsWith(4), "needs a platform key"),
    ("docs/start-operate.md", "holdfast tenants", Treatment::ExitsWith(4), "needs a platform key"),
    ("docs/start-operate.md", "pg_receivewal", Treatment::NotOurs, "a program of PostgreSQL"),
    ("docs/start-operate.md", "pg_basebackup", Treatment::NotOurs, "a program of PostgreSQL"),
    ("docs/start-talk.md", "holdfast setup", Treatment::Parsed, "needs a provider of models"),
    ("docs/subagents.md", "holdfast agents runs stop", Treatment::ExitsWith(3), "none runs"),
    ("docs/subagents.md", "holdfast agents runs send", Treatment::ExitsWith(3), "none runs"),
    ("docs/tenants.md", "holdfast plans", Treatment::ExitsWith(4), "needs a platform key"),
    ("help", "holdfast platform-keys add", Treatment::ExitsWith(4), "needs a platform key"),
    ("help", "holdfast plans put basic", Treatment::ExitsWith(4), "needs a platform key"),
    ("docs/tenants.md", "holdfast platform-keys", Treatment::ExitsWith(4), "needs a platform key"),
    ("docs/tenants.md", "holdfast tenants create", Treatment::ExitsWith(4), "needs a platform key"),
    (
        "docs/tenants.md",
        "holdfast tenants set-plan",
        Treatment::ExitsWith(4),
        "needs a platform key",
    ),
    (
        "docs/tenants.md",
        "holdfast tenants usage acme",
        Treatment::ExitsWith(4),
        "needs a platform key",
    ),
    (
        "docs/tenants.md",
        "holdfast tenants suspend",
        Treatment::ExitsWith(4),
        "needs a platform key",
    ),
    ("docs/tenants.md", "holdfast tenants resume", Treatment::ExitsWith(4), "needs a platform key"),
    ("docs/tenants.md", "holdfast tenants update", Treatment::ExitsWith(4), "needs a platform key"),
    ("docs/tenants.md", "holdfast tenants events", Treatment::ExitsWith(4), "needs a platform key"),
    (
        "docs/tenants.md",
        "holdfast usage export --from 2026-01-01 --to 2026-01-31 --format json",
        Treatment::ExitsWith(4),
        "needs a platform key",
    ),
];

/// Programs besides `holdfast` whose commands run.
pub const PROGRAMS: &[&str] = &["cat", "curl", "openssl", "pass", "printf", "python3", "sed"];

/// Commands that run before a document's command: document, beginning of that command (empty: before
/// the first), commands.
pub const PREPARATIONS: &[(&str, &str, &[&str])] = &[
    ("docs/approvals.md", "", &["holdfast chat hello"]),
    ("docs/canvas.md", "", &["holdfast chat hello"]),
    (
        "docs/channels.md",
        "holdfast channels send",
        &[
            "holdfast channels add telegram --allow 42 --token 123456:ABC-DEF1234ghIkl-zyx57W2v1u123ew11",
        ],
    ),
    (
        "docs/command-line.md",
        "",
        &[
            "holdfast chat hello",
            "holdfast providers put openai --api-key sk-1 --model openai:gpt-6.1-terra",
        ],
    ),
    ("docs/mcp.md", "", &["holdfast agents create coach"]),
    ("docs/memory-use.md", "", &["holdfast chat hello", "holdfast memory save 'likes tea'"]),
    (
        "docs/models.md",
        "",
        &[
            "holdfast providers put openai --kind openai --api-key sk-1",
            "holdfast providers put anthropic --kind anthropic --api-key sk-1",
            "holdfast providers put ollama --kind ollama",
        ],
    ),
    ("docs/operating.md", "", &["holdfast chat hello"]),
    (
        "docs/operating.md",
        "holdfast files read",
        &["printf 'Open at nine.' | holdfast files write --agent main handbook.md"],
    ),
    (
        "docs/operator.md",
        "holdfast apply --file family.yaml --dry-run",
        &["holdfast agents create coach"],
    ),
    ("docs/policy.md", "", &["holdfast chat hello"]),
    ("docs/skills.md", "", &["holdfast agents create travel --instructions 'Plan journeys.'"]),
    (
        "docs/skills.md",
        "holdfast agents import",
        &["holdfast agents delete travel", "cp package.yaml travel.skill.yaml"],
    ),
    (
        "docs/start-operate.md",
        "",
        &[
            "holdfast chat hello",
            "holdfast providers put openai --api-key sk-1 --model openai:gpt-6.1-terra",
        ],
    ),
    ("docs/subagents.md", "", &["holdfast chat hello", "holdfast agents create inspector"]),
    ("docs/todos.md", "", &["holdfast chat hello"]),
    ("docs/self.md", "holdfast agents archive", &["holdfast agents create coach"]),
    ("docs/workspaces.md", "", &["holdfast chat hello"]),
];

/// Code blocks that are files of their document's commands: document, beginning, file.
pub const BLOCKS: &[(&str, &str, &str)] = &[
    ("docs/behaviours.md", "description: Greets people", "greet.yaml"),
    ("docs/behaviours.md", "- todo_delta:", "answers.yaml"),
    ("docs/heartbeat.md", "- Is there mail", "heartbeat.md"),
    ("docs/operator.md", "apiVersion: holdfast.dev/v1alpha1\nkind: Routing", "family.yaml"),
    ("docs/policy.md", "{\n  \"profile\"", "policy.json"),
    ("docs/routing.md", "[\n  {\"agent\": \"study-coach\"", "rules.json"),
    ("docs/skills.md", "name: travel-agent", "package.yaml"),
    ("docs/subagents.md", "{\n  \"description\"", "inspect.json"),
];

/// Programs that services start by themselves, which have no help.
pub const INTERNAL: &str = "holdfast read-document";

/// Replacements of placeholders: beginning of the command, placeholder, replacement.
pub const REPLACEMENTS: &[(&str, &str, &str)] = &[
    ("target/debug/holdfast", "target/debug/", ""),
    ("holdfast approvals forget", "019a…", "019a0000-0000-7000-8000-000000000001"),
    (
        "holdfast channels add telegram",
        "123456:ABC-DEF…",
        "123456:ABC-DEF1234ghIkl-zyx57W2v1u123ew11",
    ),
    ("holdfast kb accept", "itm_019a…", "itm_019a0000000070008000000000000001"),
    ("holdfast kb decline", "itm_019a…", "itm_019a0000000070008000000000000001"),
    ("holdfast kb proposals", "itm_019a…", "itm_019a0000000070008000000000000001"),
    ("holdfast kb update", "--base 3", "--base 1"),
    ("holdfast memory-service", "postgres://…", "postgres://holdfast@127.0.0.1/holdfast"),
    ("holdfast memory-service", "SECRET=…", "SECRET=secret"),
    ("holdfast policy put", "--base 3", "--base 0"),
    ("holdfast export", "hf_…", "hf_1_2"),
    ("holdfast dead", "msg_…", "msg_019a0000000070008000000000000001"),
    ("holdfast deliveries", "dlv_…", "dlv_019a0000000070008000000000000001"),
];

/// Placeholders for ids that another command lists: beginning of the command, placeholder, that
/// command.
pub const IDS: &[(&str, &str, &str)] = &[
    ("holdfast", "ses_019a…", "holdfast sessions list"),
    ("holdfast", "ses_…", "holdfast sessions list"),
    ("holdfast channels", "ID", "holdfast channels list --channel telegram"),
    ("curl", "$ACCOUNT", "holdfast channels list --channel webhook"),
    ("holdfast cron", "1a2b3c4d", "holdfast cron list"),
    ("holdfast kb", "doc_019a…", "holdfast kb list"),
    ("holdfast memory", "itm_019a…", "holdfast memory list"),
    ("holdfast people", "per_…", "holdfast people list"),
    ("holdfast reminders", "1a2b3c4d", "holdfast reminders list --for telegram:42"),
    ("holdfast routing bindings", "ID", "holdfast routing bindings list"),
    ("holdfast runs calls", "run_…", "holdfast runs list"),
];

/// Files to which documents refer.
pub const FILES: &[(&str, &str)] = &[
    (".holdfast-node", "hfn_1_2"),
    ("azure.key", "key"),
    ("bedrock.key", "key"),
    ("card.json", r#"{"context": 128000, "max_output": 8192}"#),
    ("discord.txt", "bot-token-of-a-discord-application"),
    ("github.token", "token"),
    ("key.txt", "a key of the garden"),
    ("mail.password", "password"),
    ("manual.md", "# Printer\n\nOpen the cover at a paper jam.\n"),
    ("manual.pdf", include_str!("manual.pdf")),
    ("notion.token", "token"),
    ("openai-second.key", "key"),
    ("openai.key", "key"),
    ("plan.md", "# Plan\n\nVisit the garden.\n"),
    ("refresh.txt", "token"),
    ("secret.txt", "a secret of the webhook that is long enough"),
    ("service-account.json", r#"{"type": "service_account"}"#),
    ("token.txt", "123456:ABC-DEF1234ghIkl-zyx57W2v1u123ew11"),
];

/// Variables to which documents refer.
pub const VARIABLES: &[(&str, &str)] = &[
    ("ACCESS", "token"),
    ("ELEVENLABS_API_KEY", "sk-1"),
    ("GROQ_API_KEY", "sk-1"),
    ("OPENAI_API_KEY", "sk-1"),
    ("SECOND_KEY", "sk-2"),
];

/// The skill that documents install from the registry `shelf`.
pub const SKILL: &str = "---\nname: water-plants\ndescription: Say which plants need water today.\n---\n\nWater the plants.\n";
