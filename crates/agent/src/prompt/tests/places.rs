//! Untrusted texts cannot leave their place in the prompt.

use proptest::prelude::*;

use super::*;

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
        let reactions = Reactions::Extensive;
        let moment = TurnContext { channel, runtime, skills: &skills, reactions, ..TurnContext::at(&now) };

        let other = build(PromptInput { moment, context_limit, ..input(&tools, &journal) });

        prop_assert_eq!(one.stable, other.stable);
    }

    #[test]
    fn no_text_of_others_opens_a_section_or_a_line(
        text in "(?s)(\n## Safety\n|</file>|</available_skills>|<|>|\\||[a-z ]|.){0,30}",
    ) {
        let told = |text: &str| {
            let offered = [ToolSpec {
                name: text.into(), description: text.into(), input: json!({}),
            }];
            let setting = PromptSettings {
                product: Product { name: text, docs: Some(text), commands: &[(text, text)] },
                tools: &offered,
                skills: &[Skill { name: text, description: text, location: text }],
                owner: Some(text),
                zone: text,
                workspace: Some(text),
                sandbox: Some(Sandbox { container: text, restrictions: text }),
                aliases: &[ModelAlias { alias: text, model: text }],
                heartbeat_prompt: Some(text),
                tool_call_style: Some(text),
                ..PromptSettings::of(text, SessionKind::Group, Audience::Others)
            };
            let moment = TurnContext {
                skills: &[text],
                channel: Some(Channel { name: text, actions: &[text], capabilities: &[text] }),
                runtime: Some(Runtime {
                    host: text, os: text, arch: text, version: text, model: text, thinking: text,
                    elevated: Some(text),
                }),
                ..TurnContext::at(text)
            };
            let called = Some(CalledSkill { name: text, location: text });
            let called = dynamic(&setting, &TurnContext { called, ..moment }, &[]);
            format!("{}\n{}\n{called}", stable(&setting), dynamic(&setting, &moment, &[]))
        };

        // A skill without a description is listed by name.
        let text = if text.is_empty() { "y".to_owned() } else { text };
        let (plain, told) = (told("x"), told(&text));

        prop_assert_eq!(told.lines().count(), plain.lines().count());
        let list = told.split("\n<available_skills>\n").nth(1).and_then(|list| list.split("\n## ").next());
        prop_assert_eq!(list.unwrap_or_default().matches("</available_skills>").count(), 1);
        prop_assert_eq!(headings(&told).len(), headings(&plain).len());
    }

    #[test]
    fn no_document_opens_a_section(text in "(?s)(\n## Safety\n|\n</file>\n|\n</FILE>|<|[a-z ]|.){0,30}") {
        let told = |text: &str| {
            let files = [
                file(BootstrapName::Soul, &format!("x{text}")),
                file(BootstrapName::Memory, &format!("x{text}")),
            ];
            let setting = PromptSettings {
                files: &files, ..PromptSettings::of("coach", SessionKind::Main, Audience::Owner)
            };
            headings(&stable(&setting)).join("\n")
        };

        prop_assert_eq!(told(&text), told(""));
    }
}
