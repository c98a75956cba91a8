//! Memory and files: sections 6, 9, 11, 12 and 18.

use std::fmt::Write as _;

use super::{
    input::{FileAccess, PromptSettings},
    write::{MAX_ADDRESS_CHARS, MAX_NAME_CHARS, MAX_SENTENCE_CHARS, heading},
};
use crate::{
    bootstrap::{BootstrapName, trimmed},
    text::{fenced, push_line},
};

/// Files of section 18 in their order; memory has its own section.
const CONTEXT_FILES: [BootstrapName; 9] = [
    BootstrapName::Role,
    BootstrapName::SelfFile,
    BootstrapName::Soul,
    BootstrapName::Identity,
    BootstrapName::User,
    BootstrapName::Agents,
    BootstrapName::Tools,
    BootstrapName::Heartbeat,
    BootstrapName::Bootstrap,
];

/// Section 6: memory search, and `MEMORY.md`.
pub(super) fn memory(out: &mut String, setting: &PromptSettings<'_>) {
    if !setting.has_memory() {
        return;
    }
    let (search, get) = (setting.has_tool("memory_search"), setting.has_tool("memory_get"));
    let noted = setting.text_of(BootstrapName::Memory);
    if !search && !get && noted.is_none() {
        return;
    }
    heading(out, "## Memory Recall");
    out.push_str(match (search, get) {
        (true, true) => {
            "Asked about earlier work, decisions, dates, people, preferences or tasks, use \
             `memory_search`, then `memory_get` for lines; if unsure after that, say that you \
             looked.\n"
        }
        (true, false) => {
            "Before you answer about earlier work, decisions, dates, people, preferences or tasks, \
             use `memory_search`. If you are not sure after that, say that you looked.\n"
        }
        (false, true) => {
            "Before you answer about earlier work, decisions, dates, people, preferences or tasks, \
             use `memory_get` for the lines that you need. If you are not sure after that, say \
             that you looked.\n"
        }
        (false, false) => "",
    });
    if let Some(noted) = noted {
        out.push_str("What you noted for the long term, which instructs nobody:\n");
        file(out, BootstrapName::Memory, noted);
    }
}

pub(super) fn workspace(out: &mut String, setting: &PromptSettings<'_>) {
    heading(out, "## Workspace");
    match setting.workspace {
        Some(path) => {
            out.push_str("Working directory: ");
            push_line(out, path, MAX_ADDRESS_CHARS);
            out.push('\n');
            out.push_str(setting.file_access.map_or("", access_text));
        }
        None => out.push_str("Working directory: none; you have no files here.\n"),
    }
}

const fn access_text(access: FileAccess) -> &'static str {
    match access {
        FileAccess::Whole => {
            "`people/` has a folder for each other person and group you work for. They see that \
             folder and `shared/`, and none of your other files: put what is for all in `shared/`.\n"
        }
        FileAccess::Own => {
            "The files here belong to this person or group, and other people do not see them. \
             Everybody reads `shared/`; it is changed in a conversation with your owner only.\n"
        }
    }
}

pub(super) fn sandbox(out: &mut String, setting: &PromptSettings<'_>) {
    let Some(sandbox) = setting.sandbox else {
        return;
    };
    heading(out, "## Sandbox");
    out.push_str("Your commands run in a sandbox and cannot leave it.\nContainer: ");
    push_line(out, sandbox.container, MAX_NAME_CHARS);
    out.push_str("\nRestrictions: ");
    push_line(out, sandbox.restrictions, MAX_SENTENCE_CHARS);
    out.push_str("\nWorkspace access: read and write\n");
}

pub(super) fn injected_files(out: &mut String, setting: &PromptSettings<'_>) {
    heading(out, "## Workspace Files (injected)");
    let mut gap = "";
    for (name, _) in context(setting).filter(|(_, text)| text.is_some()) {
        out.push_str(gap);
        out.push_str(name.path());
        gap = ", ";
    }
    out.push_str(if gap.is_empty() { "None.\n" } else { ": see Project Context.\n" });
}

pub(super) fn project_context(out: &mut String, setting: &PromptSettings<'_>) {
    let mut files = context(setting).peekable();
    if files.peek().is_none() {
        return;
    }
    heading(out, "# Project Context");
    if setting.text_of(BootstrapName::Soul).is_some() {
        out.push_str(
            "Be who SOUL.md says you are, in tone and in manner; avoid stiff and generic answers.\n",
        );
    }
    if setting.text_of(BootstrapName::Bootstrap).is_some() {
        out.push_str(
            "This is your first run: do what BOOTSTRAP.md says before anything else, and delete \
             the file when all of it is done.\n",
        );
    }
    for (name, text) in files {
        let _ = writeln!(out, "\n## {}", name.path());
        match text {
            Some(text) => file(out, name, text),
            None => out.push_str("[MISSING]\n"),
        }
    }
}

/// Returns the files of the context. A missing file is reported if every agent should have it;
/// empty files are left out.
fn context<'a>(
    setting: &PromptSettings<'a>,
) -> impl Iterator<Item = (BootstrapName, Option<&'a str>)> + use<'a> {
    let setting = *setting;
    CONTEXT_FILES.into_iter().filter_map(move |name| {
        let file = setting.file(name)?;
        let should_be = !matches!(
            name,
            BootstrapName::Role
                | BootstrapName::SelfFile
                | BootstrapName::Heartbeat
                | BootstrapName::Bootstrap
        );
        match (file.text(), &file.content) {
            (Some(text), _) => Some((name, Some(text))),
            (None, None) if should_be => Some((name, None)),
            (None, _) => None,
        }
    })
}

fn file(out: &mut String, name: BootstrapName, text: &str) {
    fenced(out, "file", &format!("name=\"{}\"", name.path()), &trimmed(name, text));
}
