//! Document of a behaviour: YAML or JSON, as people write it.
//!
//! Unknown fields are errors: a misspelt limit would otherwise be no limit. Two spellings of the
//! reference are accepted: `faild_back` for `fallback`, and `total_limt` for `total_limit`.

use holdfast_types::BehaviorRole;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{
    definition::FileAccessMode,
    memory::MemoryDocument,
    protocol::ProtocolDocument,
    toolbox::{ToolList, ToolboxDocument},
};
use crate::{text::line, yaml::parse_yaml};

/// Maximum size of a document, in bytes.
pub const MAX_SOURCE_BYTES: usize = 256 << 10;

/// Maximum length of a value in an error, in characters.
const MAX_SHOWN_CHARS: usize = 80;

/// Fields that the reference misspells: JSON pointer, path, and the name to write instead.
const MISSPELT_FIELDS: [(&str, &str, &str); 2] = [
    ("/memory/total_limt", "memory.total_limt", "total_limit"),
    ("/faild_back", "faild_back", "fallback"),
];

/// Error of a document: the field, and what to write instead.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}{problem}", if field.is_empty() { String::new() } else { format!("`{field}`: ") })]
pub struct DocumentError {
    /// Path such as `memory.total_limit`; empty for the whole document.
    pub field: String,
    pub problem: String,
}

impl DocumentError {
    pub(super) fn at(field: &str, problem: impl Into<String>) -> Self {
        Self { field: field.to_owned(), problem: problem.into() }
    }
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Document {
    pub(super) name: String,
    pub(super) description: String,
    pub(super) role: Option<BehaviorRole>,
    #[serde(alias = "process_rules")]
    pub(super) process_rule: String,
    pub(super) policy: String,
    pub(super) input: String,
    pub(super) memory: Option<MemoryDocument>,
    pub(super) step_summary: String,
    pub(super) output_protocol: ProtocolDocument,
    pub(super) tools: Option<ToolList>,
    pub(super) toolbox: ToolboxDocument,
    pub(super) files: Option<FileAccessMode>,
    #[serde(
        alias = "faild_back",
        alias = "failed_back",
        alias = "fallto",
        alias = "fallback_behavior"
    )]
    pub(super) fallback: Option<String>,
    pub(super) step_limit: Option<u32>,
    pub(super) llm: LlmDocument,
    pub(super) limits: LimitsDocument,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct LlmDocument {
    #[serde(alias = "model")]
    pub(super) preferred: Option<String>,
    #[serde(alias = "fallback")]
    pub(super) fallbacks: Vec<String>,
    pub(super) temperature: Option<f64>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct LimitsDocument {
    pub(super) max_tool_rounds: u32,
    pub(super) max_tool_calls_per_round: u32,
    pub(super) deadline_ms: u64,
    pub(super) max_prompt_tokens: u32,
    pub(super) max_completion_tokens: u32,
}

impl Default for LimitsDocument {
    fn default() -> Self {
        Self {
            max_tool_rounds: 1,
            max_tool_calls_per_round: 8,
            deadline_ms: 30_000,
            max_prompt_tokens: 200_000,
            max_completion_tokens: 200_000,
        }
    }
}

impl Document {
    /// Parses a document. Its name is `name` if it has none of its own (spec BHV-002).
    pub(super) fn parse(source: &str, name: &str) -> Result<Self, DocumentError> {
        if source.len() > MAX_SOURCE_BYTES {
            let got = source.len();
            return Err(DocumentError::at(
                "",
                format!("it has {got} bytes, and {MAX_SOURCE_BYTES} is the most"),
            ));
        }
        if source.contains('\0') {
            return Err(DocumentError::at("", "it has a NUL character: remove it"));
        }
        let value = parse_yaml(source).map_err(|error| {
            DocumentError::at("", format!("it is no YAML and no JSON: {error}"))
        })?;
        let mut document: Self = deserialize(&value)?;
        if document.name.is_empty() {
            name.clone_into(&mut document.name);
        }
        Ok(document)
    }
}

/// Warnings about misspelt fields that a document has and that are accepted nevertheless.
#[must_use]
pub fn spelling_warnings(source: &str) -> Vec<String> {
    let document = parse_yaml(source).unwrap_or_default();
    let misspelt = MISSPELT_FIELDS.iter().filter(|(at, ..)| document.pointer(at).is_some());
    misspelt.map(|(_, path, right)| format!("`{path}` is misspelt: write `{right}`")).collect()
}

fn deserialize(value: &Value) -> Result<Document, DocumentError> {
    if !value.is_object() {
        return Err(DocumentError::at("", "it has no fields: write `process_rule: …` at least"));
    }
    serde_path_to_error::deserialize(value).map_err(|error| {
        let path = error.path().to_string();
        let field = if path == "." { "" } else { &path };
        DocumentError::at(field, line(&error.inner().to_string(), 4 * MAX_SHOWN_CHARS))
    })
}

/// Shortens a value for an error.
pub(super) fn shown(value: &str) -> String {
    line(value, MAX_SHOWN_CHARS)
}
