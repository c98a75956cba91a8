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
use serde_json::{Value, json};

/// OpenAI's maximum length of a function name.
const MAX_TOOL_NAME_BYTES: usize = 64;

/// Placeholder for an empty message, where a provider requires text.
pub(crate) const EMPTY_TEXT: &str = "(no text)";

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
    taken: BTreeSet<String>,
    /// Unique ids of the newest reply's calls, by their id in the journal.
    newest: BTreeMap<String, String>,
}

impl UniqueCallIds {
    /// Assigns ids to the calls of the next reply.
    pub(crate) fn begin(&mut self, calls: &[ToolCall]) {
        self.newest.clear();
        for call in calls {
            let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
            let base: String =
                call.id.chars().take(48).map(|c| if fits(c) { c } else { '_' }).collect();
            let base = if base.is_empty() { "call".to_owned() } else { base };
            let mut id = base.clone();
            let mut n = 2;
            while !self.taken.insert(id.clone()) {
                id = format!("{base}-{n}");
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

#[cfg(test)]
mod tests {
    use super::*;

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
    fn an_input_that_is_no_object_is_put_into_one() {
        assert_eq!(object(r#"{"a":1}"#), json!({ "a": 1 }));
        assert_eq!(object("[1]"), json!({ "unreadable": "[1]" }));
        assert_eq!(object("{\"a"), json!({ "unreadable": "{\"a" }));
    }
}
