//! Heads as people write them, and as nobody should.

use proptest::prelude::*;

use super::*;

fn manifest(text: &str) -> Manifest {
    Manifest::read("skills/x/SKILL.md", text.as_bytes()).unwrap()
}

fn told(text: &str) -> String {
    Manifest::read("skills/x/SKILL.md", text.as_bytes()).unwrap_err().to_string()
}

const FULL: &str = "---
name: todo-list
description: >
  Keep a list of
  what is to be done.
version: 1.2.0
homepage: https://example.com
tags: [lists, \"2\"]
user-invocable: false
disable-model-invocation: true
command-dispatch: tool
command-tool: calendar
unknown: { to: us }
metadata:
  openclaw:
    always: true
    skillKey: todo
    emoji: \"✅\"
    primaryEnv: TODO_KEY
    os: [macos, linux]
    requires:
      bins: [curl]
      anyBins: [jq, gojq]
      env: [TODO_KEY]
      config: [channels.telegram]
    install:
      - { id: a, kind: node, package: todo, bins: [todo], label: Install it }
---

# How

See {baseDir}/list.md.
";

#[test]
fn all_of_a_head_is_read() {
    let read = manifest(FULL);

    assert_eq!(read.name.as_str(), "todo-list");
    assert_eq!(read.description, "Keep a list of what is to be done.");
    assert_eq!(read.version.as_deref(), Some("1.2.0"));
    assert_eq!(read.homepage.as_deref(), Some("https://example.com"));
    assert_eq!(read.tags, ["lists", "2"]);
    assert!(!read.user_invocable && !read.model_invocable && read.always);
    assert_eq!(read.dispatch, Some(ToolDispatch { tool: "calendar".to_owned() }));
    assert_eq!(read.skill_key.as_deref(), Some("todo"));
    assert_eq!(read.emoji.as_deref(), Some("✅"));
    assert_eq!(read.primary_env.as_deref(), Some("TODO_KEY"));
    assert_eq!(
        read.requires,
        Requirements {
            bins: vec!["curl".to_owned()],
            any_bins: vec!["jq".to_owned(), "gojq".to_owned()],
            env: vec!["TODO_KEY".to_owned()],
            config: vec!["channels.telegram".to_owned()],
            os: vec!["darwin".to_owned(), "linux".to_owned()],
        }
    );
    let step = InstallStep {
        kind: "node".to_owned(),
        label: Some("Install it".to_owned()),
        bins: vec!["todo".to_owned()],
    };
    assert_eq!(read.install, [step]);
}

#[test]
fn little_is_needed_and_the_rest_is_as_usual() {
    let read = manifest("---\nname: a\ndescription: b\n---\n");

    assert!(read.user_invocable && read.model_invocable && !read.always);
    assert_eq!(read.requires, Requirements::default());
}

#[test]
fn metadata_is_read_in_each_of_its_forms() {
    for metadata in [
        "metadata:\n  openclaw:\n    requires: { bins: [jq] }",
        "metadata: {\"clawdbot\":{\"requires\":{\"bins\":[\"jq\"]}}}",
        "metadata:\n  {\n    \"openclaw\":\n      { \"requires\": { \"bins\": [\"jq\"] }, },\n  }",
        "metadata: \"{openclaw: {requires: {bins: ['jq',],}, /* ! */}}\"",
        "metadata: '{requires: {bins: [\"jq\"]}}'",
        "metadata: |\n  { // one\n    holdfast: { requires: { bins: ['jq'] } } }",
    ] {
        let read = manifest(&format!("---\nname: a\ndescription: b\n{metadata}\n---\nx"));
        assert_eq!(read.requires.bins, ["jq"], "{metadata}");
    }
}

#[test]
fn a_head_may_be_json_and_lines_may_end_as_elsewhere() {
    let read = manifest("---\n{\n\t\"name\": \"a\", // mine\n\t\"description\": \"b\",\n}\n---\nx");
    assert_eq!((read.name.as_str(), read.description.as_str()), ("a", "b"));

    let text = "\u{feff}---\r\nname: a\r\ndescription: b\r\n---\r\n\r\nx\r\n";
    let read = manifest(text);
    assert_eq!((read.name.as_str(), read.description.as_str()), ("a", "b"));
}

#[test]
fn an_error_names_the_file_the_field_and_what_to_write() {
    let with = |line: &str| format!("---\nname: a\ndescription: b\n{line}\n---\n");
    for (text, expected) in [
        ("# hello".to_owned(), "skills/x/SKILL.md: has no head: begin it with a line `---`"),
        (String::new(), "has no head"),
        ("---\nname: a\n".to_owned(), "has a head that does not end: write a line `---`"),
        (
            "---\nname: a\n---\n".to_owned(),
            "skills/x/SKILL.md: `description` is missing: write `description: ",
        ),
        ("---\ndescription: a\n---\n".to_owned(), "`name` is missing: write `name: plan-a-trip`"),
        (
            "---\nname: ../a\ndescription: b\n---\n".to_owned(),
            "`name` cannot be taken: `../a` is not",
        ),
        ("---\nname: [a]\ndescription: b\n---\n".to_owned(), "`name` must be a text"),
        ("---\n- a\n---\n".to_owned(), "is no list of fields"),
        ("---\nname: a\ndescription: b: c\n---\n".to_owned(), "SKILL.md: line "),
        (
            format!("---\nname: a\ndescription: {}\n---\n", "x".repeat(1025)),
            "`description` has 1025 characters, and 1024 is the most",
        ),
        ("---\nname: a\ndescription: \"\u{200b}\"\n---\n".to_owned(), "`description` has nothing"),
        (
            with(&format!("version: {}", "v".repeat(65))),
            "SKILL.md: `version` has 65 characters, and 64 is the most: write one such as `1.2.3`",
        ),
        (with("user-invocable: perhaps"), "`user-invocable` must be `true` or `false`"),
        (with("metadata: \"{\""), "`metadata` is a text and no JSON5"),
        (with("metadata: 3"), "`metadata` must have fields"),
        (with("metadata: { openclaw: [] }"), "`metadata.openclaw` must have fields"),
        (
            with("metadata: { openclaw: { requires: { bins: [{}] } } }"),
            "`metadata.openclaw.requires.bins` must be a list of texts, as in `bins: [one, two]`",
        ),
        (
            with("metadata: { openclaw: { requires: { bins: [\"a; rm\"] } } }"),
            "`metadata.openclaw.requires.bins` has `a; rm`, which is no name of a command",
        ),
        (with("metadata: { openclaw: { requires: { bins: [-v] } } }"), "is no name of a command"),
        (
            with("metadata: { openclaw: { requires: { env: [\"A B\"] } } }"),
            "`metadata.openclaw.requires.env` has `A B`",
        ),
        (
            with("metadata: { openclaw: { primaryEnv: 1A } }"),
            "`metadata.openclaw.primaryEnv` has `1A`",
        ),
        (
            with("metadata: { openclaw: { install: [{}] } }"),
            "`metadata.openclaw.install` must be a list",
        ),
        (with("command-dispatch: shell"), "`command-dispatch` may only be `tool`"),
        (with("command-dispatch: tool"), "`command-tool` is missing"),
    ] {
        let told = told(&text);
        assert!(told.contains(expected), "{told}\n≠ {expected}");
        assert!(told.starts_with("skills/x/SKILL.md: "), "{told}");
    }
}

#[test]
fn what_is_no_text_or_too_long_a_one_is_refused() {
    let read = |bytes: &[u8]| Manifest::read("f", bytes).unwrap_err().to_string();

    assert!(read(b"---\nname: \xff\n---\n").contains("is not UTF-8"));
    assert!(read(&vec![b'-'; MAX_MANIFEST_BYTES + 1]).contains("bytes"));
}

#[test]
fn nobody_is_shown_what_nobody_can_see() {
    let read = manifest("---\nname: a\ndescription: \"do\\u202e it\\U000E0041\\n now\"\n---\n");

    assert_eq!(read.description, "do it now");
}

proptest! {
    #[test]
    fn whatever_is_in_a_file_it_is_read_or_refused(text in "(?s)(---\n|name: a\n|description: b\n|metadata: |[{\\[\\]}:,'\"&*!|>-]|\\PC|\n){0,40}") {
        if let Ok(read) = Manifest::read("f", text.as_bytes()) {
            prop_assert!(!read.description.is_empty());
        }
    }
}
