//! Errors in account settings: the wrong field, and the expected value.

use serde::{
    Deserializer,
    de::{DeserializeOwned, Error as _, Visitor, value::Error},
    forward_to_deserialize_any,
};
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

/// Names of the fields that a struct is read from.
pub fn field_names<T: DeserializeOwned>() -> &'static [&'static str] {
    let mut names: &'static [&'static str] = &[];
    // Always an error, since there is no value.
    let _no_value = T::deserialize(FieldNames(&mut names));
    names
}

/// Deserializer that has no value and notes the fields that a struct asks for.
struct FieldNames<'a>(&'a mut &'static [&'static str]);

impl<'de> Deserializer<'de> for FieldNames<'_> {
    type Error = Error;

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        fields: &'static [&'static str],
        _: V,
    ) -> Result<V::Value, Error> {
        *self.0 = fields;
        Err(Error::custom("no value"))
    }

    fn deserialize_any<V: Visitor<'de>>(self, _: V) -> Result<V::Value, Error> {
        Err(Error::custom("no struct"))
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf option
        unit unit_struct newtype_struct seq tuple tuple_struct map enum identifier ignored_any
    }
}
