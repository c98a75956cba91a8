//! Ids: a UUIDv7 with a prefix that names the kind.
//!
//! Version 7 sorts by time, so new rows are added at the end of an index. The prefix is only for
//! people and for the wire; the database stores the UUID.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use uuid::Uuid;

/// A text that is not an id of the expected kind.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{given}` is not {what}: write `{prefix}_` and a UUID")]
pub struct InvalidId {
    given: String,
    what: &'static str,
    prefix: &'static str,
}

/// Maximum length of a bad id in an error, in characters.
const MAX_SHOWN_CHARS: usize = 80;

macro_rules! id {
    ($(#[$doc:meta])* $name:ident, $prefix:literal, $what:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(Uuid);

        impl $name {
            #[must_use]
            pub fn generate() -> Self {
                Self(Uuid::now_v7())
            }

            #[must_use]
            pub const fn as_uuid(self) -> Uuid {
                self.0
            }
        }

        impl From<Uuid> for $name {
            fn from(uuid: Uuid) -> Self {
                Self(uuid)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!($prefix, "_{}"), self.0.simple())
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(self, f)
            }
        }

        impl FromStr for $name {
            type Err = InvalidId;

            fn from_str(text: &str) -> Result<Self, InvalidId> {
                text.strip_prefix(concat!($prefix, "_"))
                    .and_then(|uuid| Uuid::try_parse(uuid).ok())
                    .map(Self)
                    .ok_or_else(|| InvalidId {
                        given: text.chars().take(MAX_SHOWN_CHARS).collect(),
                        what: $what,
                        prefix: $prefix,
                    })
            }
        }

        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                String::deserialize(deserializer)?.parse().map_err(de::Error::custom)
            }
        }
    };
}

id!(/// Tenant: an isolated customer of the installation.
    TenantId, "ten", "a tenant's id");
id!(/// An assistant of a tenant.
    AgentId, "agt", "an agent's id");
impl AgentId {
    /// Decentralised identifier of the agent, unique in its tenant (spec SLF-012).
    #[must_use]
    pub fn did(self) -> String {
        format!("urn:holdfast:agent:{}", self.as_uuid())
    }
}

id!(/// A conversation.
    SessionId, "ses", "a session's id");
id!(/// Accepted message.
    MessageId, "msg", "a message's id");
id!(/// Run of one turn; has the UUID of the message that began it.
    RunId, "run", "a run's id");
id!(/// A change of itself that an agent asks for.
    ProposalId, "prp", "a proposal's id");
id!(/// API key (its public part).
    KeyId, "key", "a key's id");
id!(/// A person of a tenant.
    PersonId, "per", "a person's id");
id!(/// An invitation of a person.
    InvitationId, "inv", "an invitation's id");
id!(/// An account on a channel: a bot, a webhook.
    AccountId, "acc", "a channel account's id");
id!(/// One part of one reply on its way to a channel.
    DeliveryId, "dlv", "a delivery's id");
id!(/// Approval of one tool call.
    ApprovalId, "apr", "an approval's id");
id!(/// A person's own machine.
    NodeId, "nod", "a node's id");
id!(/// Scheduled job.
    JobId, "job", "a job's id");
id!(/// One process that runs agents.
    RunnerId, "rnr", "a runner's id");

impl ApprovalId {
    /// The last eight characters, by which people refer to the approval.
    #[must_use]
    pub fn slug(self) -> String {
        // The end of a UUIDv7 is random, the beginning a timestamp.
        let digits = self.0.simple().to_string();
        digits[digits.len() - 8..].to_owned()
    }
}

impl From<MessageId> for RunId {
    fn from(message: MessageId) -> Self {
        Self(message.as_uuid())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn an_id_reads_back_as_it_was_written() {
        let id = SessionId::generate();

        assert_eq!(id.to_string().parse(), Ok(id));
        assert!(id.to_string().starts_with("ses_"));
    }

    #[test]
    fn an_id_of_another_kind_is_refused_with_what_to_write() {
        let error = AgentId::generate().to_string().parse::<SessionId>().unwrap_err();

        assert!(error.to_string().ends_with("is not a session's id: write `ses_` and a UUID"));
    }

    #[test]
    fn a_huge_id_is_not_repeated_whole() {
        let error = "x".repeat(10_000).parse::<SessionId>().unwrap_err();

        assert!(error.to_string().len() < 200);
    }

    proptest! {
        #[test]
        fn any_text_is_an_id_or_refused(text in "(ses_)?[0-9a-fA-F{}:urnid-]{0,48}|\\PC{0,40}") {
            if let Ok(id) = text.parse::<SessionId>() {
                prop_assert_eq!(id.to_string().parse(), Ok(id));
            }
        }
    }
}
