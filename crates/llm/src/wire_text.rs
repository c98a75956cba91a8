//! Conversions of a conversation into what providers accept.
//!
//! Each reply of a model is sent with every later request: an invalid tool name or a duplicate call
//! id would make all of them fail.

use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet},
};

use holdfast_types::{Image, ImageData, ToolCall};
use serde::de::IgnoredAny;
use serde_json::{Map, Value, json};
use sha2::{Digest as _, Sha256};

/// OpenAI's maximum length of a function name.
const MAX_TOOL_NAME_BYTES: usize = 64;

/// Placeholder for an empty message, where a provider requires text.
pub(crate) const EMPTY_TEXT: &str = "(no text)";

/// Message of the assistant between results and a message of the user, where a provider requires one.
pub(crate) const RESULTS_SEEN: &str = "(results received)";

/// Returns the beginning of a tool's description, if the provider takes only so many characters.
pub(crate) fn cut_description(description: &str, most: Option<usize>) -> Cow<'_, str> {
    match most {
        Some(most) if description.chars().count() > most => {
            let beginning: String = description.chars().take(most.saturating_sub(1)).collect();
            format!("{beginning}…").into()
        }
        Some(_) | None => description.into(),
    }
}

/// Replaces characters of a tool name that providers refuse.
pub(crate) fn tool_name(given: &str) -> Cow<'_, str> {
    let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
    if (1..=MAX_TOOL_NAME_BYTES).contains(&given.len()) && given.chars().all(fits) {
        return given.into();
    }
    let name: String =
        given.chars().take(MAX_TOOL_NAME_BYTES).map(|c| if fits(c) { c } else { '_' }).collect();
    if name.is_empty() { "unknown".into() } else { name.into() }
}

/// Returns an input that is valid JSON: some servers parse it and fail otherwise.
pub(crate) fn arguments(input: &str) -> Cow<'_, str> {
    match serde_json::from_str::<IgnoredAny>(input) {
        Ok(_) => input.into(),
        Err(_) => unreadable(input).to_string().into(),
    }
}

/// Returns an input as an object, for servers that require one.
pub(crate) fn object(input: &str) -> Value {
    match serde_json::from_str(input) {
        Ok(value @ Value::Object(_)) => value,
        Ok(_) | Err(_) => unreadable(input),
    }
}

fn unreadable(input: &str) -> Value {
    json!({ "unreadable": input })
}

/// Words that unite schemas.
const UNIONS: [&str; 3] = ["anyOf", "oneOf", "allOf"];

/// Returns the schema of a tool's input in a form that all providers take: of an object, without unions at
/// its top (<https://github.com/anthropics/claude-code/issues/5319>,
/// <https://github.com/nspady/google-calendar-mcp/issues/39>), and with `items` in each array
/// (<https://github.com/modelscope/ms-agent/pull/610>). The properties of united schemas become those of the
/// object; only those that `allOf` demands stay demanded. The runner checks calls by the schema as it was.
pub(crate) fn tool_schema(schema: &Value) -> Cow<'_, Value> {
    let is_fit = schema["type"] == "object"
        && ["not", "enum"].iter().chain(&UNIONS).all(|word| schema.get(*word).is_none())
        && !lacks_items(schema);
    if is_fit {
        return Cow::Borrowed(schema);
    }
    let mut fields = schema.as_object().cloned().unwrap_or_default();
    for word in UNIONS {
        let united = fields.remove(word).unwrap_or_default();
        for one in united.as_array().into_iter().flatten() {
            unite(&mut fields, one, word == "allOf");
        }
    }
    fields.remove("not");
    fields.remove("enum");
    fields.insert("type".to_owned(), "object".into());
    fields.entry("properties").or_insert_with(|| json!({}));
    let mut fit = Value::Object(fields);
    add_items(&mut fit);
    Cow::Owned(fit)
}

/// Adds the properties of one of several united schemas. The first description of a property stays.
fn unite(fields: &mut Map<String, Value>, one: &Value, is_demanded: bool) {
    let known = fields.entry("properties").or_insert_with(|| json!({}));
    if let (Some(known), Some(more)) = (known.as_object_mut(), one["properties"].as_object()) {
        for (name, schema) in more {
            known.entry(name).or_insert_with(|| schema.clone());
        }
    }
    if let (true, Some(more)) = (is_demanded, one["required"].as_array()) {
        let known = fields.entry("required").or_insert_with(|| json!([]));
        if let Some(known) = known.as_array_mut() {
            known.extend(more.iter().cloned());
        }
    }
}

fn is_array_schema(schema: &Value) -> bool {
    let kind = &schema["type"];
    kind == "array" || kind.as_array().is_some_and(|kinds| kinds.iter().any(|kind| kind == "array"))
}

/// Schemas that a schema consists of.
fn parts(schema: &Value) -> impl Iterator<Item = &Value> {
    let named =
        ["properties", "$defs", "definitions"].into_iter().filter_map(|key| schema.get(key));
    let named = named.filter_map(Value::as_object).flat_map(Map::values);
    let listed = UNIONS.into_iter().filter_map(|key| schema.get(key)?.as_array()).flatten();
    let single = ["items", "additionalProperties"].into_iter().filter_map(|key| schema.get(key));
    named.chain(listed).chain(single)
}

fn lacks_items(schema: &Value) -> bool {
    is_array_schema(schema) && schema.get("items").is_none() || parts(schema).any(lacks_items)
}

fn add_items(schema: &mut Value) {
    let is_lacking = is_array_schema(schema) && schema.get("items").is_none();
    let Some(fields) = schema.as_object_mut() else { return };
    if is_lacking {
        fields.insert("items".to_owned(), json!({}));
    }
    for (key, part) in fields {
        match (key.as_str(), part) {
            ("properties" | "$defs" | "definitions", Value::Object(named)) => {
                named.values_mut().for_each(add_items);
            }
            ("anyOf" | "oneOf" | "allOf", Value::Array(listed)) => {
                listed.iter_mut().for_each(add_items);
            }
            ("items" | "additionalProperties", single) => add_items(single),
            _ => {}
        }
    }
}

/// Returns a tool's output, with the failure in the text, for providers without a field for it.
pub(crate) fn outcome(output: &str, is_failed: bool) -> Cow<'_, str> {
    if is_failed { format!("error: {output}").into() } else { output.into() }
}

/// Joins the system prompt, the stable part first.
pub(crate) fn system_prompt(stable: &str, dynamic: &str) -> String {
    let parts: Vec<&str> = [stable.trim_end(), dynamic.trim_end()]
        .into_iter()
        .filter(|part| !part.is_empty())
        .collect();
    parts.join("\n\n")
}

/// Returns a placeholder for images that the model cannot see.
pub(crate) fn image_placeholder(count: usize) -> String {
    match count {
        1 => "[a picture was shown here that this model cannot see]".to_owned(),
        _ => format!("[{count} pictures were shown here that this model cannot see]"),
    }
}

/// Returns an image as a URL.
pub(crate) fn image_url(image: &Image) -> String {
    match &image.data {
        ImageData::Url(url) => url.clone(),
        ImageData::Base64(data) => format!("data:{};base64,{data}", image.media_type),
    }
}

/// Unique call ids, for providers that require them in the whole conversation.
///
/// The ids in the journal are unique within one reply only, and another provider may have made
/// them.
#[derive(Debug, Default)]
pub(crate) struct UniqueCallIds {
    form: CallIdForm,
    taken: BTreeSet<String>,
    /// Unique ids of the newest reply's calls, by their id in the journal.
    newest: BTreeMap<String, String>,
}

/// What ids of calls look like.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum CallIdForm {
    /// Letters, digits, `_` and `-`.
    #[default]
    Word,
    /// Nine letters or digits.
    NineCharacters,
}

impl UniqueCallIds {
    pub(crate) fn of_form(form: CallIdForm) -> Self {
        Self { form, ..Self::default() }
    }

    /// Assigns ids to the calls of the next reply.
    pub(crate) fn begin(&mut self, calls: &[ToolCall]) {
        self.newest.clear();
        for call in calls {
            let mut id = self.form.of(&call.id, 1);
            let mut n = 2;
            while !self.taken.insert(id.clone()) {
                id = self.form.of(&call.id, n);
                n += 1;
            }
            self.newest.insert(call.id.clone(), id);
        }
    }

    /// Returns the unique id of a call of the newest reply.
    pub(crate) fn of<'a>(&'a self, call: &'a str) -> &'a str {
        self.newest.get(call).map_or(call, String::as_str)
    }
}

impl CallIdForm {
    /// Returns the id in this form; the `n`th if it is used several times. The same input has the same
    /// result in each request, which providers' caches need.
    fn of(self, id: &str, n: usize) -> String {
        match self {
            Self::Word => {
                let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
                let base: String =
                    id.chars().take(48).map(|c| if fits(c) { c } else { '_' }).collect();
                let base = if base.is_empty() { "call" } else { &base };
                if n == 1 { base.to_owned() } else { format!("{base}-{n}") }
            }
            Self::NineCharacters => {
                let fits = id.len() == 9 && id.bytes().all(|byte| byte.is_ascii_alphanumeric());
                if fits && n == 1 {
                    return id.to_owned();
                }
                let hash = Sha256::digest(format!("{n} {id}"));
                let digit = |byte: &u8| {
                    char::from(CALL_ID_DIGITS[usize::from(*byte) % CALL_ID_DIGITS.len()])
                };
                hash.iter().take(9).map(digit).collect()
            }
        }
    }
}

/// Characters of ids that are made from a hash.
const CALL_ID_DIGITS: &[u8; 36] = b"abcdefghijklmnopqrstuvwxyz0123456789";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_of_nine_characters_are_kept_or_made_from_the_id() {
        let mut ids = UniqueCallIds::of_form(CallIdForm::NineCharacters);

        ids.begin(&[call("abcDEF123"), call("call_1"), call("toolu_01")]);
        let first = ["abcDEF123", "call_1", "toolu_01"].map(|id| ids.of(id).to_owned());
        ids.begin(&[call("abcDEF123"), call("call_1")]);
        let second = ["abcDEF123", "call_1"].map(|id| ids.of(id).to_owned());

        assert_eq!(first[0], "abcDEF123");
        let all: BTreeSet<&String> = first.iter().chain(&second).collect();
        assert_eq!(all.len(), 5, "{all:?}");
        assert!(
            all.iter().all(|id| id.len() == 9 && id.bytes().all(|b| b.is_ascii_alphanumeric()))
        );
        let mut again = UniqueCallIds::of_form(CallIdForm::NineCharacters);
        again.begin(&[call("abcDEF123"), call("call_1"), call("toolu_01")]);
        assert_eq!(again.of("call_1"), first[1]);
    }

    fn call(id: &str) -> ToolCall {
        ToolCall { id: id.into(), tool: "t".into(), input: "{}".into() }
    }

    #[test]
    fn an_id_that_was_used_before_gets_another() {
        let mut ids = UniqueCallIds::default();

        ids.begin(&[call("call_1"), call("a b")]);
        assert_eq!((ids.of("call_1"), ids.of("a b")), ("call_1", "a_b"));
        ids.begin(&[call("call_1")]);
        assert_eq!(ids.of("call_1"), "call_1-2");
        ids.begin(&[call("call_1"), call("")]);
        assert_eq!((ids.of("call_1"), ids.of("")), ("call_1-3", "call"));
    }

    #[test]
    fn a_schema_that_providers_refuse_becomes_one_of_an_object() {
        let plain = json!({"type": "object", "properties": {"a": {"type": "array", "items": {}}}});
        assert!(matches!(tool_schema(&plain), Cow::Borrowed(_)));

        let union = json!({
            "type": "object", "properties": {"a": {"type": "string"}},
            "anyOf": [{"properties": {"b": {"type": "integer"}}, "required": ["b"]}],
            "allOf": [{"properties": {"a": {"type": "null"}}, "required": ["a"]}],
        });
        let fit = json!({
            "type": "object", "required": ["a"],
            "properties": {"a": {"type": "string"}, "b": {"type": "integer"}},
        });
        assert_eq!(*tool_schema(&union), fit);
        assert_eq!(*tool_schema(&json!(true)), json!({"type": "object", "properties": {}}));
        let deep = json!({"type": "object", "properties": {
            "a": {"anyOf": [{"type": ["array", "null"]}, {"items": {"type": "array"}}]},
        }});
        assert_eq!(
            tool_schema(&deep)["properties"]["a"],
            json!({"anyOf": [
                {"type": ["array", "null"], "items": {}},
                {"items": {"type": "array", "items": {}}},
            ]})
        );
    }

    #[test]
    fn an_input_that_is_no_object_is_put_into_one() {
        assert_eq!(object(r#"{"a":1}"#), json!({ "a": 1 }));
        assert_eq!(object("[1]"), json!({ "unreadable": "[1]" }));
        assert_eq!(object("{\"a"), json!({ "unreadable": "{\"a" }));
    }
}
