//! Tools: names, number, schemas, and what is asked of them.

use std::collections::BTreeSet;

use serde_json::Value;

use super::{Asked, calls, list};

fn name(tool: &Value) -> &str {
    tool["function"]["name"].as_str().unwrap_or_default()
}

fn is_word(name: &str) -> bool {
    (1..=64).contains(&name.len())
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-'))
}

/// Names of tools, and of earlier calls, are words of at most 64 characters.
pub(super) fn unfit_name(asked: &Asked<'_>) -> Option<String> {
    let called = asked.messages.iter().flat_map(calls);
    let name = asked.tools.iter().chain(called).map(name).find(|name| !is_word(name))?;
    Some(format!(
        "Invalid 'tools[0].function.name': string does not match pattern. Expected a string that \
         matches the pattern '^[a-zA-Z0-9_-]+$', but got '{name}'."
    ))
}

/// Gemini and Kimi: names begin with a letter or `_`, too.
pub(super) fn name_begins_with_digit(asked: &Asked<'_>) -> Option<String> {
    let begins = |name: &str| name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
    let name = asked.tools.iter().map(name).find(|name| !is_word(name) || !begins(name))?;
    Some(format!(
        "function name is invalid, must start with a letter and can contain letters, numbers, \
         underscores, and dashes: {name}"
    ))
}

pub(super) fn same_name_twice(asked: &Asked<'_>) -> Option<String> {
    let mut known = BTreeSet::new();
    asked.tools.iter().map(name).find(|name| !known.insert(*name))?;
    Some("tools: Tool names must be unique.".to_owned())
}

pub(super) fn too_many(asked: &Asked<'_>) -> Option<String> {
    let count = asked.tools.len();
    (count > 128).then(|| {
        format!(
            "Invalid 'tools': array too long. Expected an array with maximum length 128, but got an \
             array with length {count} instead."
        )
    })
}

/// A schema is of an object, and unites nothing at its top.
pub(super) fn schema_without_object(asked: &Asked<'_>) -> Option<String> {
    const UNIONS: [&str; 5] = ["oneOf", "anyOf", "allOf", "enum", "not"];
    let is_unfit = |tool: &&Value| {
        let schema = &tool["function"]["parameters"];
        schema["type"] != "object" || UNIONS.iter().any(|word| !schema[*word].is_null())
    };
    let tool = asked.tools.iter().find(is_unfit)?;
    Some(format!(
        "Invalid schema for function '{}': schema must have type 'object' and not have \
         'oneOf'/'anyOf'/'allOf'/'enum'/'not' at the top level.",
        name(tool)
    ))
}

/// A schema is of an object.
pub(super) fn schema_without_type(asked: &Asked<'_>) -> Option<String> {
    let is_unfit = |tool: &&Value| tool["function"]["parameters"]["type"] != "object";
    let tool = asked.tools.iter().find(is_unfit)?;
    Some(format!(
        "Invalid schema for function '{}': schema must be a JSON Schema of 'type: \"object\"'",
        name(tool)
    ))
}

/// Kimi: alternatives stand alone.
pub(super) fn type_beside_any_of(asked: &Asked<'_>) -> Option<String> {
    let is_unfit = |schema: &Value| schema["anyOf"].is_array() && !schema["type"].is_null();
    asked.tools.iter().find(|tool| has_schema(&tool["function"]["parameters"], &is_unfit))?;
    Some(
        "tools.function.parameters is not a valid moonshot flavored json schema, details: <At path \
         'root': when using anyOf, type should be defined in anyOf items instead of the parent \
         schema>"
            .to_owned(),
    )
}

/// An array says what its items are.
pub(super) fn array_without_items(asked: &Asked<'_>) -> Option<String> {
    let is_array = |kind: &Value| {
        kind == "array"
            || kind.as_array().is_some_and(|kinds| kinds.iter().any(|one| one == "array"))
    };
    let is_unfit = |schema: &Value| is_array(&schema["type"]) && schema["items"].is_null();
    let is_it = |tool: &&Value| has_schema(&tool["function"]["parameters"], &is_unfit);
    let tool = asked.tools.iter().find(is_it)?;
    Some(format!("Invalid schema for function '{}': array schema missing items.", name(tool)))
}

/// Whether a schema, or one within it, is of a kind.
fn has_schema(schema: &Value, is_it: &dyn Fn(&Value) -> bool) -> bool {
    let within = |value: &Value| match value {
        Value::Object(fields) => fields.values().any(|one| has_schema(one, is_it)),
        Value::Array(items) => items.iter().any(|one| has_schema(one, is_it)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
    };
    (schema.is_object() && is_it(schema)) || within(schema)
}

/// A demanded call, while the model thinks.
pub(super) fn forced_while_thinking(asked: &Asked<'_>) -> Option<String> {
    let is_off = asked.body["thinking"]["type"] == "disabled"
        || asked.body["enable_thinking"] == Value::Bool(false);
    let choice = &asked.body["tool_choice"];
    let is_forced = choice == "required" || choice.is_object();
    (is_forced && !is_off).then(|| "Thinking mode does not support this tool_choice".to_owned())
}

pub(super) fn forced(asked: &Asked<'_>) -> Option<String> {
    let choice = &asked.body["tool_choice"];
    let is_forced = !choice.is_null() && choice != "auto";
    is_forced.then(|| "Tool choice must be auto".to_owned())
}

/// Anthropic: a demanded call, while the model thinks.
pub(super) fn anthropic_forced_while_thinking(asked: &Asked<'_>) -> Option<String> {
    let is_forced = matches!(asked.body["tool_choice"]["type"].as_str(), Some("any" | "tool"));
    let thinks = matches!(asked.body["thinking"]["type"].as_str(), Some("enabled" | "adaptive"));
    (is_forced && thinks)
        .then(|| "Thinking may not be enabled when tool_choice forces tool use.".to_owned())
}

/// Azure: longest description of a tool, in characters.
const MAX_AZURE_DESCRIPTION: usize = 1_024;

pub(super) fn long_description(asked: &Asked<'_>) -> Option<String> {
    let length = |tool: &Value| {
        // Responses has no object around the function.
        let text =
            tool["function"]["description"].as_str().or_else(|| tool["description"].as_str());
        text.unwrap_or_default().chars().count()
    };
    let mut lengths = list(&asked.body["tools"]).iter().map(length);
    let length = lengths.find(|length| *length > MAX_AZURE_DESCRIPTION)?;
    Some(format!(
        "Invalid 'tools[0].function.description': string too long. Expected a string with maximum \
         length {MAX_AZURE_DESCRIPTION}, but got a string with length {length} instead."
    ))
}

/// LM Studio: a demand is a word.
pub(super) fn choice_of_one(asked: &Asked<'_>) -> Option<String> {
    asked.body["tool_choice"].is_object().then(|| {
        "Invalid tool_choice type: 'object'. Supported string values: none, auto, required"
            .to_owned()
    })
}

pub(super) fn choice_without_tools(asked: &Asked<'_>) -> Option<String> {
    let is_lone = !asked.body["tool_choice"].is_null() && asked.tools.is_empty();
    is_lone.then(|| "When using `tool_choice`, `tools` must be set.".to_owned())
}

pub(super) fn empty_tools(asked: &Asked<'_>) -> Option<String> {
    let is_empty = asked.body["tools"].as_array().is_some_and(Vec::is_empty);
    is_empty.then(|| {
        "`tools` must not be an empty array. Either provide at least one tool or omit the field \
         entirely."
            .to_owned()
    })
}
