//! How a conversation is written so that a provider takes it back, whatever a model made of it.
//!
//! What a model said once is sent with every later request: a name that no provider takes, or an
//! id that was used twice, would make all of them fail.

use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet},
};

use holdfast_types::{Image, ImageData, ToolCall};
use serde::de::IgnoredAny;
use serde_json::{Value, json};

/// What OpenAI takes as the longest name of a function.
const LONGEST_NAME: usize = 64;

/// What stands for a message that says nothing, where a provider insists on a word.
pub(crate) const BLANK: &str = "(no text)";

/// A tool's name as providers take it.
pub(crate) fn name(given: &str) -> Cow<'_, str> {
    let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
    if (1..=LONGEST_NAME).contains(&given.len()) && given.chars().all(fits) {
        return given.into();
    }
    let name: String =
        given.chars().take(LONGEST_NAME).map(|c| if fits(c) { c } else { '_' }).collect();
    if name.is_empty() { "unknown".into() } else { name.into() }
}

/// An input as servers take it, some of which read it as JSON and fail on what is none.
pub(crate) fn arguments(input: &str) -> Cow<'_, str> {
    match serde_json::from_str::<IgnoredAny>(input) {
        Ok(_) => input.into(),
        Err(_) => unreadable(input).to_string().into(),
    }
}

/// An input as servers take it that want an object.
pub(crate) fn object(input: &str) -> Value {
    match serde_json::from_str(input) {
        Ok(value @ Value::Object(_)) => value,
        Ok(_) | Err(_) => unreadable(input),
    }
}

fn unreadable(input: &str) -> Value {
    json!({ "unreadable": input })
}

/// What a tool answered, where a provider has no field for failure.
pub(crate) fn outcome(output: &str, is_failed: bool) -> Cow<'_, str> {
    if is_failed { format!("error: {output}").into() } else { output.into() }
}

/// All that a model is told, the stable part first.
pub(crate) fn told(stable: &str, dynamic: &str) -> String {
    let parts: Vec<&str> = [stable.trim_end(), dynamic.trim_end()]
        .into_iter()
        .filter(|part| !part.is_empty())
        .collect();
    parts.join("\n\n")
}

/// What stands for pictures that a model cannot see.
pub(crate) fn unseen(count: usize) -> String {
    match count {
        1 => "[a picture was shown here that this model cannot see]".to_owned(),
        _ => format!("[{count} pictures were shown here that this model cannot see]"),
    }
}

/// A picture as one URL.
pub(crate) fn url(image: &Image) -> String {
    match &image.data {
        ImageData::Url(url) => url.clone(),
        ImageData::Base64(data) => format!("data:{};base64,{data}", image.media_type),
    }
}

/// The ids of a conversation's calls, where a provider wants each to be used once.
///
/// Ours are unique within one reply only, and another provider may have made them.
#[derive(Debug, Default)]
pub(crate) struct Ids {
    taken: BTreeSet<String>,
    /// What the calls of the newest reply are called.
    now: BTreeMap<String, String>,
}

impl Ids {
    /// The next reply begins, with these calls.
    pub(crate) fn begin(&mut self, calls: &[ToolCall]) {
        self.now.clear();
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
            self.now.insert(call.id.clone(), id);
        }
    }

    /// What a call of the newest reply is called.
    pub(crate) fn of<'a>(&'a self, call: &'a str) -> &'a str {
        self.now.get(call).map_or(call, String::as_str)
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
        let mut ids = Ids::default();

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
