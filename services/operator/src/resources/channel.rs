//! The resource `Channel`: a channel account of a tenant.

use holdfast_proto::gateway::v1 as pb;
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::{DeletionPolicy, Managed, ResourceStatus, SecretReference, any_object, gateway_name};

/// A channel account of a tenant: a Telegram bot or a webhook.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, CustomResource, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[kube(
    group = "holdfast.dev",
    version = "v1alpha1",
    kind = "Channel",
    plural = "channels",
    namespaced,
    category = "holdfast",
    status = "ResourceStatus",
    doc = "A channel account of a tenant: a Telegram bot or a webhook.",
    annotation("helm.sh/resource-policy", "keep"),
    printcolumn(name = "Tenant", type_ = "string", json_path = ".spec.tenant"),
    printcolumn(name = "Type", type_ = "string", json_path = ".spec.type"),
    printcolumn(name = "Ready", type_ = "string", json_path = ".status.conditions[?(@.type=='Ready')].status"),
    printcolumn(name = "Reason", type_ = "string", json_path = ".status.conditions[?(@.type=='Ready')].reason"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    validation = Rule::new("has(self.spec.name) || self.metadata.name.matches('^[a-z0-9-]{1,64}$')").message("the name of the resource cannot be that in the gateway: set `spec.name`")
)]
#[x_kube(
    validation = Rule::new("has(self.name) == has(oldSelf.name) && (!has(self.name) || self.name == oldSelf.name)").message("`name` never changes: create another resource"),
    validation = Rule::new("self.tenant == oldSelf.tenant").message("`tenant` never changes: create another resource"),
    validation = Rule::new("self.type == oldSelf.type").message("`type` never changes: create another resource")
)]
pub struct ChannelSpec {
    /// Name of the Tenant resource, in the same namespace. It never changes.
    #[schemars(length(min = 1, max = 253))]
    pub tenant: String,
    /// Name of the account; that of the resource if absent. Bindings without an account mean
    /// `default`. It never changes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = r"^[a-z0-9_-]{1,64}$"))]
    pub name: Option<String>,
    /// The platform. It never changes.
    #[serde(rename = "type")]
    pub kind: ChannelType,
    /// Whether the account accepts messages.
    #[serde(default = "enabled")]
    pub enabled: bool,
    /// Settings that are not secret; docs/channels.md lists the fields.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    #[schemars(schema_with = "any_object")]
    pub settings: Map<String, Value>,
    /// The bot's token (telegram) or the signing secret (webhook).
    pub secret: SecretReference,
    #[serde(default, skip_serializing_if = "DeletionPolicy::is_default")]
    pub deletion_policy: DeletionPolicy,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum ChannelType {
    Telegram,
    Webhook,
}

const fn enabled() -> bool {
    true
}

impl ChannelType {
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Telegram => "telegram",
            Self::Webhook => "webhook",
        }
    }

    /// Name of the secret in the gateway's JSON object of secrets.
    pub(crate) const fn secret_field(self) -> &'static str {
        match self {
            Self::Telegram => "token",
            Self::Webhook => "secret",
        }
    }
}

impl Channel {
    /// Name of the account in the gateway.
    pub(crate) fn gateway_name(&self) -> String {
        gateway_name(self, self.spec.name.as_deref())
    }
}

impl Managed for Channel {
    fn status(&self) -> Option<&ResourceStatus> {
        self.status.as_ref()
    }

    fn deletion_policy(&self) -> DeletionPolicy {
        self.spec.deletion_policy
    }

    fn tenant(&self) -> Option<&str> {
        Some(&self.spec.tenant)
    }

    fn claim(&self) -> String {
        format!("{}/{}/{}", self.spec.tenant, self.spec.kind.as_str(), self.gateway_name())
    }

    fn secret(&self) -> Option<&SecretReference> {
        Some(&self.spec.secret)
    }
}

impl ChannelSpec {
    pub(crate) fn to_message(&self, id: String, name: String) -> pb::Account {
        pb::Account {
            id,
            channel: self.kind.as_str().to_owned(),
            name,
            enabled: self.enabled,
            settings: Value::Object(self.settings.clone()).to_string(),
            created_at: None,
        }
    }

    /// All that the gateway has of an account; `None` for a platform without a resource.
    pub(crate) fn from_message(
        account: pb::Account,
        tenant: &str,
        secret: SecretReference,
    ) -> Option<Self> {
        Some(Self {
            tenant: tenant.to_owned(),
            name: Some(account.name),
            kind: serde_json::from_value(Value::String(account.channel)).ok()?,
            enabled: account.enabled,
            settings: serde_json::from_str(&account.settings).unwrap_or_default(),
            secret,
            deletion_policy: DeletionPolicy::default(),
        })
    }
}
