//! Errors in account settings: the wrong field, and the expected value.

use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::UnusableAccount;

/// Name of a field, and a description of its values.
pub type Field = (&'static str, &'static str);

/// Parses settings with these fields; `at` is the prefix of their names in errors.
pub fn parse_settings<T: DeserializeOwned>(
    at: &str,
    fields: &[Field],
    value: &Value,
) -> Result<T, UnusableAccount> {
    parse_object(value).ok_or_else(|| UnusableAccount(describe_error::<T>(at, fields, value)))
}

/// Parses secrets; `looks` describes their form. The parser's message is dropped, because it could
/// repeat a secret.
pub fn parse_secrets<T: DeserializeOwned>(
    value: &Value,
    looks: &str,
) -> Result<T, UnusableAccount> {
    parse_object(value).ok_or_else(|| {
        UnusableAccount(format!("the `secrets` are not what they should be: write {looks}"))
    })
}

/// Parses an object. Serde would also accept a list for a struct, without field names.
fn parse_object<T: DeserializeOwned>(value: &Value) -> Option<T> {
    T::deserialize(value).ok().filter(|_| value.is_object())
}

fn describe_error<T: DeserializeOwned>(at: &str, fields: &[Field], value: &Value) -> String {
    let Some(object) = value.as_object() else {
        return format!("`{at}` is not what it should be: write a JSON object, {{…}}");
    };
    for (name, value) in object {
        let Some((_, wanted)) = fields.iter().find(|(known, _)| known == name) else {
            let name: String = name.chars().take(80).collect();
            let known: Vec<String> = fields.iter().map(|(name, _)| format!("`{name}`")).collect();
            return format!("`{at}` has no `{name}`: there are {}", known.join(", "));
        };
        // Every field has a default, so each can be parsed alone.
        if T::deserialize(json!({ name: value })).is_err() {
            return format!("`{at}.{name}` is not what it should be: write {wanted}");
        }
    }
    format!("`{at}` is not what it should be: docs/channels.md has its fields")
}
