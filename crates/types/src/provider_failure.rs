//! Failed requests to a model's provider, as the journal keeps them with their run.

use serde::{Deserialize, Serialize};

/// Maximum number of failures that a run keeps: the first ones, and the last.
pub const MAX_PROVIDER_FAILURES: usize = 8;

/// A failed request to a model's provider. For those who run the tenant; no model sees it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ProviderFailure {
    /// Id of the model, `<provider>:<name>`.
    pub model: String,
    /// [`FailureClass`](crate::FailureClass) of the error, or `cooling` if the model was not asked
    /// because it failed a short time ago.
    pub class: String,
    /// HTTP status; `None` without an answer, and for an error within a stream.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<u16>,
    /// The provider's error code, a single word; empty if there is none.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub code: String,
    /// The provider's own words without secrets and without the conversation's, at most 500
    /// characters; or why its server could not be reached. Text from outside.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub text: String,
    /// Number of requests in a row that failed like this.
    pub attempts: u32,
    /// How the request was changed before it was sent again; empty if it was not.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub repair: String,
}

impl ProviderFailure {
    /// Name of the provider.
    #[must_use]
    pub fn provider(&self) -> &str {
        self.model.split_once(':').map_or(&self.model, |(provider, _)| provider)
    }

    /// Adds a failure to a list. One like the last is counted with it; in a full list it replaces the
    /// last one.
    pub fn push_to(self, failures: &mut Vec<Self>) {
        let is_full = failures.len() >= MAX_PROVIDER_FAILURES;
        match failures.last_mut() {
            Some(last) if last.is_like(&self) => {
                last.attempts = last.attempts.saturating_add(self.attempts);
            }
            Some(last) if is_full => *last = self,
            Some(_) | None => failures.push(self),
        }
    }

    /// Whether another failure is the same, without a repair in between.
    fn is_like(&self, other: &Self) -> bool {
        let facts = |one: &Self| (one.model.clone(), one.class.clone(), one.status);
        let words = |one: &Self| (one.code.clone(), one.text.clone(), one.repair.clone());
        facts(self) == facts(other) && words(self) == words(other)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failure(text: &str) -> ProviderFailure {
        let (model, text) = ("openai:gpt-5".to_owned(), text.to_owned());
        ProviderFailure { model, text, attempts: 1, ..ProviderFailure::default() }
    }

    #[test]
    fn equal_failures_are_counted_and_the_last_one_is_kept() {
        let mut failures = Vec::new();
        failure("busy").push_to(&mut failures);
        failure("busy").push_to(&mut failures);
        assert_eq!((failures.len(), failures[0].attempts), (1, 2));

        for n in 0..20 {
            failure(&n.to_string()).push_to(&mut failures);
        }

        assert_eq!(failures.len(), MAX_PROVIDER_FAILURES);
        assert_eq!((failures[0].text.as_str(), failures[7].text.as_str()), ("busy", "19"));
    }

    #[test]
    fn an_entry_of_a_failure_is_short_and_a_newer_one_can_be_read() {
        let stored = serde_json::to_string(&failure("")).unwrap();
        assert_eq!(stored, r#"{"model":"openai:gpt-5","class":"","attempts":1}"#);

        let newer = r#"{"model":"openai:gpt-5","attempts":1,"region":"eu"}"#;
        let read: ProviderFailure = serde_json::from_str(newer).unwrap();
        assert_eq!(read.provider(), "openai");
        assert_eq!(read, failure(""));
    }
}
