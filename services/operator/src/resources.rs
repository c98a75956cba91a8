//! The resources of the group `holdfast.dev`: desired state of tenants, agents, channels and model
//! providers.
//!
//! | module | contents |
//! |---|---|
//! | `tenant`, `agent`, `channel`, `model_provider` | one resource each, and its conversion from and to the gateway's messages |
//! | `status` | the status that all of them have |
//! | `manifests` | the definitions, and resources as YAML |
//! | `documents` | resources in a file that is applied without Kubernetes |

pub(crate) mod agent;
mod channel;
pub(crate) mod documents;
pub(crate) mod manifests;
mod model_provider;
mod status;
mod tenant;

use k8s_openapi::NamespaceResourceScope;
use kube::{Resource, ResourceExt as _};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize, de::DeserializeOwned};

pub use self::{
    agent::{Agent, AgentSpec},
    channel::{Channel, ChannelSpec},
    model_provider::{ModelProvider, ModelProviderSpec},
    status::ResourceStatus,
    tenant::{Tenant, TenantSpec},
};

/// Finalizer of every resource that may have been written to the gateway.
pub const FINALIZER: &str = "holdfast.dev/operator";
/// Annotation that confirms the deletion of a tenant; its value is the tenant's name.
pub const CONFIRM_DELETE: &str = "holdfast.dev/confirm-delete";

/// Whether deleting the resource deletes what it describes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum DeletionPolicy {
    /// Deleting the resource deletes it in the gateway.
    #[default]
    Delete,
    /// Deleting the resource leaves it in the gateway.
    Retain,
}

impl DeletionPolicy {
    #[expect(clippy::trivially_copy_pass_by_ref, reason = "the signature that serde wants")]
    pub(crate) fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

/// A value in a Secret of the resource's namespace.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SecretReference {
    /// Name of the Secret.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
    /// Key in the Secret.
    #[schemars(length(min = 1, max = 253))]
    pub key: String,
}

/// A resource that the operator reconciles.
pub trait Managed:
    Resource<DynamicType = (), Scope = NamespaceResourceScope>
    + Clone
    + std::fmt::Debug
    + Serialize
    + DeserializeOwned
    + Send
    + Sync
    + 'static
{
    fn status(&self) -> Option<&ResourceStatus>;
    fn deletion_policy(&self) -> DeletionPolicy;
    /// Name of the Tenant resource; `None` for a Tenant.
    fn tenant(&self) -> Option<&str>;
    /// What the resource describes, unique in its kind. Of two resources with the same claim the
    /// older one counts.
    fn claim(&self) -> String;
    /// Values in Secrets that the resource refers to.
    fn secrets(&self) -> Vec<&SecretReference> {
        Vec::new()
    }
}

/// Name in the gateway: the given one, else that of the resource.
pub(crate) fn gateway_name(resource: &impl Resource, given: Option<&str>) -> String {
    given.map_or_else(|| resource.name_any(), str::to_owned)
}

/// Schema of a JSON object with any fields.
pub(crate) fn any_object(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "object", "x-kubernetes-preserve-unknown-fields": true})
}

/// An empty text as an absent one.
pub(crate) fn non_empty(text: String) -> Option<String> {
    Some(text).filter(|text| !text.is_empty())
}
