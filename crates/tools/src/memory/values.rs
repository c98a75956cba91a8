//! The tools `memory_set` and `memory_values`: values by key.

use std::{fmt::Write as _, sync::Arc};

use holdfast_types::Effect;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};

use super::{Memories, NewValue, checked_details, checked_text, result_limit};
use crate::{Call, Output, Tool, ToolError, untrusted};

/// Maximum length of a key, in bytes.
const MAX_KEY_LEN: usize = 512;

/// Maximum length of a value, in bytes of JSON.
const MAX_VALUE_LEN: usize = 16 * 1024;

/// Maximum length of a list of values, in characters.
const MAX_SHOWN_CHARS: usize = 16_000;

/// Keep a value under a key about the person you speak with. The last value of a key counts; `null`
/// ends it.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct MemorySetInput {
    /// The key, as `home/city`.
    key: String,
    /// Any JSON value.
    value: Value,
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
pub struct MemorySet<M>(pub Arc<M>);

impl<M: Memories> Tool<Output> for MemorySet<M> {
    const NAME: &'static str = "memory_set";
    const EFFECT: Effect = Effect::Writes;
    type Input = MemorySetInput;

    async fn call(&self, call: Call, input: MemorySetInput) -> Result<Output, ToolError> {
        let MemorySetInput { key, value, expires_at, importance, tags } = input;
        let key = checked_text("key", &key, MAX_KEY_LEN)?;
        let is_end = value.is_null();
        let value = value.to_string();
        if value.len() > MAX_VALUE_LEN {
            return Err(ToolError::Tell(format!(
                "`value` has {} bytes, and {MAX_VALUE_LEN} are the most",
                value.len()
            )));
        }
        let details = checked_details(expires_at.as_deref(), importance, &tags)?;
        let kept = self.0.set_value(&call, NewValue { key: key.clone(), value, details }).await?;
        let told = match is_end {
            false => format!("`{key}` is kept, as {}.", kept.id),
            true => format!("`{key}` has no value any more."),
        };
        Ok(Output::from(told).record(json!({ "memory": kept.id })))
    }
}

/// List the values that are kept by key about the person you speak with.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct MemoryValuesInput {
    /// Only keys that begin so, as `home/`.
    #[serde(default, alias = "key")]
    prefix: String,
    /// How many at most: 20 if absent, and at most.
    #[serde(default)]
    limit: Option<u32>,
}

#[derive(Debug)]
pub struct MemoryValues<M>(pub Arc<M>);

impl<M: Memories> Tool for MemoryValues<M> {
    const NAME: &'static str = "memory_values";
    const EFFECT: Effect = Effect::Reads;
    type Input = MemoryValuesInput;

    async fn call(&self, call: Call, input: MemoryValuesInput) -> Result<String, ToolError> {
        let prefix = match input.prefix.trim() {
            "" => String::new(),
            prefix => checked_text("prefix", prefix, MAX_KEY_LEN)?,
        };
        let found = self.0.values(&call, &prefix, result_limit(input.limit, 20)).await?;
        if found.is_empty() {
            return Ok("No such value is kept.".to_owned());
        }
        let mut text = String::new();
        for value in found {
            // Writing to a `String` cannot fail.
            let _ = write!(text, "{} = {}", value.key, value.value);
            for note in &value.notes {
                let _ = write!(text, " · {note}");
            }
            text.push('\n');
        }
        Ok(untrusted(&call.key, "memory", &text, MAX_SHOWN_CHARS))
    }
}
