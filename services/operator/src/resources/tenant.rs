//! The resource `Tenant`.

use holdfast_proto::gateway::v1 as pb;
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{DeletionPolicy, Managed, ResourceStatus, gateway_name, non_empty};

/// A tenant of the installation. A field that is absent is not managed: it keeps its value.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, CustomResource, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[kube(
    group = "holdfast.dev",
    version = "v1alpha1",
    kind = "Tenant",
    plural = "tenants",
    namespaced,
    category = "holdfast",
    status = "ResourceStatus",
    doc = "A tenant of the installation.",
    annotation("helm.sh/resource-policy", "keep"),
    printcolumn(name = "Ready", type_ = "string", json_path = ".status.conditions[?(@.type=='Ready')].status"),
    printcolumn(name = "Reason", type_ = "string", json_path = ".status.conditions[?(@.type=='Ready')].reason"),
    printcolumn(name = "Plan", type_ = "string", json_path = ".spec.plan"),
    printcolumn(name = "Suspended", type_ = "boolean", json_path = ".spec.suspended"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    validation = Rule::new("has(self.spec.name) || self.metadata.name.matches('^[a-z0-9][a-z0-9-]{0,63}$')").message("the name of the resource is no tenant's name: set `spec.name`")
)]
#[x_kube(
    validation = Rule::new("has(self.name) == has(oldSelf.name) && (!has(self.name) || self.name == oldSelf.name)").message("`name` never changes: create another resource")
)]
pub struct TenantSpec {
    /// Name of the tenant; that of the resource if absent. It never changes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = r"^[a-z0-9][a-z0-9_-]{0,63}$"))]
    pub name: Option<String>,
    /// Keys and channels of a suspended tenant do not work, and its other resources wait.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub suspended: Option<bool>,
    /// Name of its plan; empty for none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = r"^([a-z0-9][a-z0-9_-]{0,63})?$"))]
    pub plan: Option<String>,
    /// Pool of the runners that work for it; empty for the default pool.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = r"^([a-z0-9]([a-z0-9-]{0,38}[a-z0-9])?)?$"))]
    pub pool: Option<String>,
    /// Maximum number of requests per minute, for all its keys together.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 2147483647))]
    pub rate: Option<u32>,
    /// Share of the runners relative to other tenants.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 100))]
    pub weight: Option<u32>,
    /// Maximum number of sessions that are ready or running at once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 100000))]
    pub cap: Option<u32>,
    /// Maximum number of sessions, whatever their state.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 1000000000))]
    pub max_sessions: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retention: Option<Retention>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub product: Option<Product>,
    /// Whether deleting the resource deletes the tenant with everything that it has, which needs
    /// the annotation `holdfast.dev/confirm-delete` with the tenant's name, or leaves it.
    #[serde(default, skip_serializing_if = "DeletionPolicy::is_default")]
    pub deletion_policy: DeletionPolicy,
}

/// Days that finished rows are kept; an absent period is the installation's default.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Retention {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 36500))]
    pub messages: Option<u32>,
    /// Idempotency keys, counted from the deletion of their message.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 36500))]
    pub keys: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 36500))]
    pub deliveries: Option<u32>,
    /// Runs, subagents, approvals, spending, and sessions of job runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 36500))]
    pub runs: Option<u32>,
    /// Entries of journals. By default they are kept as long as their session.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 36500))]
    pub journals: Option<u32>,
}

/// The product that the tenant's agents say they run in.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Product {
    /// Empty is Holdfast.
    #[serde(default)]
    #[schemars(length(max = 64))]
    pub name: String,
    /// An http or https URL.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 200))]
    pub docs_url: String,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 20))]
    pub commands: Vec<ProductCommand>,
}

/// A command for people with a terminal.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ProductCommand {
    #[schemars(length(min = 1, max = 200))]
    pub command: String,
    /// What it does.
    #[schemars(length(max = 160))]
    pub description: String,
}

impl Tenant {
    /// Name of the tenant in the gateway.
    pub(crate) fn gateway_name(&self) -> String {
        gateway_name(self, self.spec.name.as_deref())
    }
}

impl Managed for Tenant {
    fn status(&self) -> Option<&ResourceStatus> {
        self.status.as_ref()
    }

    fn deletion_policy(&self) -> DeletionPolicy {
        self.spec.deletion_policy
    }

    fn tenant(&self) -> Option<&str> {
        None
    }

    fn claim(&self) -> String {
        self.gateway_name()
    }
}

impl TenantSpec {
    /// The gateway's message; fields that are not managed are zero, which leaves them as they are.
    pub(crate) fn to_message(&self, id: String) -> pb::Tenant {
        let state = self.suspended.map(|is| if is { "suspended" } else { "active" });
        pb::Tenant {
            id,
            state: state.unwrap_or_default().to_owned(),
            plan: self.plan.clone().unwrap_or_default(),
            pool: self.pool.clone().unwrap_or_default(),
            rate: self.rate.unwrap_or_default(),
            weight: self.weight.unwrap_or_default(),
            cap: self.cap.unwrap_or_default(),
            max_sessions: self.max_sessions.unwrap_or_default(),
            product: self.product.clone().map(|product| pb::Product {
                name: product.name,
                docs_url: product.docs_url,
                commands: product
                    .commands
                    .into_iter()
                    .map(|one| pb::ProductCommand {
                        command: one.command,
                        description: one.description,
                    })
                    .collect(),
            }),
            retention: self.retention.map(|days| pb::Retention {
                messages: days.messages.unwrap_or_default(),
                keys: days.keys.unwrap_or_default(),
                deliveries: days.deliveries.unwrap_or_default(),
                runs: days.runs.unwrap_or_default(),
                journals: days.journals.unwrap_or_default(),
            }),
            ..pb::Tenant::default()
        }
    }

    /// As [`from_message`](Self::from_message), without what the tenant's plan decides: described, it
    /// would be the tenant's own.
    pub(crate) fn to_export(tenant: pb::Tenant) -> Self {
        let own = tenant.own_limits.clone();
        let is_own = |name: &str| own.iter().any(|own| own == name);
        let spec = Self::from_message(tenant);
        Self {
            rate: spec.rate.filter(|_| is_own("calls_per_minute")),
            cap: spec.cap.filter(|_| is_own("parallel_runs")),
            max_sessions: spec.max_sessions.filter(|_| is_own("sessions")),
            plan: spec.plan.filter(|plan| !plan.is_empty()),
            pool: spec.pool.filter(|pool| !pool.is_empty()),
            ..spec
        }
    }

    /// All that the gateway has of a tenant.
    pub(crate) fn from_message(tenant: pb::Tenant) -> Self {
        let days = tenant.retention.unwrap_or_default();
        let set = |number: u32| Some(number).filter(|number| *number > 0);
        let retention = Retention {
            messages: set(days.messages),
            keys: set(days.keys),
            deliveries: set(days.deliveries),
            runs: set(days.runs),
            journals: set(days.journals),
        };
        let product = tenant.product.unwrap_or_default();
        let product = Product {
            name: product.name,
            docs_url: product.docs_url,
            commands: product
                .commands
                .into_iter()
                .map(|one| ProductCommand { command: one.command, description: one.description })
                .collect(),
        };
        Self {
            name: non_empty(tenant.name),
            suspended: Some(tenant.state == "suspended"),
            plan: Some(tenant.plan),
            pool: Some(tenant.pool),
            rate: set(tenant.rate),
            weight: set(tenant.weight),
            cap: set(tenant.cap),
            max_sessions: set(tenant.max_sessions),
            retention: Some(retention).filter(|retention| *retention != Retention::default()),
            product: Some(product).filter(|product| *product != Product::default()),
            deletion_policy: DeletionPolicy::default(),
        }
    }
}
