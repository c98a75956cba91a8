//! Accounts that a person links by a code (decision 0087).

use holdfast_types::{PersonId, Target, TenantId, has_platform_wide_ids};
use sha2::{Digest as _, Sha256};

use crate::Identity;

/// Channel and account in the rows of codes that people asked for.
const PERSON_CHANNEL: &str = "person";

/// Account of a person on a channel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PersonAccount {
    pub channel: String,
    /// Name of the tenant's account on the channel, through which the person writes.
    pub account: String,
    /// Id of the person on the channel, in the platform's own case.
    pub peer: String,
}

impl PersonAccount {
    /// `channel` of the account's identity.
    #[must_use]
    pub fn identity_channel(&self) -> String {
        match has_platform_wide_ids(&self.channel) {
            true => self.channel.clone(),
            false => format!("{}/{}", self.channel, self.account),
        }
    }

    pub(crate) fn hash(&self, tenant: TenantId) -> Vec<u8> {
        let text = format!("{}\n{}", self.identity_channel(), self.peer);
        Sha256::new().chain_update(tenant.as_uuid()).chain_update(text).finalize().to_vec()
    }

    pub(crate) fn identity(&self, canonical: &str) -> Identity {
        let (channel, peer) = (self.identity_channel(), self.peer.clone());
        Identity { channel, peer, canonical: canonical.to_owned() }
    }
}

/// Account or person that asked for a code.
#[derive(Debug, Clone, PartialEq)]
pub enum CodeOrigin {
    /// An account, and where it is answered.
    Account { account: PersonAccount, target: Target },
    /// A person who signed in.
    Person(PersonId),
}

impl CodeOrigin {
    /// Channel, account and peer in the table of codes. Those of a person are no account's.
    pub(crate) fn row(&self) -> (&str, &str, String) {
        match self {
            Self::Account { account, .. } => {
                (&account.channel, &account.account, account.peer.clone())
            }
            Self::Person(person) => (PERSON_CHANNEL, PERSON_CHANNEL, person.to_string()),
        }
    }

    /// Reads what [`row`](Self::row) gave.
    pub(crate) fn from_row(
        (channel, account, peer): (String, String, String),
        target: Option<Target>,
    ) -> Option<Self> {
        match target {
            Some(target) => {
                let account = PersonAccount { channel, account, peer };
                Some(Self::Account { account, target })
            }
            None => Some(Self::Person(peer.parse().ok()?)),
        }
    }

    /// Whether the account with this hash asked for the code.
    pub(crate) fn is_account(&self, tenant: TenantId, hash: &[u8]) -> bool {
        matches!(self, Self::Account { account, .. } if account.hash(tenant) == hash)
    }

    /// Name of the place where the code was asked for, in the audit log.
    #[must_use]
    pub fn name(&self) -> &str {
        match self {
            Self::Account { account, .. } => &account.channel,
            Self::Person(_) => "the console",
        }
    }
}

/// A request for a code, and what is known of whoever asked.
#[derive(Debug, Clone, PartialEq)]
pub struct IssuedLink {
    pub origin: CodeOrigin,
    /// Name of the person to whom the other account is linked.
    pub person: String,
    /// Names by which the conversation of the account that asked was known.
    pub former: Vec<String>,
    /// Roles of the account or person that asked for the code.
    pub roles: Vec<String>,
}

/// Outcome of sending a code.
#[derive(Debug, Clone, PartialEq)]
pub enum LinkOutcome {
    Linked(Box<IssuedLink>),
    /// The code does not exist, was used, or has expired.
    Unknown,
    TooManyAttempts,
    SameAccount,
    /// The account is linked already.
    LinkedAlready,
    /// An administrator has set the account's identity.
    NamedByAdmin,
    /// Other accounts are linked to this one.
    HasLinks,
    /// The account has rights that the other does not have.
    MoreRights,
}
