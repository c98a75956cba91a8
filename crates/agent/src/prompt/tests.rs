//! When each section is there, and what never gets out of its place.

use holdfast_types::{Body, ChatMessage, Entry, SessionKind, ToolSpec};
use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::{
    bootstrap::{Audience, BootstrapFile, BootstrapName},
    subagent::SubagentTask,
    turn::tests::{heard, thought},
};

const NOW: &str = "Tuesday, 2026-12-01 14:05";

fn tool(name: &str) -> ToolSpec {
    ToolSpec {
        name: name.into(),
        description: format!("Do {name}. Use it when asked."),
        input: json!({ "type": "object" }),
    }
}

fn tools(names: &[&str]) -> Vec<ToolSpec> {
    names.iter().map(|name| tool(name)).collect()
}

fn file(name: BootstrapName, content: &str) -> BootstrapFile {
    BootstrapFile { name, content: Some(content.to_owned()) }
}

fn dm() -> Setting<'static> {
    Setting {
        instructions: "Teach.\n",
        zone: "Europe/Berlin",
        ..Setting::of("coach", SessionKind::Dm, Audience::Others)
    }
}

fn input<'a>(tools: &'a [ToolSpec], journal: &'a [Entry]) -> PromptInput<'a> {
    let setting = Setting { tools, ..dm() };
    PromptInput { setting, moment: Moment::at(NOW), journal, context_limit: CONTEXT_LIMIT }
}

/// The headings of a text that are not inside of a file.
fn headings(text: &str) -> Vec<&str> {
    let mut is_inside = false;
    let outside = |line: &&str| {
        is_inside = (is_inside || line.starts_with("<file")) && *line != "</file>";
        !is_inside && (line.starts_with("# ") || line.starts_with("## "))
    };
    text.lines().filter(outside).collect()
}

const TELEGRAM: Channel<'_> = Channel {
    name: "telegram",
    actions: &["send", "react", "poll"],
    capabilities: &[INLINE_BUTTONS, REPLY_TAGS],
};

const RUNTIME: Runtime<'_> = Runtime {
    host: "runner",
    os: "linux",
    arch: "x86_64",
    version: "0.1.0",
    model: "demo:demo",
    thinking: "medium",
};

#[test]
fn the_sections_have_the_order_of_the_numbered_list_in_each_part() {
    let tools = tools(&["gateway", "memory_search", "message"]);
    let files = [file(BootstrapName::Soul, "Be kind."), file(BootstrapName::Agents, "Work.")];
    let setting = Setting {
        tools: &tools,
        files: &files,
        skills: &[Skill { name: "s", description: "d", location: "skills/s/SKILL.md" }],
        owner: Some("u1"),
        product: Product { docs: Some("https://docs.example"), ..Product::HOLDFAST },
        sandbox: Some(Sandbox::default()),
        voice: Some("Short sentences."),
        aliases: &[ModelAlias { alias: "fast", model: "demo:demo" }],
        marks_reasoning: true,
        ..Setting::of("coach", SessionKind::Group, Audience::Others)
    };
    let moment = Moment {
        skills: &["s"],
        channel: Some(TELEGRAM),
        reactions: Some(Reactions::Minimal),
        runtime: Some(RUNTIME),
        ..Moment::at(NOW)
    };

    assert_eq!(
        headings(&stable(&setting)),
        [
            "## Safety",
            "## Tooling",
            "## Tool Call Style",
            "## Holdfast CLI Quick Reference",
            "## Skills (mandatory)",
            "## Memory Recall",
            "## User Identity",
            "## Current Date & Time",
            "## Workspace",
            "## Documentation",
            "## Sandbox",
            "## Workspace Files (injected)",
            "## Voice (TTS)",
            "## Holdfast Self-Update",
            "## Model Aliases",
            "# Project Context",
            "## SOUL.md",
            "## AGENTS.md",
            "## Silent Replies",
            "## Heartbeats",
            "## Reasoning Format",
        ]
    );
    assert_eq!(
        headings(&dynamic(&setting, &moment, &[])),
        [
            "## Skills for This Message",
            "## Now",
            "## Reply Tags",
            "## Messaging",
            "## Runtime",
            "## Reactions",
            "## Group Chat Context",
        ]
    );
}

#[test]
fn without_its_cause_no_section_is_there() {
    let setting = Setting {
        product: Product { commands: &[], ..Product::HOLDFAST },
        ..Setting::of("coach", SessionKind::Dm, Audience::Others)
    };

    assert_eq!(
        headings(&stable(&setting)),
        [
            "## Instructions",
            "## Safety",
            "## Tool Call Style",
            "## Current Date & Time",
            "## Workspace",
            "## Workspace Files (injected)",
            "## Silent Replies",
            "## Heartbeats",
        ]
    );
    assert_eq!(headings(&dynamic(&setting, &Moment::at(NOW), &[])), ["## Now", "## Messaging"]);
}

#[test]
fn a_subagent_is_not_told_what_is_not_for_it() {
    let tools = tools(&["gateway", "memory_search", "message", "read"]);
    let files = BootstrapName::ALL.map(|name| file(name, "text"));
    let setting = Setting {
        tools: &tools,
        files: &files,
        skills: &[Skill { name: "s", description: "d", location: "l" }],
        owner: Some("u1"),
        voice: Some("Short."),
        aliases: &[ModelAlias { alias: "fast", model: "demo:demo" }],
        ..Setting::of("coach", SessionKind::Subagent, Audience::Owner)
    };
    let moment = Moment {
        channel: Some(TELEGRAM),
        skills: &["s"],
        task: Some(SubagentTask { task: Some("Dig."), ..SubagentTask::default() }),
        ..Moment::at(NOW)
    };

    assert_eq!(
        headings(&stable(&setting)),
        [
            "## Safety",
            "## Tooling",
            "## Tool Call Style",
            "## Holdfast CLI Quick Reference",
            "## Current Date & Time",
            "## Workspace",
            "## Workspace Files (injected)",
            "# Project Context",
            "## AGENTS.md",
            "## TOOLS.md",
        ]
    );
    let dynamic = dynamic(&setting, &moment, &[]);
    assert_eq!(headings(&dynamic)[..3], ["## Now", "## Subagent Context", "# Subagent Context"]);
    assert!(dynamic.contains("- Your task: Dig.\n"));
}

#[test]
fn in_mode_none_only_the_line_that_says_what_it_is_and_what_a_program_told_it_remain() {
    let files = [file(BootstrapName::Agents, "Work.")];
    let setting = Setting { mode: PromptMode::None, files: &files, ..dm() };
    let body = Body { role: Some("system".into()), silent: true, ..Body::text("Rhyme.") };
    let journal = [Entry::Heard { seq: 1, body }];

    assert_eq!(
        stable(&setting),
        "You are a personal assistant running inside Holdfast. Your name is coach.\n"
    );
    assert_eq!(dynamic(&setting, &Moment::at(NOW), &[]), "");
    assert_eq!(
        dynamic(&setting, &Moment::at(NOW), &journal),
        "## Instructions for this conversation\nRhyme.\n"
    );
}

#[test]
fn the_model_is_told_who_it_is_what_to_do_and_where_it_is() {
    let tools = tools(&["session_status"]);
    let chat = build(input(&tools, &[heard(1, "hi")]));

    assert!(chat.stable.starts_with(
        "You are a personal assistant running inside Holdfast. Your name is coach.\n\n\
         ## Instructions\nTeach.\n\n## Safety\n"
    ));
    assert!(chat.stable.contains("You have:\n- **session_status**: Do session_status.\n\n"));
    assert!(chat.dynamic.starts_with(
        "## Now\nIt is Tuesday, 2026-12-01 14:05 (Europe/Berlin). This is a direct conversation \
         with one person.\n"
    ));
    assert_eq!(chat.messages, [ChatMessage::User { text: "hi".into() }]);
    assert_eq!(chat.tools, tools);
}

#[test]
fn a_long_conversation_loses_its_beginning_and_the_model_is_told() {
    let long = "x".repeat(40_000);
    let journal = [heard(1, &long), thought("ok", &[]), heard(2, "and?")];

    let chat = build(PromptInput { context_limit: 5_000, ..input(&[], &journal) });

    assert_eq!(chat.messages, [ChatMessage::User { text: "and?".into() }]);
    assert!(chat.dynamic.ends_with("is left out: it is too long.\n"));
    assert!(!chat.stable.contains("## Tooling"));
}

#[test]
fn a_programs_own_instructions_are_part_of_the_dynamic_part() {
    let body = Body { role: Some("system".into()), silent: true, ..Body::text("Rhyme.") };
    let journal = [Entry::Heard { seq: 1, body }, heard(2, "hi")];

    let chat = build(input(&[], &journal));

    assert!(chat.dynamic.ends_with("\n\n## Instructions for this conversation\nRhyme.\n"));
    assert_eq!(chat.messages.len(), 1);
}

#[test]
fn memory_is_never_in_a_group_s_prompt_even_if_someone_loaded_it() {
    let files = [file(BootstrapName::Memory, "the code is 4711")];
    let told = |kind, audience| {
        let setting = Setting { files: &files, ..Setting::of("coach", kind, audience) };
        stable(&setting).contains("4711")
    };

    assert!(told(SessionKind::Main, Audience::Owner));
    assert!(told(SessionKind::Dm, Audience::Owner));
    assert!(!told(SessionKind::Dm, Audience::Others));
    for kind in [SessionKind::Group, SessionKind::Topic, SessionKind::Global] {
        assert!(!told(kind, Audience::Owner), "{kind:?}");
    }
    let forgets = Setting {
        files: &files,
        has_memory: false,
        ..Setting::of("coach", SessionKind::Main, Audience::Owner)
    };
    assert!(!stable(&forgets).contains("4711"));
}

#[test]
fn a_missing_file_is_told_as_missing_and_an_empty_or_a_finished_one_is_not_told() {
    let files = [
        BootstrapFile { name: BootstrapName::Soul, content: None },
        file(BootstrapName::User, " \n"),
        file(BootstrapName::Agents, "Work.\n"),
        BootstrapFile { name: BootstrapName::Bootstrap, content: None },
    ];
    let setting =
        Setting { files: &files, ..Setting::of("coach", SessionKind::Main, Audience::Owner) };

    let stable = stable(&setting);

    let context = stable.split("# Project Context\n").nth(1).unwrap_or_default();
    assert!(context.starts_with(
        "\n## SOUL.md\n[MISSING]\n\n## AGENTS.md\n<file name=\"AGENTS.md\">\nWork.\n</file>\n\n\
         ## Silent Replies\n"
    ));
    assert!(stable.contains("## Workspace Files (injected)\nAGENTS.md: see Project Context.\n"));
}

#[test]
fn the_ritual_of_the_first_run_is_told_in_the_main_session_only() {
    let files = [file(BootstrapName::Bootstrap, "Ask for a name.")];
    let told = |kind| {
        let setting = Setting { files: &files, ..Setting::of("coach", kind, Audience::Owner) };
        let stable = stable(&setting);
        assert_eq!(stable.contains("This is your first run"), stable.contains("Ask for a name."));
        stable.contains("Ask for a name.")
    };

    assert!(told(SessionKind::Main));
    for kind in [SessionKind::Dm, SessionKind::Group, SessionKind::Heartbeat, SessionKind::Cron] {
        assert!(!told(kind), "{kind:?}");
    }
}

#[test]
fn a_name_in_a_file_is_the_agent_s_name_and_files_stand_in_for_instructions() {
    let files = [file(BootstrapName::Identity, "Ada"), file(BootstrapName::Soul, "Kind.")];
    let setting = Setting { files: &files, instructions: " ", ..dm() };

    let with_files = stable(&setting);
    assert!(
        with_files.starts_with("You are a personal assistant running inside Holdfast.\n\n## Sa")
    );
    let without = stable(&Setting { files: &[], ..setting });
    assert!(
        without.contains("Your name is coach.\n\n## Instructions\nBe helpful, honest and brief.")
    );
}

#[test]
fn known_tools_come_in_their_order_and_others_by_name() {
    let tools = tools(&["zebra", "message", "exec", "alpha", "read"]);

    let stable = stable(&Setting { tools: &tools, ..dm() });

    let listed = stable.lines().filter_map(|line| line.strip_prefix("- **")?.split('*').next());
    assert_eq!(listed.collect::<Vec<_>>(), ["read", "exec", "message", "alpha", "zebra"]);
}

#[test]
fn in_whatever_order_tools_and_skills_are_given_the_prompt_is_the_same() {
    let skill = |name| Skill { name, description: "d", location: "l" };
    let told = |tools: &[ToolSpec], skills: &[Skill<'_>]| {
        let setting = Setting { tools, skills, ..dm() };
        build(PromptInput { setting, ..input(tools, &[]) })
    };

    let one = told(&tools(&["b", "read", "a"]), &[skill("x"), skill("y")]);
    let other = told(&tools(&["read", "a", "b"]), &[skill("y"), skill("x")]);

    assert_eq!(one, other);
}

#[test]
fn a_sentence_about_a_tool_is_there_only_if_the_tool_is() {
    let sentences = [
        (&["tool_search", "tool_describe"][..], "There are more: `tool_search`"),
        (&["sessions_spawn"], "subagent with `sessions_spawn`"),
        (&["memory_search"], "use `memory_search`. If"),
        (&["memory_get"], "use `memory_get` for the lines"),
        (&["memory_search", "memory_get"], "use `memory_search`, then `memory_get`"),
        (&["gateway"], "Self-Update"),
    ];
    for (names, sentence) in sentences {
        let offered = tools(names);
        assert!(stable(&Setting { tools: &offered, ..dm() }).contains(sentence), "{sentence}");
        let fewer = tools(&names[1..]);
        assert!(!stable(&Setting { tools: &fewer, ..dm() }).contains(sentence), "{sentence}");
    }
    let moment = Moment { channel: Some(TELEGRAM), ..Moment::at(NOW) };
    for (name, sentence) in [
        ("message", "- For anything else use `message`; actions here: send, react, poll.\n"),
        ("message", "buttons="),
        ("sessions_send", "another session, use `sessions_send`"),
    ] {
        let tools = tools(&[name]);
        assert!(dynamic(&Setting { tools: &tools, ..dm() }, &moment, &[]).contains(sentence));
        assert!(!dynamic(&dm(), &moment, &[]).contains(sentence), "{sentence}");
    }
}

#[test]
fn the_channel_decides_about_buttons_and_reply_tags() {
    let tools = tools(&["message"]);
    let setting = Setting { tools: &tools, ..dm() };
    let told = |capabilities| {
        let channel = Some(Channel { capabilities, ..TELEGRAM });
        let text = dynamic(&setting, &Moment { channel, ..Moment::at(NOW) }, &[]);
        (text.contains("buttons="), text.contains("[[reply_to_current]]"))
    };

    assert_eq!(told(&[]), (false, false));
    assert_eq!(told(&[INLINE_BUTTONS]), (true, false));
    assert_eq!(told(&[REPLY_TAGS]), (false, true));
}

#[test]
fn the_runtime_line_has_its_parts_in_order_and_no_value_adds_one() {
    let setting = Setting { workspace: Some("/"), ..dm() };
    let line = |channel, host| {
        let runtime = Some(Runtime { host, ..RUNTIME });
        let text = dynamic(&setting, &Moment { channel, runtime, ..Moment::at(NOW) }, &[]);
        text.lines().find(|line| line.starts_with("Runtime: ")).unwrap_or_default().to_owned()
    };

    assert_eq!(
        line(Some(TELEGRAM), "runner"),
        "Runtime: agent=coach | host=runner | os=linux (x86_64) | version=0.1.0 | model=demo:demo \
         | repo=/ | channel=telegram | capabilities=inlineButtons,replyTags | thinking=medium"
    );
    assert_eq!(
        line(None, "r | thinking=off"),
        "Runtime: agent=coach | host=r / thinking=off | os=linux (x86_64) | version=0.1.0 \
         | model=demo:demo | repo=/ | thinking=medium"
    );
}

#[test]
fn a_white_label_names_itself_everywhere() {
    let tools = tools(&["gateway"]);
    let product = Product { name: "Acme", docs: Some("https://acme.example"), commands: &[] };

    let stable = stable(&Setting { product, tools: &tools, ..dm() });

    assert!(stable.starts_with("You are a personal assistant running inside Acme."));
    assert!(stable.contains("How Acme works and is set up: https://acme.example\n"));
    assert!(stable.contains("## Acme Self-Update\n"));
    assert!(!stable.contains("Holdfast"));
}

#[test]
fn a_sandbox_of_which_nothing_is_known_says_so() {
    let text = |sandbox| stable(&Setting { sandbox: Some(sandbox), ..dm() });

    assert!(
        text(Sandbox::default()).contains(
            "Container: unknown\nRestrictions: Limited file access\n\n## Workspace Files"
        )
    );
    let access = Some(WorkspaceAccess::ReadOnly);
    let known = Sandbox { container: Some("bwrap"), restrictions: Some("No network"), access };
    assert!(
        text(known)
            .contains("Container: bwrap\nRestrictions: No network\nWorkspace access: read only\n")
    );
}

#[test]
fn the_shortest_prompt_says_who_when_and_where() {
    let (stable, dynamic) = lite(&dm(), &Moment::at(NOW));

    assert_eq!(headings(&stable), ["## Instructions", "## Safety"]);
    assert_eq!(
        dynamic,
        "## Now\nIt is Tuesday, 2026-12-01 14:05 (Europe/Berlin). This is a direct conversation \
         with one person.\n"
    );
}

#[test]
fn a_kept_stable_part_is_as_good_as_a_new_one() {
    let tools = tools(&["read"]);
    let journal = [heard(1, "hi")];
    let input = input(&tools, &journal);

    assert_eq!(build_on(stable(&input.setting), input), build(input));
}

#[test]
fn what_is_always_there_is_small() {
    let tools = tools(&["agents_list", "message", "session_status"]);
    let setting = Setting { tools: &tools, ..dm() };
    let moment = Moment { channel: Some(TELEGRAM), runtime: Some(RUNTIME), ..Moment::at(NOW) };

    let bytes = stable(&setting).len() + dynamic(&setting, &moment, &[]).len();

    assert!(bytes < 4_096, "{bytes} bytes");
}

proptest! {
    #[test]
    fn no_moment_changes_the_stable_part(
        now in ".{0,40}", channel in ".{0,20}", model in ".{0,20}", said in ".{0,40}",
        context_limit in 0_usize..10_000, seq in 1_i64..100,
    ) {
        let tools = tools(&["message", "read"]);
        let (first, journal) = ([heard(1, "hi")], [heard(1, "hi"), heard(seq, &said)]);
        let one = build(input(&tools, &first));
        let channel = Some(Channel { name: &channel, ..TELEGRAM });
        let runtime = Some(Runtime { model: &model, ..RUNTIME });
        let skills = [said.as_str()];
        let reactions = Some(Reactions::Extensive);
        let moment = Moment { channel, runtime, skills: &skills, reactions, ..Moment::at(&now) };

        let other = build(PromptInput { moment, context_limit, ..input(&tools, &journal) });

        prop_assert_eq!(one.stable, other.stable);
    }

    #[test]
    fn no_text_of_others_opens_a_section_or_a_line(
        text in "(?s)(\n## Safety\n|</file>|<|>|\\||[a-z ]|.){0,30}",
    ) {
        let told = |text: &str| {
            let offered = [ToolSpec {
                name: text.into(), description: text.into(), input: json!({}),
            }];
            let setting = Setting {
                product: Product { name: text, docs: Some(text), commands: &[(text, text)] },
                tools: &offered,
                skills: &[Skill { name: text, description: text, location: text }],
                owner: Some(text),
                zone: text,
                workspace: Some(text),
                sandbox: Some(Sandbox {
                    container: Some(text), restrictions: Some(text), access: None,
                }),
                voice: Some(text),
                aliases: &[ModelAlias { alias: text, model: text }],
                heartbeat_prompt: Some(text),
                tool_call_style: Some(text),
                ..Setting::of(text, SessionKind::Group, Audience::Others)
            };
            let moment = Moment {
                skills: &[text],
                channel: Some(Channel { name: text, actions: &[text], capabilities: &[text] }),
                runtime: Some(Runtime {
                    host: text, os: text, arch: text, version: text, model: text, thinking: text,
                }),
                ..Moment::at(text)
            };
            format!("{}\n{}", stable(&setting), dynamic(&setting, &moment, &[]))
        };

        let (plain, told) = (told("x"), told(&text));

        prop_assert_eq!(told.lines().count(), plain.lines().count());
        prop_assert_eq!(told.matches("</available_skills>").count(), 1);
        prop_assert_eq!(headings(&told).len(), headings(&plain).len());
    }

    #[test]
    fn no_document_opens_a_section(text in "(?s)(\n## Safety\n|\n</file>\n|\n</FILE>|<|[a-z ]|.){0,30}") {
        let told = |text: &str| {
            let files = [
                file(BootstrapName::Soul, &format!("x{text}")),
                file(BootstrapName::Memory, &format!("x{text}")),
            ];
            let setting = Setting {
                files: &files, ..Setting::of("coach", SessionKind::Main, Audience::Owner)
            };
            headings(&stable(&setting)).join("\n")
        };

        prop_assert_eq!(told(&text), told(""));
    }
}
