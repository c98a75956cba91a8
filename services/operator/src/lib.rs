//! operator: applies Kubernetes resources to the gateway. Desired state only, never sessions.
//!
//! ```text
//!  Tenant, Agent, Channel, ModelProvider ──watch──▶ controllers ──▶ reconcile ──gRPC──▶ gateway
//!              ▲                                                        │
//!              └───────── conditions, events, keys of tenants ──────────┘
//! ```
//!
//! | module | contents |
//! |---|---|
//! | `resources` | the resources, their definitions, conversion from and to the gateway's messages |
//! | `reconcile` | reconciliation of one resource, the same for all kinds; one module for each kind |
//! | `controllers` | watches, and the queue of each kind |
//! | `tenant_keys` | keys of tenants in Secrets |
//! | `leader` | election of the operator that acts, by a Lease |
//! | `gateway` | client of the gateway |
//! | `context`, `error` | what reconcilers share; failures as conditions tell them |
//! | `app`, `config` | composition, settings |
//!
//! Each step can be repeated: an operator may crash at any point, and the next one continues from
//! the resource and the gateway's state.

mod app;
mod config;
mod context;
mod controllers;
mod error;
mod gateway;
mod leader;
mod reconcile;
mod resources;
mod tenant_keys;

pub use app::App;
pub use config::{Config, Operator};
pub use resources::{
    agent::work::{BehaviorDocuments, document_changes, own_documents},
    documents::{
        Documents, IdentitySpec, InvalidDocuments, ProviderSecrets, RoutingSpec, agent_of_document,
    },
    manifests::{AgentState, TenantState, agent_document, definitions},
};

/// Name of this operator as a writer of fields and reporter of events.
const FIELD_MANAGER: &str = "holdfast-operator";
