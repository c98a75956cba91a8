//! Fields of a request that are not followed.
//!
//! Clients always send some that only describe a request, or that other servers have. They are passed
//! over, and the response names them in a header. What would give another answer than the client expects
//! is refused by its name.

use http::{HeaderName, HeaderValue};
use serde_json::{Map, Value};

use crate::api_error::ApiError;

/// Fields of a request that are not known.
pub type OtherFields = Map<String, Value>;

/// Fields without which the answer has another form or other contents than the client expects.
const FOLLOWED_ELSEWHERE: [&str; 5] =
    ["audio", "logit_bias", "prompt", "top_logprobs", "web_search_options"];

/// Limits of the header: names, and characters of each.
const MAX_NAMES: usize = 20;
const MAX_NAME_CHARS: usize = 64;

/// Refuses fields that are not known, unless their value asks for nothing.
pub fn refuse_others(fields: &OtherFields) -> Result<(), ApiError> {
    match fields.iter().find(|(_, value)| asks_for_something(value)) {
        Some((name, _)) => {
            let name: String = name.chars().take(MAX_NAME_CHARS).collect();
            let message = format!("`{name}` is not supported: leave it out");
            Err(ApiError::unsupported(name, message))
        }
        None => Ok(()),
    }
}

/// Names of the fields of one request that are not followed.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct IgnoredFields(Vec<String>);

impl IgnoredFields {
    /// Notes fields that are not known, unless their value asks for nothing. `within` is the path of the
    /// object that has them, with a dot at its end, or empty.
    ///
    /// # Errors
    ///
    /// If one of them would change the answer.
    pub fn add(&mut self, within: &str, fields: &OtherFields) -> Result<(), ApiError> {
        for (name, _) in fields.iter().filter(|(_, value)| asks_for_something(value)) {
            let path: String = within.chars().chain(name.chars()).take(MAX_NAME_CHARS).collect();
            if within.is_empty() && FOLLOWED_ELSEWHERE.contains(&name.as_str()) {
                let message = format!("`{path}` is not supported: leave it out");
                return Err(ApiError::unsupported(path, message));
            }
            self.note(path);
        }
        Ok(())
    }

    /// Notes keys of an object that are not known, as [`add`](Self::add).
    pub fn add_keys(&mut self, within: &str, object: &Value, known: &[&str]) {
        let fields = object.as_object().into_iter().flatten();
        let others = fields.filter(|(name, _)| !known.contains(&name.as_str()));
        for (name, _) in others.filter(|(_, value)| asks_for_something(value)) {
            self.note(format!("{within}.{name}"));
        }
    }

    /// Notes something that is left out.
    pub fn note(&mut self, path: String) {
        let is_plain =
            |c: char| if c.is_ascii_alphanumeric() || "_-.".contains(c) { c } else { '_' };
        let path: String = path.chars().take(MAX_NAME_CHARS).map(is_plain).collect();
        if self.0.len() < MAX_NAMES && !self.0.contains(&path) {
            self.0.push(path);
        }
    }

    /// Header that names them: `x-holdfast-ignored: metadata, tools.web_search`; `None` if there are none.
    pub fn header(&self) -> Option<[(HeaderName, HeaderValue); 1]> {
        let names = HeaderValue::from_str(&self.0.join(", ")).ok()?;
        (!self.0.is_empty()).then(|| [(HeaderName::from_static("x-holdfast-ignored"), names)])
    }
}

fn asks_for_something(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(false) => false,
        Value::Number(number) => number.as_f64() != Some(0.0),
        Value::Object(fields) => !fields.is_empty(),
        Value::Array(items) => !items.is_empty(),
        Value::Bool(true) | Value::String(_) => true,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_asks_for_nothing_is_not_named_and_what_changes_the_answer_is_refused() {
        let mut ignored = IgnoredFields::default();
        let fields = |value: Value| value.as_object().cloned().unwrap();

        ignored.add("", &fields(json!({"store": true, "a": 0, "b": [], "x\ny: z": 1}))).unwrap();
        ignored.add("text.", &fields(json!({"verbosity": "low", "audio": {"a": 1}}))).unwrap();
        let refused = ignored.add("", &fields(json!({"logit_bias": {"1": 2}}))).unwrap_err();

        assert!(refused.message().contains("`logit_bias`"));
        let [(_, names)] = ignored.header().unwrap();
        assert_eq!(names, "store, x_y__z, text.audio, text.verbosity");
        assert_eq!(IgnoredFields::default().header(), None);
    }

    #[test]
    fn the_header_is_bounded() {
        let mut ignored = IgnoredFields::default();
        for n in 0..1_000 {
            ignored.note(format!("{n}{}", "x".repeat(1_000)));
        }

        let [(_, names)] = ignored.header().unwrap();
        assert!(names.len() <= MAX_NAMES * (MAX_NAME_CHARS + 2));
    }
}
