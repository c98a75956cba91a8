//! Sections about tools, channels and the runtime.

use super::*;

#[test]
fn known_tools_come_in_their_order_and_others_by_name() {
    let tools = tools(&["zebra", "message", "exec", "alpha", "read"]);

    let stable = stable(&PromptSettings { tools: &tools, ..dm() });

    let listed = stable.lines().filter_map(|line| line.strip_prefix("- **")?.split('*').next());
    assert_eq!(listed.collect::<Vec<_>>(), ["read", "exec", "message", "alpha", "zebra"]);
}

#[test]
fn a_skill_of_which_nothing_is_said_is_named_alone_or_after_the_others() {
    let skill = |name, description| Skill { name, description, location: "l" };
    let told = |skills: &[Skill<'_>]| stable(&PromptSettings { skills, ..dm() });

    let named = told(&[skill("b", ""), skill("a<", "")]);
    let both = told(&[skill("b", ""), skill("a", "d")]);

    assert!(
        named.contains("\n## Skills\n") && named.contains("as it says: a&lt;, b.\n"),
        "{named}"
    );
    assert!(!named.contains("available_skills"), "{named}");
    let list = "- a: d (l)\n</available_skills>\nOthers, at skills/<name>/SKILL.md: b.\n";
    assert!(both.contains(list), "{both}");
}

#[test]
fn in_whatever_order_tools_and_skills_are_given_the_prompt_is_the_same() {
    let skill = |name| Skill { name, description: "d", location: "l" };
    let told = |tools: &[ToolSpec], skills: &[Skill<'_>]| {
        let setting = PromptSettings { tools, skills, ..dm() };
        build(PromptInput { setting, ..input(tools, &[]) })
    };

    let one = told(&tools(&["b", "read", "a"]), &[skill("x"), skill("y")]);
    let other = told(&tools(&["read", "a", "b"]), &[skill("y"), skill("x")]);

    assert_eq!(one, other);
}

#[test]
fn a_sentence_about_a_tool_is_there_only_if_the_tool_is() {
    let sentences = [
        (&["tool_search", "tool_describe"][..], "There are more; `tool_search`"),
        (&["sessions_spawn"], "subagent with `sessions_spawn`"),
        (&["memory_search"], "use `memory_search`. If"),
        (&["memory_get"], "use `memory_get` for the lines"),
        (&["memory_search", "memory_get"], "use `memory_search`, then `memory_get`"),
        (&["gateway"], "Self-Update"),
    ];
    for (names, sentence) in sentences {
        let offered = tools(names);
        assert!(
            stable(&PromptSettings { tools: &offered, ..dm() }).contains(sentence),
            "{sentence}"
        );
        let fewer = tools(&names[1..]);
        assert!(
            !stable(&PromptSettings { tools: &fewer, ..dm() }).contains(sentence),
            "{sentence}"
        );
    }
    let moment = TurnContext { channel: Some(TELEGRAM), ..TurnContext::at(NOW) };
    for (name, sentence) in [
        (
            "message",
            "- To write elsewhere, or before you are done, use `message`; actions here: send, react, poll.\n",
        ),
        ("sessions_send", "another session, use `sessions_send`"),
    ] {
        let tools = tools(&[name]);
        assert!(
            dynamic(&PromptSettings { tools: &tools, ..dm() }, &moment, &[]).contains(sentence)
        );
        assert!(!dynamic(&dm(), &moment, &[]).contains(sentence), "{sentence}");
    }
}

#[test]
fn the_channel_decides_about_reply_tags() {
    let told = |capabilities| {
        let channel = Some(Channel { capabilities, ..TELEGRAM });
        let text = dynamic(&dm(), &TurnContext { channel, ..TurnContext::at(NOW) }, &[]);
        text.contains("[[reply_to_current]]")
    };

    assert!(!told(&[]));
    assert!(told(&[REPLY_TAGS]));
}

#[test]
fn nobody_is_told_of_updates_where_others_run_the_product() {
    let tools = tools(&["gateway"]);
    let told = |is_hosted| {
        stable(&PromptSettings { tools: &tools, is_hosted, ..dm() }).contains("Self-Update")
    };

    assert!(told(false));
    assert!(!told(true));
}

#[test]
fn the_runtime_line_has_its_parts_in_order_and_no_value_adds_one() {
    let setting = PromptSettings { workspace: Some("/"), ..dm() };
    let line = |channel, host| {
        let runtime = Some(Runtime { host, ..RUNTIME });
        let text =
            dynamic(&setting, &TurnContext { channel, runtime, ..TurnContext::at(NOW) }, &[]);
        text.lines().find(|line| line.starts_with("Runtime: ")).unwrap_or_default().to_owned()
    };

    assert_eq!(
        line(Some(TELEGRAM), "runner"),
        "Runtime: agent=coach | host=runner | os=linux (x86_64) | version=0.1.0 | model=demo:demo \
         | repo=/ | channel=telegram | capabilities=replyTags | thinking=medium"
    );
    assert_eq!(
        line(None, "r | thinking=off"),
        "Runtime: agent=coach | host=r / thinking=off | os=linux (x86_64) | version=0.1.0 \
         | model=demo:demo | repo=/ | thinking=medium"
    );
}
