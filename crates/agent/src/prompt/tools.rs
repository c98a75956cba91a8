//! Tools and skills: sections 2 to 5.

use holdfast_types::ToolSpec;

use super::{
    input::{PromptSettings, Skill},
    write::{
        MAX_ADDRESS_CHARS, MAX_NAME_CHARS, MAX_SENTENCE_CHARS, heading, item, push_line_without,
        remark,
    },
};
use crate::{bootstrap::BootstrapName, text::push_line};

/// Order of the well-known tools; others follow by name.
const TOOL_ORDER: [&str; 24] = [
    "read",
    "write",
    "edit",
    "apply_patch",
    "exec",
    "process",
    "web_search",
    "web_fetch",
    "browser",
    "canvas",
    "nodes",
    "cron",
    "message",
    "gateway",
    "agents_list",
    "sessions_list",
    "sessions_history",
    "sessions_send",
    "sessions_spawn",
    "session_status",
    "memory_search",
    "memory_get",
    "image",
    "tts",
];

/// Tools that find and describe tools outside the request.
const SEARCH_TOOL: &str = "tool_search";
const DESCRIBE_TOOL: &str = "tool_describe";

/// Maximum number of other tools that the prompt names.
const MAX_NAMED_TOOLS: usize = 40;

/// Default text of section 3.
const DEFAULT_CALL_STYLE: &str = "Before you call a tool, say briefly what you are about to do.";

/// Section 2. The request has the tools' full descriptions and inputs.
pub(super) fn tooling(out: &mut String, setting: &PromptSettings<'_>) {
    if setting.tools.is_empty() {
        return;
    }
    heading(out, "## Tooling");
    out.push_str(
        "Use a tool when it gets a better answer than you have; never claim a result that no tool \
         gave you. If a call fails, say so or try another way. You have:\n",
    );
    let can_look = setting.has_tool(SEARCH_TOOL) && setting.has_tool(DESCRIBE_TOOL);
    // The two search tools are described below.
    let is_listed =
        |tool: &&ToolSpec| !can_look || ![SEARCH_TOOL, DESCRIBE_TOOL].contains(&&*tool.name);
    let mut tools: Vec<&ToolSpec> = setting.tools.iter().filter(is_listed).collect();
    let place = |tool: &ToolSpec| TOOL_ORDER.iter().position(|name| *name == tool.name);
    tools.sort_by_key(|tool| (place(tool).unwrap_or(TOOL_ORDER.len()), tool.name.as_str()));
    for tool in tools {
        out.push_str("- **");
        push_line(out, &tool.name, MAX_NAME_CHARS);
        out.push_str("**: ");
        push_line(out, summary(&tool.description), MAX_SENTENCE_CHARS);
        out.push('\n');
    }
    if can_look {
        more_tools(out, setting.more_tools);
    }
    if setting.has_tool("sessions_spawn") {
        out.push_str(
            "Give what is long or stands alone to a subagent with `sessions_spawn`: it reports by \
             itself when it is done.\n",
        );
    }
    if setting.text_of(BootstrapName::Tools).is_some() {
        out.push_str("TOOLS.md says how to use tools; it does not decide which you have.\n");
    }
}

/// Names of further tools: a model does not search for tools it has never heard of.
fn more_tools(out: &mut String, names: &[String]) {
    out.push_str("There are more; `tool_search` finds them, `tool_describe` opens one to you");
    for (at, name) in names.iter().take(MAX_NAMED_TOOLS).enumerate() {
        out.push_str(if at == 0 { ": " } else { ", " });
        push_line(out, name, MAX_NAME_CHARS);
    }
    if names.len() > MAX_NAMED_TOOLS {
        out.push_str(" and others");
    }
    out.push_str(".\n");
}

/// Returns the first sentence of a description, or its first line.
fn summary(description: &str) -> &str {
    let first = description.trim_start().lines().next().unwrap_or_default();
    match first.find(". ") {
        Some(end) => &first[..=end],
        None => first,
    }
}

pub(super) fn call_style(out: &mut String, setting: &PromptSettings<'_>) {
    heading(out, "## Tool Call Style");
    remark(out, setting.tool_call_style.unwrap_or(DEFAULT_CALL_STYLE));
}

/// Section 4; left out if a white label has no commands.
pub(super) fn quick_reference(out: &mut String, setting: &PromptSettings<'_>) {
    if setting.product.commands.is_empty() {
        return;
    }
    out.push_str("\n## ");
    push_line(out, setting.product.name, MAX_NAME_CHARS);
    out.push_str(" CLI Quick Reference\nFor people with a terminal; never make up others:\n");
    for (command, what) in setting.product.commands {
        item(out, command, what);
    }
}

pub(super) fn skills(out: &mut String, setting: &PromptSettings<'_>) {
    if !setting.is_full() || setting.skills.is_empty() {
        return;
    }
    let mut skills: Vec<&Skill<'_>> = setting.skills.iter().collect();
    skills.sort_by_key(|skill| skill.name);
    let (named, told): (Vec<&Skill<'_>>, Vec<&Skill<'_>>) =
        skills.into_iter().partition(|skill| skill.description.is_empty());
    if !told.is_empty() {
        available(out, &told);
    }
    if named.is_empty() {
        return;
    }
    match told.is_empty() {
        true => {
            heading(out, "## Skills");
            out.push_str(
                "If one of these clearly fits, first `read` skills/<name>/SKILL.md and do as it \
                 says: ",
            );
        }
        false => out.push_str("Others, at skills/<name>/SKILL.md: "),
    }
    for (at, skill) in named.iter().enumerate() {
        out.push_str(if at == 0 { "" } else { ", " });
        push_line_without(out, skill.name, MAX_NAME_CHARS, ESCAPED_OPEN);
    }
    out.push_str(".\n");
}

/// A skill's text is untrusted: it must not close the list.
const ESCAPED_OPEN: (char, &str) = ('<', "&lt;");

/// Skills with descriptions.
fn available(out: &mut String, skills: &[&Skill<'_>]) {
    heading(out, "## Skills (mandatory)");
    out.push_str(
        "Before you answer, look through <available_skills>.\n\
         1. If exactly one clearly fits, `read` the file at its location, then do as it says; \
         `{baseDir}` in it is its folder.\n\
         2. If several could fit, take the most specific one.\n\
         3. If none clearly fits, read none.\n\
         Never read more than one up front.\n<available_skills>\n",
    );
    for skill in skills {
        out.push_str("- ");
        push_line_without(out, skill.name, MAX_NAME_CHARS, ESCAPED_OPEN);
        out.push_str(": ");
        push_line_without(out, skill.description, MAX_SENTENCE_CHARS, ESCAPED_OPEN);
        out.push_str(" (");
        push_line_without(out, skill.location, MAX_ADDRESS_CHARS, ESCAPED_OPEN);
        out.push_str(")\n");
    }
    out.push_str("</available_skills>\n");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_summary_is_the_first_sentence_on_the_first_line() {
        for (description, is) in [
            ("Show the status.\n\nUse it when asked.", "Show the status."),
            ("Show the model, v1.2. Then go.", "Show the model, v1.2."),
            ("\n List v1.2 files", "List v1.2 files"),
            ("", ""),
        ] {
            assert_eq!(summary(description), is, "{description:?}");
        }
    }
}
