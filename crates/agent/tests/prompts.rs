//! Whole prompts, as files: each mode in each kind of session.
//!
//! The test fails if a prompt differs from its file. If the change is intended, write the
//! files again and review the diff:
//! `HOLDFAST_GOLDEN=write cargo nextest run -p holdfast-agent --test prompts`.

use std::{io, time::Duration};

use holdfast_agent::{
    PromptInput,
    bootstrap::{Audience, BootstrapFile, BootstrapName},
    build_on,
    prompt::{
        Channel, ModelAlias, Product, PromptMode, PromptSettings, REPLY_TAGS, Runtime, Sandbox,
        Skill, StablePart, TurnContext,
    },
    subagent::{SubagentOutcome, SubagentTask, stats_line, task_label, trigger_message},
};
use holdfast_types::{Body, Entry, Reactions, SessionKind, ToolSpec};
use serde_json::json;

const HOW: &str = "if it should read so, write it anew: HOLDFAST_GOLDEN=write cargo nextest run \
                   -p holdfast-agent --test prompts";

const TASK: SubagentTask<'_> = SubagentTask {
    task: Some("Find the cheapest\nflight to Rome."),
    label: Some("flight"),
    requester: Some("agent:coach:main"),
    session: "agent:coach:subagent:7f3a",
};

fn tools() -> Vec<ToolSpec> {
    [
        ("agents_list", "List your owner's agents."),
        ("exec", "Run a command.\n\nIt runs in the sandbox."),
        ("memory_get", "Read lines of a file of memory. Give the path."),
        ("memory_search", "Search what is remembered."),
        ("message", "Send a message."),
        ("read", "Read a file."),
        ("session_status", "Show how this conversation stands."),
        ("sessions_spawn", "Give a task to a subagent."),
        ("tool_describe", "Tell how a tool is called."),
        ("tool_search", "Find a tool."),
        ("weather", "Tell the weather."),
    ]
    .map(|(name, description)| ToolSpec {
        name: name.into(),
        description: description.into(),
        input: json!({ "type": "object" }),
    })
    .into()
}

fn files() -> Vec<BootstrapFile> {
    let content = |name| match name {
        BootstrapName::Soul => Some("Calm and curious.\n\n## Never\nNever flatter.\n"),
        BootstrapName::Identity => Some("Ada, an owl.\n"),
        BootstrapName::Role | BootstrapName::SelfFile | BootstrapName::User => None,
        BootstrapName::Agents => Some("Write down what matters.\n"),
        BootstrapName::Tools => Some("The printer is called Otto.\n"),
        BootstrapName::Heartbeat => Some("- Is there mail from the bank?\n"),
        BootstrapName::Memory => Some("Anna likes tea.\n"),
        BootstrapName::Bootstrap => Some("Ask what you are to be called.\n"),
    };
    BootstrapName::ALL
        .map(|name| BootstrapFile { name, content: content(name).map(str::to_owned) })
        .into()
}

fn prompt(mode: PromptMode, kind: SessionKind) -> String {
    let (tools, files) = (tools(), files());
    let audience = match kind {
        SessionKind::Dm | SessionKind::Group => Audience::Others,
        _ => Audience::Owner,
    };
    let setting = PromptSettings {
        mode,
        instructions: "Help Anna's family.",
        product: Product { docs: Some("https://docs.example"), ..Product::HOLDFAST },
        owner: Some("telegram:4711"),
        zone: "Europe/Berlin",
        tools: &tools,
        skills: &[
            Skill {
                name: "bake",
                description: "Bread and cakes.",
                location: "skills/bake/SKILL.md",
            },
            Skill { name: "sew", description: "Seams.", location: "skills/sew/SKILL.md" },
        ],
        files: &files,
        workspace: Some("/"),
        sandbox: Some(Sandbox { container: "bubblewrap", restrictions: "No network" }),
        speaks: true,
        aliases: &[ModelAlias { alias: "fast", model: "demo:demo" }],
        marks_reasoning: true,
        ..PromptSettings::of("coach", kind, audience)
    };
    let moment = TurnContext {
        skills: &["bake"],
        channel: Some(Channel {
            name: "telegram",
            actions: &["send", "delete", "react", "pin", "poll"],
            capabilities: &[REPLY_TAGS],
        }),
        reactions: Reactions::Minimal,
        runtime: Some(Runtime {
            host: "runner",
            os: "linux",
            arch: "x86_64",
            version: "0.1.0",
            model: "demo:demo",
            thinking: "medium",
            elevated: None,
        }),
        task: Some(TASK),
        ..TurnContext::at("Tuesday, 2026-12-01 14:05")
    };
    let journal = [Entry::Heard { seq: 1, body: Body::text("hello") }];
    let input = PromptInput { setting, moment, journal: &journal, context_limit: 100_000 };
    let chat = build_on(StablePart::of(&setting), input);
    format!("{}=== dynamic ===\n{}", chat.stable, chat.dynamic)
}

fn compare(file: &str, golden: &str, prompt: &str) -> io::Result<()> {
    if std::env::var_os("HOLDFAST_GOLDEN").is_some_and(|what| what == "write") {
        std::fs::write(format!("{}/tests/{file}", env!("CARGO_MANIFEST_DIR")), prompt)?;
        return Ok(());
    }
    let first = prompt.lines().zip(golden.lines()).position(|(is, was)| is != was);
    let line = first.unwrap_or_else(|| prompt.lines().count().min(golden.lines().count()));
    assert!(
        prompt == golden,
        "the prompt differs from tests/{file} from line {} on: {:?}, and not {:?}; {HOW}",
        line + 1,
        prompt.lines().nth(line),
        golden.lines().nth(line),
    );
    Ok(())
}

#[test]
fn what_its_requester_is_told_reads_as_its_file() -> io::Result<()> {
    let stats = stats_line(Duration::from_millis(61_250), Some(4_200));
    let label =
        task_label("Find the cheapest flight to Rome, by train if that is not much slower.");
    let reply = Some("Flight AZ 421, 89 euros.\n");
    let message = trigger_message(&label, SubagentOutcome::Timeout, reply, &stats);
    compare("golden/subagent-trigger.md", include_str!("golden/subagent-trigger.md"), &message)
}

macro_rules! golden {
    ($($name:ident: $mode:ident in $kind:ident is $file:literal,)*) => {$(
        #[test]
        fn $name() -> io::Result<()> {
            compare($file, include_str!($file), &prompt(PromptMode::$mode, SessionKind::$kind))
        }
    )*};
}

golden! {
    full_in_main_reads_as_its_file: Full in Main is "golden/full-main.md",
    full_in_dm_reads_as_its_file: Full in Dm is "golden/full-dm.md",
    full_in_group_reads_as_its_file: Full in Group is "golden/full-group.md",
    full_in_subagent_reads_as_its_file: Full in Subagent is "golden/full-subagent.md",
    full_in_heartbeat_reads_as_its_file: Full in Heartbeat is "golden/full-heartbeat.md",
    minimal_in_main_reads_as_its_file: Minimal in Main is "golden/minimal-main.md",
    minimal_in_dm_reads_as_its_file: Minimal in Dm is "golden/minimal-dm.md",
    minimal_in_group_reads_as_its_file: Minimal in Group is "golden/minimal-group.md",
    minimal_in_subagent_reads_as_its_file: Minimal in Subagent is "golden/minimal-subagent.md",
    minimal_in_heartbeat_reads_as_its_file: Minimal in Heartbeat is "golden/minimal-heartbeat.md",
    simple_in_main_reads_as_its_file: Simple in Main is "golden/simple-main.md",
    simple_in_group_reads_as_its_file: Simple in Group is "golden/simple-group.md",
    none_in_main_reads_as_its_file: None in Main is "golden/none-main.md",
    none_in_dm_reads_as_its_file: None in Dm is "golden/none-dm.md",
    none_in_group_reads_as_its_file: None in Group is "golden/none-group.md",
    none_in_subagent_reads_as_its_file: None in Subagent is "golden/none-subagent.md",
    none_in_heartbeat_reads_as_its_file: None in Heartbeat is "golden/none-heartbeat.md",
}
