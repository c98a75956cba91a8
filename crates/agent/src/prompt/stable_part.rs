//! Stable part that is stored and reused while its setting is unchanged.

use std::{
    hash::{DefaultHasher, Hash as _, Hasher as _},
    sync::Arc,
};

use super::{PromptSettings, stable};
use crate::tokens::tokens;

/// Stable part, with the size of it and its tools. A clone copies no text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StablePart {
    pub(super) text: Arc<str>,
    /// Of the text and the tools' specifications.
    pub(super) tokens: usize,
}

impl StablePart {
    /// Writes the stable part of a setting.
    #[must_use]
    pub fn of(setting: &PromptSettings<'_>) -> Self {
        let text = stable(setting);
        let tools: usize = setting
            .tools
            .iter()
            .map(|tool| tokens(&tool.description) + tokens(&tool.input.to_string()))
            .sum();
        Self { tokens: tokens(&text) + tools, text: text.into() }
    }

    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }
}

impl PromptSettings<'_> {
    /// Hash of the setting within one process, except the agent's name, instructions and files: a
    /// cache must distinguish those by their version.
    #[must_use]
    pub fn key(&self) -> u64 {
        // Without `..`, so that a new field cannot be forgotten here.
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
            file_access,
            sandbox,
            speaks,
            is_hosted,
            aliases,
            heartbeat_prompt,
            marks_reasoning,
        } = self;
        let mut key = DefaultHasher::new();
        (mode, kind, audience, product, owner, zone).hash(&mut key);
        for tool in *tools {
            (&tool.name, &tool.description).hash(&mut key);
        }
        (tools.len(), tool_call_style, skills, memory, workspace, file_access, sandbox)
            .hash(&mut key);
        (more_tools, speaks, is_hosted, aliases, heartbeat_prompt, marks_reasoning).hash(&mut key);
        key.finish()
    }
}
