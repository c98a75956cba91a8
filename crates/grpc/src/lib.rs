//! The edge of every service: who calls, in whose name, until when, and how it went.
//!
//! | module | for |
//! |---|---|
//! | [`Caller`], [`caller`](fn@caller) | the verified caller of a request, and what it may |
//! | [`AuthLayer`] | finds the caller of each request, or refuses it |
//! | [`Signer`], [`Mesh`] | calls between services, in a tenant's name |
//! | [`Memory`] | the memory service, for the other services |
//! | [`status`](fn@status), [`kind`] | errors to gRPC, and back |
//! | [`channel`] | a connection to another service |
//! | [`trace`], [`deadline`] | what travels along |
//! | [`health_service`] | readiness, for whoever asks by gRPC |

mod auth;
mod caller;
mod client;
mod context;
pub mod deadline;
mod health;
mod memory;
mod status;
pub mod trace;

pub use auth::{AuthError, AuthLayer, Authenticate, Authenticated};
pub use caller::{Caller, InvalidScope, Scope, Scopes, caller};
pub use client::{InvalidUrl, Mesh, channel};
pub use context::{CONTEXT, InvalidContext, Signer, WeakSecret};
pub use health::health_service;
pub use memory::{Memory, Refused};
pub use status::{RETRY_AFTER, code, kind, retry_after, status, with_retry_after};
