//! Shared code of the prompt's tests.

use holdfast_types::{Body, ChatMessage, Entry, Reactions, SessionKind, ToolSpec};
use serde_json::json;

use super::*;
use crate::{
    bootstrap::{Audience, BootstrapFile, BootstrapName},
    subagent::SubagentTask,
    turn::tests::{heard, thought},
};

mod files;
mod places;
mod sections;
mod tools;

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

fn dm() -> PromptSettings<'static> {
    PromptSettings {
        instructions: "Teach.\n",
        zone: "Europe/Berlin",
        ..PromptSettings::of("coach", SessionKind::Dm, Audience::Others)
    }
}

fn input<'a>(tools: &'a [ToolSpec], journal: &'a [Entry]) -> PromptInput<'a> {
    let setting = PromptSettings { tools, ..dm() };
    PromptInput { setting, moment: TurnContext::at(NOW), journal, context_limit: CONTEXT_LIMIT }
}

fn build(input: PromptInput<'_>) -> Chat {
    build_on(StablePart::of(&input.setting), input)
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

const TELEGRAM: Channel<'_> =
    Channel { name: "telegram", actions: &["send", "react", "poll"], capabilities: &[REPLY_TAGS] };

const SANDBOX: Sandbox<'_> = Sandbox { container: "bubblewrap", restrictions: "No network" };

const RUNTIME: Runtime<'_> = Runtime {
    host: "runner",
    os: "linux",
    arch: "x86_64",
    version: "0.1.0",
    model: "demo:demo",
    thinking: "medium",
    elevated: None,
};
