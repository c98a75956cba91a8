//! Visibility of the bootstrap files.

use super::*;

#[test]
fn memory_is_never_in_a_group_s_prompt_even_if_someone_loaded_it() {
    let files = [file(BootstrapName::Memory, "the code is 4711")];
    let told = |kind, audience| {
        let setting =
            PromptSettings { files: &files, ..PromptSettings::of("coach", kind, audience) };
        stable(&setting).contains("4711")
    };

    assert!(told(SessionKind::Main, Audience::Owner));
    assert!(told(SessionKind::Dm, Audience::Owner));
    assert!(!told(SessionKind::Dm, Audience::Others));
    assert!(!told(SessionKind::Main, Audience::Others));
    for kind in [SessionKind::Group, SessionKind::Topic, SessionKind::Global] {
        assert!(!told(kind, Audience::Owner), "{kind:?}");
    }
    let forgets = PromptSettings {
        files: &files,
        memory: Some(false),
        ..PromptSettings::of("coach", SessionKind::Main, Audience::Owner)
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
    let setting = PromptSettings {
        files: &files,
        ..PromptSettings::of("coach", SessionKind::Main, Audience::Owner)
    };

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
        let setting =
            PromptSettings { files: &files, ..PromptSettings::of("coach", kind, Audience::Owner) };
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
    let setting = PromptSettings { files: &files, instructions: " ", ..dm() };

    let with_files = stable(&setting);
    assert!(
        with_files.starts_with("You are a personal assistant running inside Holdfast.\n\n## Sa")
    );
    let without = stable(&PromptSettings { files: &[], ..setting });
    assert!(
        without.contains("Your name is coach.\n\n## Instructions\nBe helpful, honest and brief.")
    );
}

#[test]
fn a_sandbox_is_told_with_what_it_restricts() {
    let text = stable(&PromptSettings { sandbox: Some(SANDBOX), ..dm() });

    assert!(text.contains(
        "Container: bubblewrap\nRestrictions: No network\nWorkspace access: read and write\n"
    ));
}

#[test]
fn a_long_file_is_shown_without_its_middle() {
    let files = [BootstrapName::Agents, BootstrapName::Memory]
        .map(|name| file(name, &format!("{}END", "x".repeat(30_000))));
    let setting = PromptSettings {
        files: &files,
        ..PromptSettings::of("coach", SessionKind::Main, Audience::Owner)
    };

    let stable = stable(&setting);

    for name in ["AGENTS.md", "MEMORY.md"] {
        let mark = format!("trimmed: {name}, 14000 + 4000 of 30003 characters shown");
        assert!(stable.contains(&mark), "{name}");
    }
    assert_eq!(stable.matches("xEND\n</file>").count(), 2);
    assert!(stable.len() < 40_000);
}

#[test]
fn a_prompt_says_whose_files_it_has_and_what_is_shared() {
    let told = |file_access, workspace| {
        let setting = PromptSettings { file_access, workspace, ..dm() };
        stable(&setting)
    };

    let own = told(Some(FileAccess::Own), Some("/workspace"));
    assert!(own.contains("/workspace\nThe files here belong to this person or group"), "{own}");
    let whole = told(Some(FileAccess::Whole), Some("/workspace"));
    assert!(whole.contains("put what is for all in `shared/`.\n"), "{whole}");
    assert!(!told(Some(FileAccess::Own), None).contains("shared"), "no files, no folders");
}
