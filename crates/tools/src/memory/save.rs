//! The `memory_save` tool.

use std::sync::Arc;

use holdfast_types::Effect;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;

use super::{MAX_MEMORY_LEN, Memories, MemoryType, NewMemory, checked_details, checked_text};
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
    /// When it ends to hold, as `2026-12-31T18:00:00Z`.
    #[serde(default, alias = "expired_at")]
    expires_at: Option<String>,
    /// How important it is, from 0 to 1.
    #[serde(default)]
    #[schemars(range(min = 0, max = 1))]
    importance: Option<f64>,
    /// Words to find it by.
    #[serde(default)]
    tags: Vec<String>,
}

#[derive(Debug)]
pub struct MemorySave<M>(pub Arc<M>);

impl<M: Memories> Tool<Output> for MemorySave<M> {
    const NAME: &'static str = "memory_save";
    const EFFECT: Effect = Effect::Writes;
    type Input = MemorySaveInput;

    async fn call(&self, call: Call, input: MemorySaveInput) -> Result<Output, ToolError> {
        let text = checked_text("text", &input.text, MAX_MEMORY_LEN)?;
        let expires_at = input.expires_at.as_deref();
        let details = checked_details(expires_at, input.importance, &input.tags)?;
        let about = match (input.subject, input.predicate) {
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
        let (what, replaces) = (input.what, input.replaces);
        let new = NewMemory { text, what, details, about, replaces };
        let kept = self.0.save(&call, new).await?;
        let told = match kept.is_duplicate {
            false => format!("Remembered as {}.", kept.id),
            true => format!("It was known already, as {}.", kept.id),
        };
        Ok(Output::from(told).record(json!({ "memory": kept.id })))
    }
}
