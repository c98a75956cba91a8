//! Objects of WhatsApp's webhooks
//! (<https://developers.facebook.com/docs/whatsapp/cloud-api/webhooks/components>).

use serde::{Deserialize, Deserializer};
use serde_json::Value;

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct Webhook {
    pub entry: Vec<Entry>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct Entry {
    pub changes: Vec<Change>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct Change {
    pub value: Changed,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct Changed {
    pub metadata: Metadata,
    pub contacts: Vec<Contact>,
    #[serde(deserialize_with = "readable")]
    pub messages: Vec<Message>,
    #[serde(deserialize_with = "readable")]
    pub statuses: Vec<Status>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct Metadata {
    pub phone_number_id: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct Contact {
    pub wa_id: String,
    pub profile: Profile,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct Profile {
    pub name: String,
}

#[derive(Debug, Clone, Deserialize)]
pub struct Message {
    pub from: String,
    pub id: String,
    /// Seconds since 1970, as text.
    #[serde(default)]
    pub timestamp: String,
    #[serde(rename = "type")]
    pub kind: String,
    /// Message that this one answers.
    #[serde(default)]
    pub context: Context,
    /// The content, in a field named like the type.
    #[serde(flatten)]
    pub fields: serde_json::Map<String, Value>,
}

impl Message {
    /// Returns the content of the message's type.
    pub fn content(&self) -> &Value {
        self.fields.get(&self.kind).unwrap_or(&Value::Null)
    }
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct Context {
    pub id: String,
    pub from: String,
    pub forwarded: bool,
}

#[derive(Debug, Clone, Deserialize)]
pub struct Status {
    /// Id of the message.
    pub id: String,
    /// `sent`, `delivered`, `read` or `failed`.
    pub status: String,
    #[serde(default)]
    pub biz_opaque_callback_data: String,
}

/// Reads the objects that can be read: one of a new kind must not hold up all others.
fn readable<'de, D: Deserializer<'de>, T: serde::de::DeserializeOwned>(
    deserializer: D,
) -> Result<Vec<T>, D::Error> {
    let values = Vec::<Value>::deserialize(deserializer)?;
    Ok(values.into_iter().filter_map(|value| serde_json::from_value(value).ok()).collect())
}
