//! Purposes of secrets, and the named uses for which they are opened.

use std::fmt;

use holdfast_proto::secrets::v1::{self as pb, purpose::Kind};
use holdfast_types::{AccountId, AgentId, PersonId, TenantId};
use uuid::Uuid;

/// Purpose of a secret, part of the associated data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose<'a> {
    /// API key of the provider with this name.
    ProviderKey(&'a str),
    /// Headers of the provider with this name.
    ProviderHeaders(&'a str),
    /// A further credential of a provider.
    Credential { provider: &'a str, name: &'a str },
    /// Secrets of the channel account.
    AccountSecrets(AccountId),
    /// Headers or environment variables of the MCP server with this name.
    McpSecrets(&'a str),
    /// Secret of the connection with this name.
    ConnectionSecret(&'a str),
    /// Secret of the webhook for events with this id.
    EventWebhook(Uuid),
    /// Refresh token of the person with this id.
    RefreshToken(Uuid),
    /// An environment variable of a skill.
    SkillEnv {
        /// Name of the skill, in lower case.
        skill: &'a str,
        name: &'a str,
    },
    /// A key of the installation. It is no tenant's, so the key-encryption key itself seals it.
    PlatformKey { provider: &'a str, name: &'a str },
}

impl<'a> Purpose<'a> {
    /// Returns the name of the kind, without the names in the purpose: a part of the associated data,
    /// and of log lines and metrics.
    #[must_use]
    pub const fn kind(self) -> &'static str {
        match self {
            Self::ProviderKey(_) => "provider-key",
            Self::ProviderHeaders(_) => "provider-headers",
            Self::Credential { .. } => "auth-profile",
            Self::AccountSecrets(_) => "account-secrets",
            Self::McpSecrets(_) => "mcp-secrets",
            Self::ConnectionSecret(_) => "connection-secret",
            Self::EventWebhook(_) => "event-webhook",
            Self::RefreshToken(_) => "refresh-token",
            Self::SkillEnv { .. } => "skill-env",
            Self::PlatformKey { .. } => "platform-key",
        }
    }

    pub(super) const fn is_of_platform(self) -> bool {
        matches!(self, Self::PlatformKey { .. })
    }

    /// Returns what cannot be unsealed, for the error.
    pub(super) const fn description(self) -> &'static str {
        match self {
            Self::ProviderKey(_) => "a provider's key",
            Self::ProviderHeaders(_) => "a provider's headers",
            Self::Credential { .. } => "a credential",
            Self::AccountSecrets(_) => "a channel account's secrets",
            Self::McpSecrets(_) => "an mcp server's secrets",
            Self::ConnectionSecret(_) => "a connection's secret",
            Self::EventWebhook(_) => "the secret of a webhook for events",
            Self::RefreshToken(_) => "a person's refresh token",
            Self::SkillEnv { .. } => "a skill's variable",
            Self::PlatformKey { .. } => "a key of the platform",
        }
    }

    /// Builds the associated data. Ids have a fixed length and names contain no zero byte, so no two
    /// contexts are equal.
    pub(super) fn context(self, tenant: TenantId) -> Vec<u8> {
        let pair =
            |first: &str, second: &str| [first.as_bytes(), b"\0", second.as_bytes()].concat();
        let row = match self {
            Self::ProviderKey(name)
            | Self::ProviderHeaders(name)
            | Self::McpSecrets(name)
            | Self::ConnectionSecret(name) => name.as_bytes().to_vec(),
            Self::AccountSecrets(account) => account.as_uuid().as_bytes().to_vec(),
            Self::EventWebhook(id) | Self::RefreshToken(id) => id.as_bytes().to_vec(),
            Self::Credential { provider, name } => pair(provider, name),
            Self::SkillEnv { skill, name } => pair(skill, name),
            Self::PlatformKey { provider, name } => {
                return [b"holdfast-platform-key\0", pair(provider, name).as_slice()].concat();
            }
        };
        context(tenant, self.kind(), &row)
    }

    pub(super) fn to_message(self) -> pb::Purpose {
        let credential = |provider: &str, name: &str| pb::ProviderCredential {
            provider: provider.to_owned(),
            name: name.to_owned(),
        };
        let kind = match self {
            Self::ProviderKey(name) => Kind::ProviderKey(name.to_owned()),
            Self::ProviderHeaders(name) => Kind::ProviderHeaders(name.to_owned()),
            Self::Credential { provider, name } => Kind::Credential(credential(provider, name)),
            Self::AccountSecrets(account) => Kind::AccountSecrets(account.to_string()),
            Self::McpSecrets(name) => Kind::McpSecrets(name.to_owned()),
            Self::ConnectionSecret(name) => Kind::ConnectionSecret(name.to_owned()),
            Self::EventWebhook(id) => Kind::EventWebhook(id.to_string()),
            Self::RefreshToken(id) => Kind::RefreshToken(id.to_string()),
            Self::SkillEnv { skill, name } => {
                Kind::SkillEnv(pb::SkillVariable { skill: skill.to_owned(), name: name.to_owned() })
            }
            Self::PlatformKey { provider, name } => Kind::PlatformKey(credential(provider, name)),
        };
        pb::Purpose { kind: Some(kind) }
    }

    /// Reads the purpose of a request to the secrets service; `None` if it has none, or an id or a
    /// name in it is malformed.
    #[must_use]
    pub fn from_message(message: &'a pb::Purpose) -> Option<Self> {
        // A zero byte separates names in the associated data.
        let name = |name: &'a String| (!name.contains('\0')).then_some(name.as_str());
        Some(match message.kind.as_ref()? {
            Kind::ProviderKey(provider) => Self::ProviderKey(name(provider)?),
            Kind::ProviderHeaders(provider) => Self::ProviderHeaders(name(provider)?),
            Kind::Credential(row) => {
                Self::Credential { provider: name(&row.provider)?, name: name(&row.name)? }
            }
            Kind::AccountSecrets(account) => Self::AccountSecrets(account.parse().ok()?),
            Kind::McpSecrets(server) => Self::McpSecrets(name(server)?),
            Kind::ConnectionSecret(connection) => Self::ConnectionSecret(name(connection)?),
            Kind::EventWebhook(id) => Self::EventWebhook(id.parse().ok()?),
            Kind::RefreshToken(id) => Self::RefreshToken(id.parse().ok()?),
            Kind::SkillEnv(row) => {
                Self::SkillEnv { skill: name(&row.skill)?, name: name(&row.name)? }
            }
            Kind::PlatformKey(row) => {
                Self::PlatformKey { provider: name(&row.provider)?, name: name(&row.name)? }
            }
        })
    }
}

/// Tenant of a call about keys of the installation, which are no tenant's.
pub(super) fn no_tenant() -> TenantId {
    TenantId::from(Uuid::nil())
}

/// Associated data of a tenant's data key.
pub(super) fn data_key_context(tenant: TenantId) -> Vec<u8> {
    context(tenant, "data-key", b"")
}

fn context(tenant: TenantId, field: &str, row: &[u8]) -> Vec<u8> {
    [b"holdfast\0", tenant.as_uuid().as_bytes().as_slice(), field.as_bytes(), b"\0", row].concat()
}

/// Named use for which a secret is opened, in the log of the secrets service.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SecretUse {
    /// Models of an agent, or of no agent in particular.
    Models(Option<AgentId>),
    TokenRenewal,
    Account(AccountId),
    McpServers,
    Connection,
    Skills,
    Webhook(Uuid),
    /// Sign-in of a person at their identity provider.
    SignIn(PersonId),
}

impl fmt::Display for SecretUse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Models(Some(agent)) => write!(f, "models of {agent}"),
            Self::Models(None) => f.write_str("check of models"),
            Self::TokenRenewal => f.write_str("token renewal"),
            Self::Account(account) => write!(f, "channel account {account}"),
            Self::McpServers => f.write_str("mcp servers"),
            Self::Connection => f.write_str("connection"),
            Self::Skills => f.write_str("skills"),
            Self::Webhook(id) => write!(f, "webhook {id}"),
            Self::SignIn(person) => write!(f, "sign-in of {person}"),
        }
    }
}
