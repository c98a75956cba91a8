//! JSON value with limits on depth and size that apply while it is deserialized.
//!
//! The JSON5 parser has no depth limit and recurses once per bracket. The visitor refuses to
//! descend beyond the limit. Counting brackets beforehand would be wrong, because strings and
//! comments contain brackets, too.

use std::{cell::Cell, fmt};

use serde::de::{Deserialize, DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};

use super::{MAX_DOCUMENT_DEPTH, MAX_DOCUMENT_NODES};

/// Value of a whole document.
#[derive(Debug)]
pub(super) struct LimitedValue(pub(super) Value);

impl<'de> Deserialize<'de> for LimitedValue {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let values = Cell::new(MAX_DOCUMENT_NODES);
        RemainingLimits { levels: MAX_DOCUMENT_DEPTH, values: &values }.deserialize(from).map(Self)
    }
}

/// Remaining depth and number of values.
#[derive(Debug, Clone, Copy)]
struct RemainingLimits<'a> {
    /// Levels of lists and maps that may follow.
    levels: usize,
    /// Values that may follow, over all levels.
    values: &'a Cell<usize>,
}

impl RemainingLimits<'_> {
    /// Limits within one more list or map.
    fn inner<E: Error>(self) -> Result<Self, E> {
        match self.levels.checked_sub(1) {
            Some(levels) => Ok(Self { levels, ..self }),
            None => Err(E::custom(format!(
                "nests more than {MAX_DOCUMENT_DEPTH} levels deep: make it flatter"
            ))),
        }
    }
}

impl<'de> DeserializeSeed<'de> for RemainingLimits<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<Value, D::Error> {
        match self.values.get().checked_sub(1) {
            Some(left) => self.values.set(left),
            None => {
                return Err(D::Error::custom(format!(
                    "has more than {MAX_DOCUMENT_NODES} values: put what is long into the text below it"
                )));
            }
        }
        from.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for RemainingLimits<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut entries: A) -> Result<Value, A::Error> {
        let inner = self.inner()?;
        let mut list = Vec::new();
        while let Some(entry) = entries.next_element_seed(inner)? {
            list.push(entry);
        }
        Ok(Value::Array(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Value, A::Error> {
        let inner = self.inner()?;
        let mut map = Map::new();
        while let Some(key) = entries.next_key::<String>()? {
            let value = entries.next_value_seed(inner)?;
            if map.insert(key, value).is_some() {
                return Err(A::Error::custom("has the same key twice: leave one of them"));
            }
        }
        Ok(Value::Object(map))
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    /// Numbers that JSON cannot represent, such as `NaN`, become null.
    fn visit_f64<E: Error>(self, value: f64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_string<E: Error>(self, value: String) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_unit<E: Error>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_none<E: Error>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_some<D: Deserializer<'de>>(self, from: D) -> Result<Value, D::Error> {
        from.deserialize_any(self)
    }
}
