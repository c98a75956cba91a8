//! Typed access to the fields of a document, with errors that say what to write.

use serde_json::{Map, Value};

use crate::Flaw;

/// Maximum number of entries of a list.
const MAX_LIST_ENTRIES: usize = 64;
/// Maximum length of a short text (name, key, address), in characters.
const MAX_SHORT_CHARS: usize = 512;

/// Map within a document, and its path.
pub(crate) type NestedMap<'a> = (&'a Map<String, Value>, String);

/// Map of a document, with its path for errors.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Fields<'a> {
    map: &'a Map<String, Value>,
    /// Such as `metadata.openclaw`; empty at the top level.
    path: &'a str,
}

impl<'a> Fields<'a> {
    /// Fields at the top level of a document.
    pub(crate) fn of(document: &'a Value) -> Result<Self, Flaw> {
        match document {
            Value::Object(map) => Ok(Self { map, path: "" }),
            _ => Err(Flaw::of("is no list of fields: write `name: …` and `description: …`")),
        }
    }

    /// Fields of a nested map at a path.
    pub(crate) const fn within(map: &'a Map<String, Value>, path: &'a str) -> Self {
        Self { map, path }
    }

    /// Full path of a field.
    pub(crate) fn path_of(&self, name: &str) -> String {
        if self.path.is_empty() { name.to_owned() } else { format!("{}.{name}", self.path) }
    }

    /// Error about one of these fields.
    pub(crate) fn flaw(&self, name: &str, problem: impl Into<String>) -> Flaw {
        Flaw::at(&self.path_of(name), problem)
    }

    /// Value of a field; `None` if it is missing or null.
    pub(crate) fn get(&self, name: &str) -> Option<&'a Value> {
        self.map.get(name).filter(|value| !value.is_null())
    }

    /// Names of the existing fields.
    pub(crate) fn names(&self) -> impl Iterator<Item = &'a str> {
        self.map.keys().map(String::as_str)
    }

    /// Text of a field. Numbers are converted, because YAML reads some versions and keys as
    /// numbers.
    pub(crate) fn text(&self, name: &str) -> Result<Option<String>, Flaw> {
        match self.get(name) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text.clone())),
            Some(Value::Number(number)) => Ok(Some(number.to_string())),
            Some(_) => Err(self.flaw(name, format!("must be a text, as in `{name}: \"…\"`"))),
        }
    }

    /// Text that must not be missing or blank.
    pub(crate) fn required_text(&self, name: &str, example: &str) -> Result<String, Flaw> {
        let text = self.text(name)?.filter(|text| !text.trim().is_empty());
        text.ok_or_else(|| self.flaw(name, format!("is missing: write `{name}: {example}`")))
    }

    /// Single line of at most 512 characters.
    pub(crate) fn short_line(&self, name: &str) -> Result<Option<String>, Flaw> {
        let Some(text) = self.text(name)? else { return Ok(None) };
        let text = text.trim();
        let length = text.chars().count();
        if length > MAX_SHORT_CHARS {
            return Err(self.flaw(
                name,
                format!("has {length} characters, and {MAX_SHORT_CHARS} is the most: shorten it"),
            ));
        }
        if holdfast_tools::clean(text) != text || text.contains(['\n', '\t']) {
            return Err(self.flaw(name, "must be one line without invisible characters"));
        }
        Ok((!text.is_empty()).then(|| text.to_owned()))
    }

    pub(crate) fn flag(&self, name: &str, otherwise: FlagDefault) -> Result<bool, Flaw> {
        match self.get(name) {
            None => Ok(otherwise == FlagDefault::Yes),
            Some(Value::Bool(flag)) => Ok(*flag),
            Some(Value::String(text)) => match text.trim().to_ascii_lowercase().as_str() {
                "true" | "yes" => Ok(true),
                "false" | "no" => Ok(false),
                _ => Err(self.no_flag(name)),
            },
            Some(_) => Err(self.no_flag(name)),
        }
    }

    fn no_flag(&self, name: &str) -> Flaw {
        self.flaw(name, format!("must be `true` or `false`, as in `{name}: true`"))
    }

    /// List of short texts without duplicates; a single text is a list of one.
    pub(crate) fn list(&self, name: &str) -> Result<Vec<String>, Flaw> {
        let wrong =
            || self.flaw(name, format!("must be a list of texts, as in `{name}: [one, two]`"));
        let entries = match self.get(name) {
            None => return Ok(Vec::new()),
            Some(Value::Array(entries)) => entries.as_slice(),
            Some(one @ Value::String(_)) => std::slice::from_ref(one),
            Some(_) => return Err(wrong()),
        };
        if entries.len() > MAX_LIST_ENTRIES {
            return Err(self.flaw(
                name,
                format!("has {} entries, and {MAX_LIST_ENTRIES} is the most", entries.len()),
            ));
        }
        let mut list = Vec::with_capacity(entries.len());
        for entry in entries {
            let text = match entry {
                Value::String(text) => text.trim().to_owned(),
                Value::Number(number) => number.to_string(),
                _ => return Err(wrong()),
            };
            if text.is_empty()
                || text.chars().count() > MAX_SHORT_CHARS
                || holdfast_tools::clean(&text) != text
            {
                return Err(wrong());
            }
            if !list.contains(&text) {
                list.push(text);
            }
        }
        Ok(list)
    }

    /// Nested map and its path, for [`Fields::within`].
    pub(crate) fn map(&self, name: &str) -> Result<Option<NestedMap<'a>>, Flaw> {
        match self.get(name) {
            None => Ok(None),
            Some(Value::Object(map)) => Ok(Some((map, self.path_of(name)))),
            Some(_) => {
                Err(self.flaw(name, "must have fields of its own, one on each line below it"))
            }
        }
    }
}

/// Default of a boolean field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FlagDefault {
    Yes,
    No,
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_field_of_the_wrong_kind_is_named_with_what_to_write() {
        let document = json!({ "a": { "bins": [1, {}], "flag": "perhaps", "text": [] } });
        let (map, path) = Fields::of(&document).unwrap().map("a").unwrap().unwrap();
        let fields = Fields::within(map, &path);

        for (flaw, told) in [
            (
                fields.list("bins").unwrap_err(),
                "`a.bins` must be a list of texts, as in `bins: [one, two]`",
            ),
            (
                fields.flag("flag", FlagDefault::No).unwrap_err(),
                "`a.flag` must be `true` or `false`, as in `flag: true`",
            ),
            (fields.text("text").unwrap_err(), "`a.text` must be a text, as in `text: \"…\"`"),
            (
                fields.required_text("name", "x").unwrap_err(),
                "`a.name` is missing: write `name: x`",
            ),
        ] {
            assert_eq!(flaw.to_string(), told);
        }
    }

    #[test]
    fn what_is_not_there_is_what_it_is_otherwise() {
        let document = json!({ "null": null, "one": "x", "yes": "Yes" });
        let fields = Fields::of(&document).unwrap();

        assert_eq!(fields.text("null"), Ok(None));
        assert_eq!(fields.flag("null", FlagDefault::Yes), Ok(true));
        assert_eq!(fields.flag("yes", FlagDefault::No), Ok(true));
        assert_eq!(fields.list("one"), Ok(vec!["x".to_owned()]));
    }
}
