//! Reading of stored values that a newer version wrote.

use serde::{Deserialize, Deserializer, de::DeserializeOwned};

/// Deserializes a field of a stored value. A word that this version does not know counts as the
/// default, so that one setting of a newer version does not make the whole row unreadable.
///
/// For words whose default is safe; never for lists of what is allowed.
pub fn known_or_default<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: DeserializeOwned + Default,
{
    let stored = serde_json::Value::deserialize(deserializer)?;
    Ok(T::deserialize(stored).unwrap_or_default())
}
