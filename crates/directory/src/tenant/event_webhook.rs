//! Webhooks to which events of a tenant are sent.

use holdfast_types::{AgentId, SessionId};
use jiff::Timestamp;
use secrecy::SecretString;
use uuid::Uuid;

use crate::Error;

/// Maximum number of types in a filter.
const MAX_TYPES: usize = 20;
/// Maximum length of a type or a channel in a filter, in bytes.
const MAX_WORD_BYTES: usize = 64;
/// Maximum length of an address, in bytes.
const MAX_URL_BYTES: usize = 2_000;

/// Settings of a webhook.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NewEventWebhook {
    /// Name in the tenant, such as `crm`.
    pub name: String,
    pub url: String,
    /// Types or beginnings of types; empty for all.
    pub types: Vec<String>,
    pub agent: Option<AgentId>,
    pub session: Option<SessionId>,
    pub channel: Option<String>,
    /// Whether texts of messages are sent.
    pub include_content: bool,
}

impl NewEventWebhook {
    pub(crate) fn check(&self) -> Result<(), Error> {
        let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "_-".contains(c);
        let is_name = (1..=64).contains(&self.name.len())
            && self.name.chars().all(plain)
            && self.name.starts_with(|c: char| c.is_ascii_alphanumeric());
        if !is_name {
            return Err(Error::Invalid(
                "the name of a webhook has 1 to 64 lower-case letters, digits, `-` and `_`, and \
                 begins with a letter or a digit"
                    .to_owned(),
            ));
        }
        if self.url.len() > MAX_URL_BYTES {
            return Err(Error::Invalid(format!("`url` has {MAX_URL_BYTES} bytes at most")));
        }
        let is_word = |word: &&String| (1..=MAX_WORD_BYTES).contains(&word.len());
        if self.types.len() > MAX_TYPES
            || !self.types.iter().chain(&self.channel).all(|w| is_word(&w))
        {
            return Err(Error::Invalid(format!(
                "a filter has {MAX_TYPES} types at most, and a type or a channel has 1 to \
                 {MAX_WORD_BYTES} bytes"
            )));
        }
        Ok(())
    }
}

/// A webhook without its secret.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EventWebhook {
    pub id: Uuid,
    pub settings: NewEventWebhook,
    pub is_active: bool,
    /// Why it is disabled.
    pub reason: String,
    pub created_at: Timestamp,
}

/// A webhook with the secrets that sign its requests, the current one first.
#[derive(Debug, Clone)]
pub struct OpenEventWebhook {
    pub webhook: EventWebhook,
    /// `whsec_` and base64.
    pub secrets: Vec<SecretString>,
}
