//! A stable part that is made once, and used again while its setting is the same.

use std::{
    hash::{DefaultHasher, Hash as _, Hasher as _},
    sync::Arc,
};

use super::{Setting, stable};
use crate::tokens::tokens;

/// A stable part, and how long it and the tools are that go with it. Cloning it copies no text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StablePart {
    pub(super) text: Arc<str>,
    /// Of the text and of the tools' specifications.
    pub(super) tokens: usize,
}

impl StablePart {
    /// Writes it.
    #[must_use]
    pub fn of(setting: &Setting<'_>) -> Self {
        let text = stable(setting);
        let tools: usize = setting
            .tools
            .iter()
            .map(|tool| tokens(&tool.description) + tokens(&tool.input.to_string()))
            .sum();
        Self { tokens: tokens(&text) + tools, text: text.into() }
    }

    /// What the model reads first.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }
}

impl Setting<'_> {
    /// What tells this setting from others of the same agent, in a process' lifetime: all but what
    /// the agent *is*, its name, its instructions and its files, which whoever keeps stable parts
    /// keeps apart by their version.
    #[must_use]
    pub fn key(&self) -> u64 {
        // Without `..`, so that what is added to a setting is not forgotten here.
        let Self {
            mode,
            kind,
            audience,
            agent_name: _,
            instructions: _,
            product,
            owner,
            zone,
            tools,
            more_tools,
            tool_call_style,
            skills,
            files: _,
            memory,
            workspace,
            sandbox,
            voice,
            aliases,
            heartbeat_prompt,
            marks_reasoning,
        } = self;
        let mut key = DefaultHasher::new();
        (mode, kind, audience, product, owner, zone).hash(&mut key);
        for tool in *tools {
            (&tool.name, &tool.description).hash(&mut key);
        }
        (tools.len(), tool_call_style, skills, memory, workspace, sandbox).hash(&mut key);
        (more_tools, voice, aliases, heartbeat_prompt, marks_reasoning).hash(&mut key);
        key.finish()
    }
}
