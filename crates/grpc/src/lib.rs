//! The gRPC edge shared by all services: authentication, signed calls, deadlines, status codes,
//! traces.
//!
//! | item | purpose |
//! |---|---|
//! | [`Caller`], [`caller`](fn@caller) | the verified caller of a request and its scopes |
//! | [`MeshAuthLayer`] | accepts calls of some of the mesh's services, and refuses others |
//! | [`ClientCertificateLayer`] | refuses calls of services without a certificate |
//! | [`Signer`], [`Mesh`], [`SignedChannel`] | signed calls between services, for a tenant |
//! | [`NodeCommandSigner`], [`NodeIdentity`] | signed commands to people's machines |
//! | `memory`, `secrets` | the clients of the memory service and of the secrets service |
//! | [`status`](fn@status), [`kind`] | conversion between errors and gRPC status |
//! | [`channel`] | a connection to another service |
//! | [`trace`], [`deadline`] | trace context and timeouts in the metadata |
//! | [`health_service`] | readiness over gRPC |

mod auth;
mod caller;
mod client;
mod client_certificates;
mod context;
pub mod deadline;
mod health;
mod memory;
mod node_commands;
mod secrets;
mod status;
pub mod trace;

pub use auth::{MeshAuthLayer, MeshAuthService};
pub use caller::{Caller, InvalidScope, Principal, Scope, Scopes, Via, caller};
pub use client::{InvalidUrl, Mesh, SignedChannel, channel, channel_by};
pub use client_certificates::{ClientCertificateLayer, ClientCertificateService};
pub use context::{CONTEXT_HEADER, CallTarget, InvalidContext, InvalidMeshKey, Signer};
pub use health::health_service;
pub use memory::{MemoryCallError, MemoryClient};
pub use node_commands::{
    InvalidNodeCommand, NodeCommandKeys, NodeCommandSigner, NodeIdentity, node_public_key, now_ms,
};
pub use secrets::{SECRETS_SERVICE, SecretsCallError, SecretsClient, UnusableSecretsService};
pub use status::{
    RETRY_AFTER, code, kind, retry_after, status, status_with_code, with_retry_after,
};
