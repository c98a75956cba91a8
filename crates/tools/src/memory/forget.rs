//! The `memory_forget` tool.

use std::sync::Arc;

use holdfast_types::Effect;
use schemars::JsonSchema;
use serde::Deserialize;

use super::{Memories, checked_text};
use crate::{Call, Tool, ToolError};

/// Forget something that was remembered: nobody is told of it any more.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct MemoryForgetInput {
    /// What to forget, by its id (`itm_…`), as `memory_search` shows it.
    id: String,
}

#[derive(Debug)]
pub struct MemoryForget<M>(pub Arc<M>);

impl<M: Memories> Tool for MemoryForget<M> {
    const NAME: &'static str = "memory_forget";
    const EFFECT: Effect = Effect::Writes;
    type Input = MemoryForgetInput;

    async fn call(&self, call: Call, input: MemoryForgetInput) -> Result<String, ToolError> {
        let id = checked_text("id", &input.id, 128)?;
        self.0.forget(&call, &id).await?;
        Ok(format!("{id} is forgotten."))
    }
}
