//! The `memory_save` tool.

use std::sync::Arc;

use holdfast_types::Effect;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;

use super::{MAX_MEMORY_LEN, Memories, MemoryType, NewMemory, checked_text};
use crate::{Call, Output, Tool, ToolError};

/// Maximum length of a subject and of a predicate, in bytes.
const MAX_SUBJECT_LEN: usize = 256;

/// Remember something about the person you speak with, for all your later conversations with them.
///
/// One thing in a call, as a sentence that makes sense by itself. With `subject` and `predicate` it
/// takes the place of what was known of just that.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct MemorySaveInput {
    /// What to remember.
    #[serde(alias = "content")]
    text: String,
    /// What it is: `fact` if absent.
    #[serde(default, rename = "type")]
    what: MemoryType,
    /// Whom or what it is about, as `Anna`.
    #[serde(default)]
    subject: Option<String>,
    /// In which respect, as `lives in`; `text` then says only what comes after it.
    #[serde(default)]
    predicate: Option<String>,
    /// The id (`itm_…`) of what it takes the place of.
    #[serde(default)]
    replaces: Option<String>,
}

#[derive(Debug)]
pub struct MemorySave<M>(pub Arc<M>);

impl<M: Memories> Tool<Output> for MemorySave<M> {
    const NAME: &'static str = "memory_save";
    const EFFECT: Effect = Effect::Writes;
    type Input = MemorySaveInput;

    async fn call(&self, call: Call, input: MemorySaveInput) -> Result<Output, ToolError> {
        let MemorySaveInput { text, what, subject, predicate, replaces } = input;
        let text = checked_text("text", &text, MAX_MEMORY_LEN)?;
        let about = match (subject, predicate) {
            (Some(subject), Some(predicate)) => Some((
                checked_text("subject", &subject, MAX_SUBJECT_LEN)?,
                checked_text("predicate", &predicate, MAX_SUBJECT_LEN)?,
            )),
            (None, None) => None,
            (Some(_), None) | (None, Some(_)) => {
                return Err(ToolError::Tell(
                    "`subject` and `predicate` go together: give both or neither".to_owned(),
                ));
            }
        };
        let kept = self.0.save(&call, NewMemory { text, what, about, replaces }).await?;
        let told = match kept.is_duplicate {
            false => format!("Remembered as {}.", kept.id),
            true => format!("It was known already, as {}.", kept.id),
        };
        Ok(Output::from(told).record(json!({ "memory": kept.id })))
    }
}
