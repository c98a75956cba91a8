//! The resource `ModelProvider`.

use std::collections::BTreeMap;

use holdfast_proto::gateway::v1 as pb;
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::{DeletionPolicy, Managed, ResourceStatus, SecretReference, gateway_name, non_empty};

/// A provider of models that a tenant's agents use.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, CustomResource, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[kube(
    group = "holdfast.dev",
    version = "v1alpha1",
    kind = "ModelProvider",
    plural = "modelproviders",
    namespaced,
    category = "holdfast",
    status = "ResourceStatus",
    doc = "A provider of models that a tenant's agents use.",
    annotation("helm.sh/resource-policy", "keep"),
    printcolumn(name = "Tenant", type_ = "string", json_path = ".spec.tenant"),
    printcolumn(name = "Kind", type_ = "string", json_path = ".spec.kind"),
    printcolumn(name = "Ready", type_ = "string", json_path = ".status.conditions[?(@.type=='Ready')].status"),
    printcolumn(name = "Reason", type_ = "string", json_path = ".status.conditions[?(@.type=='Ready')].reason"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    validation = Rule::new("has(self.spec.name) || self.metadata.name.matches('^[a-z0-9-]{1,64}$')").message("the name of the resource cannot be that in the gateway: set `spec.name`")
)]
#[x_kube(
    validation = Rule::new("has(self.name) == has(oldSelf.name) && (!has(self.name) || self.name == oldSelf.name)").message("`name` never changes: create another resource"),
    validation = Rule::new("self.tenant == oldSelf.tenant").message("`tenant` never changes: create another resource"),
    validation = Rule::new("self.kind != 'demo' || !has(self.apiKey)").message("a provider of kind `demo` has no key: remove `apiKey`")
)]
pub struct ModelProviderSpec {
    /// Name of the Tenant resource, in the same namespace. It never changes.
    #[schemars(length(min = 1, max = 253))]
    pub tenant: String,
    /// The first half of a model's name: `openai` in `openai:gpt-5`; that of the resource if
    /// absent. It never changes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = r"^[a-z0-9][a-z0-9_-]{0,63}$"))]
    pub name: Option<String>,
    /// API of the provider.
    pub kind: ProviderKind,
    /// Address of the API; the provider's own if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = r"^https?://"))]
    pub base_url: Option<String>,
    /// The provider's API key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub api_key: Option<SecretReference>,
    /// The tenant's default model, as `provider:model`, if it is one of this provider.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 200))]
    pub default_model: Option<String>,
    /// Headers that are added to each request, by name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 32))]
    pub headers: BTreeMap<String, SecretReference>,
    /// Fields that are added to the body of each request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "super::any_object")]
    pub extra_body: Option<Map<String, Value>>,
    #[serde(default, skip_serializing_if = "DeletionPolicy::is_default")]
    pub deletion_policy: DeletionPolicy,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum ProviderKind {
    Openai,
    OpenaiResponses,
    Anthropic,
    Gemini,
    Ollama,
    Azure,
    Vertex,
    Bedrock,
    Demo,
}

impl ProviderKind {
    const fn as_str(self) -> &'static str {
        match self {
            Self::Openai => "openai",
            Self::OpenaiResponses => "openai-responses",
            Self::Anthropic => "anthropic",
            Self::Gemini => "gemini",
            Self::Ollama => "ollama",
            Self::Azure => "azure",
            Self::Vertex => "vertex",
            Self::Bedrock => "bedrock",
            Self::Demo => "demo",
        }
    }
}

impl ModelProvider {
    /// Name of the provider in the gateway.
    pub(crate) fn gateway_name(&self) -> String {
        gateway_name(self, self.spec.name.as_deref())
    }
}

impl Managed for ModelProvider {
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
        format!("{}/{}", self.spec.tenant, self.gateway_name())
    }

    fn secrets(&self) -> Vec<&SecretReference> {
        self.spec.api_key.iter().chain(self.spec.headers.values()).collect()
    }
}

impl ModelProviderSpec {
    pub(crate) fn to_message(&self, name: String) -> pb::Provider {
        pb::Provider {
            name,
            kind: self.kind.as_str().to_owned(),
            base_url: self.base_url.clone().unwrap_or_default(),
            has_key: self.api_key.is_some(),
            default_model: self.default_model.clone().unwrap_or_default(),
            header_names: self.headers.keys().cloned().collect(),
            extra_body: Some(
                Value::Object(self.extra_body.clone().unwrap_or_default()).to_string(),
            ),
        }
    }

    /// All that the gateway has of a provider; `None` for a kind without a resource.
    pub(crate) fn from_message(
        provider: pb::Provider,
        tenant: &str,
        secret: SecretReference,
    ) -> Option<Self> {
        let extra_body: Map<String, Value> = provider
            .extra_body
            .and_then(|text| serde_json::from_str(&text).ok())
            .unwrap_or_default();
        let header = |name: String| {
            let key = name.to_ascii_lowercase();
            (name, SecretReference { name: secret.name.clone(), key })
        };
        Some(Self {
            tenant: tenant.to_owned(),
            name: Some(provider.name),
            kind: serde_json::from_value(Value::String(provider.kind)).ok()?,
            base_url: non_empty(provider.base_url),
            headers: provider.header_names.into_iter().map(header).collect(),
            extra_body: Some(extra_body).filter(|fields| !fields.is_empty()),
            api_key: Some(secret).filter(|_| provider.has_key),
            default_model: non_empty(provider.default_model),
            deletion_policy: DeletionPolicy::default(),
        })
    }
}
