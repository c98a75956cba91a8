//! Which field is wrong, and what to write there.

use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::Unusable;

/// A field's name, and what may be written there.
pub type Field = (&'static str, &'static str);

/// Reads settings whose fields are these; `at` is what goes before their names.
pub fn settings<T: DeserializeOwned>(
    at: &str,
    fields: &[Field],
    value: &Value,
) -> Result<T, Unusable> {
    object(value).ok_or_else(|| Unusable(told::<T>(at, fields, value)))
}

/// Reads secrets that look like this. The parser's own words could repeat one.
pub fn secrets<T: DeserializeOwned>(value: &Value, looks: &str) -> Result<T, Unusable> {
    object(value).ok_or_else(|| {
        Unusable(format!("the `secrets` are not what they should be: write {looks}"))
    })
}

/// A list would do for a struct, too, and nobody could say what is what in it.
fn object<T: DeserializeOwned>(value: &Value) -> Option<T> {
    T::deserialize(value).ok().filter(|_| value.is_object())
}

fn told<T: DeserializeOwned>(at: &str, fields: &[Field], value: &Value) -> String {
    let Some(object) = value.as_object() else {
        return format!("`{at}` is not what it should be: write a JSON object, {{…}}");
    };
    for (name, value) in object {
        let Some((_, wanted)) = fields.iter().find(|(known, _)| known == name) else {
            let name: String = name.chars().take(80).collect();
            let known: Vec<String> = fields.iter().map(|(name, _)| format!("`{name}`")).collect();
            return format!("`{at}` has no `{name}`: there are {}", known.join(", "));
        };
        // Every field has a default, so that each can be tried alone.
        if T::deserialize(json!({ name: value })).is_err() {
            return format!("`{at}.{name}` is not what it should be: write {wanted}");
        }
    }
    format!("`{at}` is not what it should be: docs/channels.md has its fields")
}
