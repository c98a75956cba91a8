//! Directory of a tenant's configuration: keys, agents, models, channel accounts, routing.
//!
//! [`Directory`] owns the Postgres schema `control`; no other code accesses it. It has one type of
//! operations per resource: `directory.agents().create(…)`. The gateway reads and writes it,
//! runners read agents and models, bridges read accounts.
//!
//! | module | contents |
//! |---|---|
//! | `tenant`, `key` (with devices and sessions of the console), `person`, `audit_event`, `agent` (with behaviours), `policy`, `provider` (with credentials, their renewal, keys of the installation and the catalogue of models), `budget`, `plan`, `tenant_event`, `event_webhook`, `account`, `connection`, `mcp`, `node`, `routing`, `skill_env` | types and their validation |
//! | [`channel`] | settings of channel accounts, shared with the bridges |
//! | `token`, `seal` | the text form of a key; encryption of stored secrets, here or by the secrets service, keys of requests on NATS |
//! | `verbs` | operations, one type per resource; transactions begin and end there |
//! | `store` | all queries |
//!
//! Each change writes a row of `control.audit` in its own transaction. Audit rows, log lines and
//! `Debug` output never contain a secret.
//!
//! ## What can go wrong
//!
//! These lookups are cached: a key, a device, a session of the console or a person (5 s) and a tenant's routing (1 s). A key that is revoked in one
//! process works for up to 5 s in another, and a new binding takes effect there after up to 1 s.

mod account;
mod actor;
mod agent;
mod audit_event;
mod budget;
mod cache;
mod chain;
pub mod channel;
mod connection;
mod directory;
mod error;
mod key;
mod mcp;
mod node;
mod person;
mod policy;
mod product;
mod provider;
mod routing;
mod seal;
mod skill_env;
mod store;
mod tenant;
mod token;
mod url_syntax;
mod verbs;

pub use account::{
    Account, AccountState, AccountStatus, ListedAccount, NewAccount, NewWidgetMessage, OpenAccount,
    ReportedStatus, WidgetMessage,
};
pub use actor::Actor;
pub use agent::behavior::{BehaviorLayer, StoredBehavior};
pub use agent::state::AgentState;
pub use agent::{AGENT_CACHE_TTL, Agent, AgentSettings, BehaviorSettings, NewAgent, RoutedAgent};
pub use audit_event::{AuditEvent, AuditFilter, CallOutcome};
pub use budget::Budget;
pub use chain::NamedChain;
pub use connection::{Connection, NewConnection};
pub use directory::Directory;
pub use error::Error;
pub use key::console::{
    ConsolePrincipal, ConsoleRights, ConsoleSession, ConsoleSessionLimits, IssuedConsoleLink,
    IssuedConsoleSession, LinkOrigin, SignInMethod,
};
pub use key::device::{
    Approver, ApproverRights, Device, DevicePrincipal, DeviceProfile, DeviceRequest, DeviceUser,
};
pub use key::{Key, KeyPrincipal, NewKey, SCOPES};
pub use mcp::{McpServer, McpTransport, NewMcpServer, OpenMcpServer};
pub use node::{AuthenticatedNode, NewNode, Node, NodeConnection, NodeReport};
pub use person::{
    Invitation, Person, PersonChanges, PersonIdentity, PersonPrincipal, ProviderAnswer,
    ProviderSignIn, SignIn,
};
pub use policy::{KnownTool, Policies, StoredPolicy};
pub use product::{Product, ProductCommand};
pub use provider::catalogue::{KnownModel, TenantCatalogue};
pub use provider::credential::{
    CredentialKind, CredentialStats, CredentialSummary, NewCredential, PROVIDER_KEY_NAME,
    ProviderCredentials,
};
pub use provider::platform::{
    NewPlatformKey, PLATFORM_KEY_PREFIX, PlatformKeySummary, PlatformProvider,
};
pub use provider::renewal::{
    NewTokens, RENEWAL_LEASE, RefreshGrant, RenewableTokens, RenewalClaim, RenewedTokens,
    TokenEndpoint,
};
pub use provider::{
    ELEVENLABS, ModelChoice, ModelSetup, NewProvider, Provider, ProviderAccess, ProviderKind,
    SEARCH_PROVIDERS,
};
pub use routing::link::{CodeOrigin, IssuedLink, LinkOutcome, PersonAccount};
pub use routing::pattern::Pattern;
pub use routing::{Binding, Identity, NewBinding, NewModelRoute, NewRule, Routing, RoutingRule};
pub(crate) use seal::{DataKey, Seal, SecretUse};
pub use seal::{KeyPurpose, LocalSeal, Purpose};
pub use skill_env::{SkillVariable, SkillVariableValue};
pub use tenant::event::{TENANT_EVENT_KINDS, TenantEvent, TenantEventFilter};
pub use tenant::event_webhook::{EventWebhook, NewEventWebhook, OpenEventWebhook};
pub use tenant::plan::{LimitLevel, LimitName, NewPlan, Plan, PlanLimits};
pub use tenant::{Tenant, TenantChanges, TenantState};
pub use verbs::{
    Accounts, Agents, Audit, BaseVersion, Behaviors, Budgets, Chains, Connections, ConsoleSessions,
    Credentials, Devices, EventWebhooks, ImportedAgent, Keys, McpServers, ModelUse, Models,
    NodeConnectionState, Nodes, People, Plans, PlatformKeys, PolicyDocuments, ProviderCheck,
    Providers, Routes, SkillEnv, TenantEvents, Tenants,
};
